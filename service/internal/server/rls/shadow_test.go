package rls_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// What a service in shadow lets pass is told as a limit in shadow is: of each limit, and the request is admitted.
func TestServiceInShadow(t *testing.T) {
	for _, accounting := range []domains.Accounting{domains.Reference, domains.Atomic} {
		var told []string
		s := newService(t, rls.Config{Accounting: accounting, Shadow: true, Observe: func(_ context.Context, e *stint.Event) {
			told = append(told, fmt.Sprintf("%s %s allowed=%v shadow=%v %s", e.Rule, e.Claim.Key[:min(1, len(e.Claim.Key))], e.Decision.Allowed, e.Shadow, e.Reason))
		}}, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: q, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: r, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
`)
		answers := func(want string, list ...string) {
			t.Helper()
			told = nil
			var asked []*common.RateLimitDescriptor
			for _, text := range list {
				asked = append(asked, entries(text))
			}
			if response := ask(t, s, asked...); response.OverallCode.String() != "OK" {
				t.Errorf("%v: the answer is %v", accounting, response.OverallCode)
			}
			if got := strings.Join(told, "\n"); got != want {
				t.Errorf("%v: of %v is told\n%s\nwant\n%s", accounting, list, got, want)
			}
		}
		admitted := "  allowed=true shadow=false "
		for i, a := range []string{"true", "false"} {
			reason := []string{"", "limit"}[i]
			answers(admitted+"\nenvoy/d.a a allowed="+a+" shadow=true "+reason+"\nenvoy/d.b b allowed=true shadow=true ", "a=1", "b=1")
		}
		// The second finds q used up, which denies nobody while r is left.
		for i, a := range []string{"true", "true", "false"} {
			reason := []string{"", "", "limit"}[i]
			answers(admitted+"\nenvoy/d.q q allowed="+a+" shadow=true "+reason+"\nenvoy/d.r r allowed="+a+" shadow=true "+reason, "q=1", "r=1")
		}
	}
}
