package rls_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/storetest"
)

// What can't be decided has a code that says whose fault it is, a text that names it, and a line of the log in a second
// at most.
func TestBadRequests(t *testing.T) {
	var log bytes.Buffer
	s := newService(t, rls.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, `
domain: d
descriptors: [{key: a, `+years+`5}}]
`)
	multiplied := func(n uint32) *common.RateLimitDescriptor {
		d := limited("a=1", 1, typed.RateLimitUnit_YEAR)
		d.Limit.UnitMultiplier = wrapperspb.UInt32(n)
		return d
	}
	many := make([]*common.RateLimitDescriptor, rls.MaxDescriptors+1)
	for i := range many {
		many[i] = entries("a=1")
	}
	deep := entries(strings.TrimSuffix(strings.Repeat("a=1,", 65), ","))
	for _, test := range []struct {
		request *pb.RateLimitRequest
		want    string
	}{
		{nil, `domain is ""`},
		{&pb.RateLimitRequest{Descriptors: of(entries("a=1"))}, `domain is ""`},
		{&pb.RateLimitRequest{Domain: "d"}, "descriptors is 0; allowed: 1 to 256"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: many}, "descriptors is 257"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(nil)}, "descriptors[0].entries is 0"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(entries("a=1"), &common.RateLimitDescriptor{})}, "descriptors[1].entries is 0"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(entries("a=1,=2"))}, `descriptors[0].entries[1].key is ""`},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(deep)}, "descriptors[0].entries is 65"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(limited("a=1", 1, typed.RateLimitUnit_UNKNOWN))}, "descriptors[0]: limit.unit is UNKNOWN"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(limited("a=1", 1, 99))}, "limit.unit is 99"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(limited("a=1", 1, -5))}, "limit.unit is -5"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(multiplied(0))}, "limit.unit_multiplier is 0"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(multiplied(2))}, "366d"},
		{&pb.RateLimitRequest{Domain: "d", Descriptors: of(multiplied(math.MaxUint32))}, "allowed:"},
	} {
		_, err := s.ShouldRateLimit(t.Context(), test.request)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.100v: %v, want %q", test.request, err, test.want)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines == 0 || lines > 3 {
		t.Errorf("%d lines of the log in less than a second:\n%s", lines, &log)
	}
	// The largest numbers are no fault.
	largest := costing("a=1", 1)
	largest.HitsAddend.Value = math.MaxUint64
	walk(t, s, []step{{of(largest), "over over:5"}, {of(entries("a=1")), "ok ok:4"}})
	largest.IsNegativeHits = true
	walk(t, s, []step{{of(largest), "ok ok:5"}})
}

// A panicking store has a fault that ends no process.
type panicking struct{ stint.Store }

func (panicking) Decide(context.Context, stint.Op) (stint.Decision, error) { panic("a fault") }

// What the store or the process can't do is not the request's fault.
func TestFailures(t *testing.T) {
	faulty := storetest.NewFaulty(memstore.New(memstore.Config{}))
	document := "domain: d\ndescriptors: [{key: a, " + years + "5}}]\n"
	s := newService(t, rls.Config{Store: faulty}, document)
	for err, want := range map[error]codes.Code{
		stint.ErrUnavailable: codes.Unavailable, stint.ErrOverloaded: codes.ResourceExhausted,
		context.Canceled: codes.Canceled, context.DeadlineExceeded: codes.DeadlineExceeded, errors.New("other"): codes.Unavailable,
	} {
		faulty.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: err} })
		_, got := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: of(entries("a=1"))})
		if status.Code(got) != want {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
	faulty.Inject(nil)
	walk(t, s, []step{{of(entries("a=1")), "ok ok:4"}})

	s = newService(t, rls.Config{Store: panicking{faulty}}, document)
	_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: of(entries("a=1"))})
	if status.Code(err) != codes.Internal {
		t.Errorf("a panic is %v", err)
	}
	s = newService(t, rls.Config{Enter: func(context.Context, int64) (func(), error) { return nil, stint.ErrOverloaded }}, document)
	if _, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: of(entries("a=1"))}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("overloaded: %v", err)
	}
	for want, config := range map[string]rls.Config{
		"store":            {},
		"accounting":       {Store: faulty, Accounting: "both"},
		"near_limit_ratio": {Store: faulty, NearRatio: 2},
	} {
		if _, err := rls.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A configuration with a fault changes nothing.
func TestSwapRefuses(t *testing.T) {
	s := newService(t, rls.Config{}, "domain: d\ndescriptors: [{key: a, "+years+"5}}]\n")
	twice := parsed(t, "domain: d\n", "domain: d\n")
	if err := s.Swap(twice); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), `the domain "d" is given twice`) {
		t.Errorf("twice: %v", err)
	}
	bad := []*domains.Domain{{Name: "d", Descriptors: []domains.Descriptor{{Key: "a", RateLimit: &domains.RateLimit{RequestsPerUnit: 1}}}}}
	if err := s.Swap(bad); err == nil {
		t.Error("a limit without a unit is put in force")
	}
	walk(t, s, []step{{of(entries("a=1")), "ok ok:4"}})
	if err := s.Swap(nil); err != nil {
		t.Errorf("no domains: %v", err)
	}
	walk(t, s, []step{{of(entries("a=1")), "ok ok:0"}})
}
