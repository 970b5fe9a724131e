package rls_test

import (
	"strings"
	"sync"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// Limits that requests bring are kept ready in a bounded number, whatever their windows are.
func TestOverridesAreBounded(t *testing.T) {
	for _, accounting := range []domains.Accounting{domains.Atomic, domains.Reference} {
		s := newService(t, rls.Config{Accounting: accounting}, simple)
		for i := range uint32(30_000) {
			ask(t, s, multiplied(typed.RateLimitUnit_SECOND, i+1))
		}
		if overrides, counters := s.Kept("d"); overrides > 10_000 || counters > 10_000 {
			t.Errorf("%s: %d limits and %d counters are kept", accounting, overrides, counters)
		}
	}
}

// Requests that bring the same new limit at one moment, twice each, are decided.
func TestOverridesAtOnce(t *testing.T) {
	s := newService(t, rls.Config{}, simple)
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for i := range uint32(2000) {
				d := limited("a=1", i+1, typed.RateLimitUnit_DAY)
				if _, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: of(d, d)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
}

// The names of series are short, however long the texts of requests are, so that their memory is bounded, too.
func TestSeriesHaveShortNames(t *testing.T) {
	s := newService(t, rls.Config{}, `
domain: d
descriptors:
  - {key: k, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: v, value_to_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
`)
	long := strings.Repeat("x", 100_000)
	ask(t, s, entries("k="+long))
	ask(t, s, entries("v="+long))
	must.Get(s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: long, Descriptors: of(entries("a=1"))}))(t)
	metrics := gathered(t, s)
	for name := range metrics {
		if len(name) > 2000 {
			t.Errorf("a series has a name of %d bytes: %.100s", len(name), name)
		}
	}
	for name, want := range map[string]float64{
		`total_hits{domain="d",key1="other",key2=""}`: 2, `domain_not_found{domain="other"}`: 1,
	} {
		if n := metrics["ratelimit_service_rate_limit_"+name]; n != want {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
}
