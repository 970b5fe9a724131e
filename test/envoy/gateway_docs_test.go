package envoy_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	document "go.yaml.in/yaml/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint/internal/must"
)

// A shownDescriptor is one of docs/envoy-gateway.md.
type shownDescriptor struct {
	Key, Value  string
	Descriptors []shownDescriptor
	RateLimit   *struct {
		Unit            string
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
	} `yaml:"rate_limit"`
}

// served is what a control plane serves of it.
func (d shownDescriptor) served() *config.RateLimitDescriptor {
	made := &config.RateLimitDescriptor{Key: d.Key, Value: d.Value}
	if d.RateLimit != nil {
		unit := config.RateLimitUnit(config.RateLimitUnit_value[strings.ToUpper(d.RateLimit.Unit)])
		made.RateLimit = &config.RateLimitPolicy{Unit: unit, RequestsPerUnit: d.RateLimit.RequestsPerUnit}
	}
	for _, below := range d.Descriptors {
		made.Descriptors = append(made.Descriptors, below.served())
	}
	return made
}

// The configuration and the descriptors of docs/envoy-gateway.md limit as the page says.
func TestEnvoyGatewayDocs(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/envoy-gateway.md"))(t)
	block := regexp.MustCompile("(?s)```yaml\n(domain:.*?)```").FindSubmatch(text)
	var domain struct {
		Domain      string
		Descriptors []shownDescriptor
	}
	if block == nil || document.Unmarshal(block[1], &domain) != nil {
		t.Fatal("the page has no domain")
	}
	given := &config.RateLimitConfig{Name: domain.Domain, Domain: domain.Domain}
	for _, d := range domain.Descriptors {
		given.Descriptors = append(given.Descriptors, d.served())
	}
	g, secure := newSecureGateway(t)
	admin := freePorts(t, 1)[0]
	subject, client := g.service(t, secure, fmt.Sprintf("STINT_ADMIN_LISTEN=127.0.0.1:%d", admin))
	until(t, "the subject is healthy before it has a configuration", subject.ready)

	rows := regexp.MustCompile(`(?m)^\| rule \d \| (.*) \|$`).FindAllStringSubmatch(string(text), -1)
	ask := func(user, address string) (*rls.RateLimitResponse, error) {
		request := &rls.RateLimitRequest{Domain: domain.Domain}
		for _, row := range rows {
			made := &common.RateLimitDescriptor{}
			for entry := range strings.SplitSeq(strings.NewReplacer("`", "", "=one", "="+user, "=192.0.2.7", "="+address).Replace(row[1]), ", ") {
				key, value, given := strings.Cut(entry, "=")
				if !given {
					value = key
				}
				made.Entries = append(made.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
			request.Descriptors = append(request.Descriptors, made)
		}
		return client.ShouldRateLimit(t.Context(), request)
	}
	if _, err := ask("one", "192.0.2.7"); status.Code(err) != codes.Unavailable {
		t.Errorf("before there is a configuration: %v", err)
	}
	g.offer("1", given)
	until(t, "the subject limits by the page's configuration", offers(3, func() (*rls.RateLimitResponse, error) {
		return ask("nobody", "192.0.2.99")
	}))
	for i, step := range []struct {
		user, address string
		rules         [2]rls.RateLimitResponse_Code
	}{
		{"one", "192.0.2.7", [2]rls.RateLimitResponse_Code{okay, okay}},
		{"one", "192.0.2.7", [2]rls.RateLimitResponse_Code{okay, okay}},
		{"one", "192.0.2.7", [2]rls.RateLimitResponse_Code{okay, okay}},
		{"one", "192.0.2.7", [2]rls.RateLimitResponse_Code{overLimit, okay}}, // it counts for its address all the same
		{"two", "192.0.2.7", [2]rls.RateLimitResponse_Code{okay, okay}},
		{"two", "192.0.2.7", [2]rls.RateLimitResponse_Code{okay, okay}},
		{"two", "192.0.2.7", [2]rls.RateLimitResponse_Code{okay, overLimit}},
		{"three", "192.0.2.8", [2]rls.RateLimitResponse_Code{okay, okay}},
	} {
		response, err := ask(step.user, step.address)
		if err != nil || len(response.GetStatuses()) != 2 || response.GetStatuses()[0].GetCode() != step.rules[0] || response.GetStatuses()[1].GetCode() != step.rules[1] {
			t.Errorf("request %d: %v, %v, want %v", i, response, err, step.rules)
		}
	}
	if domains := fetch(t, admin, "/api/v1/domains"); !strings.Contains(domains, domain.Domain) {
		t.Errorf("the domains are %s", domains)
	}
}
