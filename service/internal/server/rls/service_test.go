package rls_test

import (
	"fmt"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
)

const years = "rate_limit: {unit: year, requests_per_unit: "

// said is what a response says: its code, and of each descriptor the code and what remains.
func said(r *pb.RateLimitResponse) string {
	text := code(r.OverallCode)
	for _, s := range r.Statuses {
		text += fmt.Sprintf(" %s:%d", code(s.Code), s.LimitRemaining)
	}
	return text
}

func code(c pb.RateLimitResponse_Code) string {
	return map[pb.RateLimitResponse_Code]string{ok: "ok", over: "over"}[c]
}

// A step of a test asks about descriptors and wants an answer.
type step struct {
	ask  []*common.RateLimitDescriptor
	want string
}

func of(list ...*common.RateLimitDescriptor) []*common.RateLimitDescriptor { return list }

func walk(t *testing.T, s *rls.Service, steps []step) {
	t.Helper()
	for i, step := range steps {
		if got := said(ask(t, s, step.ask...)); got != step.want {
			t.Errorf("step %d, %v:\nsays %s\nwant %s", i, step.ask, got, step.want)
		}
	}
}

// A limit of 0 is over until the end of its window, whatever its accounting is.
func TestBanUntilTheEnd(t *testing.T) {
	store := memstore.New(memstore.Config{})
	s := newService(t, rls.Config{Store: store}, `
domain: d
descriptors:
  - {key: atomic, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: reference, rate_limit: {unit: year, requests_per_unit: 0, accounting: reference}}
`)
	list := ask(t, s, entries("atomic=1"), entries("reference=1")).Statuses
	a, b := list[0].DurationUntilReset.AsDuration(), list[1].DurationUntilReset.AsDuration()
	if list[0].Code != over || list[1].Code != over || (a-b).Abs() > time.Hour || a <= 0 {
		t.Errorf("%v", list)
	}
}
