package rls_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/storetest"
)

// noon is the time of tests that set it.
const noon = stint.Instant(1_790_000_000_000_000)

const simple = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 5, accounting: reference}}
`

// fails expects an error of a code that says a text.
func fails(t *testing.T, s *rls.Service, r *pb.RateLimitRequest, code codes.Code, text string) {
	t.Helper()
	response, err := s.ShouldRateLimit(t.Context(), r)
	if status.Code(err) != code || response != nil || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("%v, %v; want %v with %q", response, err, code, text)
	}
}

// multiplied is a descriptor with a limit of 1 in so many units.
func multiplied(unit typed.RateLimitUnit, multiplier uint32) *common.RateLimitDescriptor {
	d := limited("a=1", 1, unit)
	d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
	return d
}

// Requests that are no good are INVALID_ARGUMENT, say what is wrong and where, and consume nothing.
func TestBadRequests(t *testing.T) {
	s := newService(t, rls.Config{}, simple)
	ask(t, s, limited("a=1", 1, typed.RateLimitUnit_SECOND)) // whose limit is none of a unit that is 1 modulo 256
	a := entries("a=1")
	many := make([]*common.RateLimitDescriptor, rls.MaxDescriptors+1)
	for i := range many {
		many[i] = a
	}
	long := &common.RateLimitDescriptor{Entries: make([]*common.RateLimitDescriptor_Entry, 65)}
	for i := range long.Entries {
		long.Entries[i] = &common.RateLimitDescriptor_Entry{Key: "a"}
	}
	for _, test := range []struct {
		name    string
		request *pb.RateLimitRequest
		want    string
	}{
		{"nil", nil, `domain is ""; allowed: the name of a domain`},
		{"no domain", &pb.RateLimitRequest{Descriptors: of(a)}, `domain is ""; allowed: the name of a domain`},
		{"no descriptors", &pb.RateLimitRequest{Domain: "d"}, `descriptors is 0; allowed: 1 to 256 descriptors`},
		{"too many descriptors", &pb.RateLimitRequest{Domain: "d", Descriptors: many}, `descriptors is 257; allowed: 1 to 256 descriptors`},
		{"a nil descriptor", &pb.RateLimitRequest{Domain: "d", Descriptors: of(a, nil)}, `descriptors[1].entries is 0; allowed: 1 to 64 entries`},
		{"no entries", &pb.RateLimitRequest{Domain: "d", Descriptors: of(&common.RateLimitDescriptor{})}, `descriptors[0].entries is 0; allowed: 1 to 64 entries`},
		{"too many entries", &pb.RateLimitRequest{Domain: "d", Descriptors: of(a, a, long)}, `descriptors[2].entries is 65; allowed: 1 to 64 entries`},
		{"an empty key", &pb.RateLimitRequest{Domain: "d", Descriptors: of(entries("a=1,=2"))}, `descriptors[0].entries[1].key is ""; allowed: a key`},
		{"a nil entry", &pb.RateLimitRequest{Domain: "d", Descriptors: of(&common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{nil}})}, `descriptors[0].entries[0].key is ""; allowed: a key`},
		{"an empty key for no domain", &pb.RateLimitRequest{Domain: "none", Descriptors: of(entries("=2"))}, `descriptors[0].entries[0].key is ""; allowed: a key`},
		{"an override without a unit", &pb.RateLimitRequest{Domain: "d", Descriptors: of(a, limited("a=1", 1, 0))}, `descriptors[1]: limit.unit is UNKNOWN; allowed: SECOND, MINUTE, HOUR, DAY, MONTH or YEAR`},
		{"an override with an unknown unit", &pb.RateLimitRequest{Domain: "d", Descriptors: of(limited("a=1", 1, 77))}, `descriptors[0]: limit.unit is 77; allowed: SECOND`},
		{"an override with a negative unit", &pb.RateLimitRequest{Domain: "d", Descriptors: of(limited("a=1", 1, -1))}, `descriptors[0]: limit.unit is -1; allowed: SECOND`},
		{"an override with a unit that is one modulo 256", &pb.RateLimitRequest{Domain: "d", Descriptors: of(limited("a=1", 1, 257))}, `descriptors[0]: limit.unit is 257; allowed: SECOND`},
		{"a multiplier of 0", &pb.RateLimitRequest{Domain: "d", Descriptors: of(multiplied(typed.RateLimitUnit_SECOND, 0))}, `descriptors[0]: limit.unit_multiplier is 0; allowed: 1 or more`},
		{"too large a multiplier", &pb.RateLimitRequest{Domain: "d", Descriptors: of(multiplied(typed.RateLimitUnit_YEAR, 2))}, "allowed:"},
		{"the largest multiplier", &pb.RateLimitRequest{Domain: "d", Descriptors: of(multiplied(typed.RateLimitUnit_YEAR, math.MaxUint32))}, "allowed:"},
	} {
		t.Run(test.name, func(t *testing.T) { fails(t, s, test.request, codes.InvalidArgument, test.want) })
	}
	if got := said(ask(t, s, a)); got != "ok ok:4" {
		t.Errorf("after requests that are no good: %s", got)
	}
}

// A request may have as many descriptors as there may be, all of which are one operation.
func TestMostDescriptors(t *testing.T) {
	s := newService(t, rls.Config{}, simple)
	list := make([]*common.RateLimitDescriptor, rls.MaxDescriptors)
	for i := range list {
		list[i] = entries(fmt.Sprintf("a=%d", i))
	}
	for i := range 5 {
		if got, want := said(ask(t, s, list...)), "ok"+strings.Repeat(fmt.Sprintf(" ok:%d", 4-i), len(list)); got != want {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	if got, want := said(ask(t, s, list...)), "over"+strings.Repeat(" over:0", len(list)); got != want {
		t.Errorf("the sixth: %s", got)
	}
}

// Of requests that are no good one in a second is logged, with how many were not.
func TestBadRequestsAreLoggedSeldom(t *testing.T) {
	var text bytes.Buffer
	clock := storetest.NewClock(noon)
	s := newService(t, rls.Config{Logger: slog.New(slog.NewTextHandler(&text, nil))}, simple)
	s.SetClock(clock.Instant)
	for range 3 {
		for range 1000 {
			fails(t, s, &pb.RateLimitRequest{Descriptors: of(entries("secret=1"))}, codes.InvalidArgument, "domain")
		}
		clock.Advance(time.Second)
	}
	if n := strings.Count(text.String(), "\n"); n != 3 || strings.Count(text.String(), "skipped=999") != 2 || strings.Contains(text.String(), "secret") {
		t.Errorf("%d lines for 3000 bad requests in 3 seconds:\n%s", n, &text)
	}
}

// breaking is a service on a store that can be broken, with its log.
func breaking(t *testing.T, config rls.Config) (*rls.Service, *storetest.Faulty, *bytes.Buffer) {
	t.Helper()
	var text bytes.Buffer
	faulty := storetest.NewFaulty(memstore.New(memstore.Config{Now: storetest.NewClock(noon).Now}))
	config.Store, config.Logger = faulty, slog.New(slog.NewTextHandler(&text, nil))
	return newService(t, config, simple), faulty, &text
}

// What the store can't decide is an error with the code that says why, and the service goes on when the store does.
func TestStoreFails(t *testing.T) {
	one, two := of(entries("a=1")), of(entries("a=1"), entries("b=1"))
	for _, test := range []struct {
		err  error
		code codes.Code
	}{
		{fmt.Errorf("%w: gone", stint.ErrUnavailable), codes.Unavailable},
		{fmt.Errorf("%w: %w", stint.ErrUnavailable, context.DeadlineExceeded), codes.Unavailable},
		{fmt.Errorf("%w: full", stint.ErrOverloaded), codes.ResourceExhausted},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{errors.New("odd"), codes.Unavailable},
	} {
		s, faulty, text := breaking(t, rls.Config{})
		faulty.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: test.err} })
		for _, list := range [][]*common.RateLimitDescriptor{one, two, of(costing("a=1", 0)), of(costing("a=1", -1))} {
			fails(t, s, &pb.RateLimitRequest{Domain: "d", Descriptors: list}, test.code, "")
		}
		if text.Len() > 0 {
			t.Errorf("%v is logged for each request:\n%s", test.err, text)
		}
		faulty.Inject(nil)
		if got := said(ask(t, s, two...)); got != "ok ok:4 ok:4" {
			t.Errorf("after %v: %s", test.err, got)
		}
		if n := gathered(t, s)[`ratelimit_service_should_rate_limit_error{err_type="redis_error"}`]; n != 4 {
			t.Errorf("%v: %v errors were counted", test.err, n)
		}
	}
}

// Without a configuration nothing is decided, as with one that was refused.
func TestNothingLoaded(t *testing.T) {
	s := must.Get(rls.New(rls.Config{Store: memstore.New(memstore.Config{})}))(t)
	request := &pb.RateLimitRequest{Domain: "d", Descriptors: of(entries("a=1"))}
	fails(t, s, request, codes.Unavailable, "no configuration of domains is loaded yet")
	if err := s.Swap(parsed(t, simple, simple)); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), `the domain "d" is given twice`) {
		t.Errorf("two domains of one name: %v", err)
	}
	s.Refused() // as who follows the files says
	fails(t, s, request, codes.Unavailable, "no configuration of domains is loaded yet")
	if _, _, loaded := s.Loaded(); loaded || s.Dump() != "" {
		t.Error("a configuration that was refused is loaded")
	}
	if err := s.Swap(nil); err != nil {
		t.Error(err)
	}
	if got := said(ask(t, s, entries("a=1"))); got != "ok ok:0" {
		t.Errorf("with a configuration of nothing: %s", got)
	}
	metrics := gathered(t, s)
	if metrics["ratelimit_service_config_load_error{}"] != 1 || metrics["ratelimit_service_config_load_success{}"] != 1 || metrics[`ratelimit_service_should_rate_limit_error{err_type="service_error"}`] != 2 {
		t.Errorf("the metrics: %v", metrics)
	}
}

// What New can't work with is refused.
func TestNew(t *testing.T) {
	store := memstore.New(memstore.Config{})
	for _, test := range []struct {
		config rls.Config
		want   string
	}{
		{rls.Config{}, "store is "},
		{rls.Config{Store: store, Accounting: "odd"}, "accounting is "},
		{rls.Config{Store: store, NearRatio: 1.5}, "near_limit_ratio is "},
		{rls.Config{Store: store, NearRatio: -1}, "near_limit_ratio is "},
	} {
		if _, err := rls.New(test.config); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.config, err, test.want)
		}
	}
}

// A request that can't begin is RESOURCE_EXHAUSTED, does not reach the store, and leaves only if it entered.
func TestOverloaded(t *testing.T) {
	var full error
	var costs []int64
	inside := 0
	s, faulty, _ := breaking(t, rls.Config{Enter: func(ctx context.Context, cost int64) (context.Context, func(), error) {
		costs = append(costs, cost)
		if full != nil {
			return ctx, nil, full
		}
		inside++
		return ctx, func() { inside-- }, nil
	}})
	request := &pb.RateLimitRequest{Domain: "d", Descriptors: of(entries("a=1"), entries("a=2"))}
	full = fmt.Errorf("%w: too many wait", stint.ErrOverloaded)
	fails(t, s, request, codes.ResourceExhausted, "too many wait")
	if faulty.Calls() != 0 {
		t.Error("the store was asked")
	}
	full = nil
	for _, fault := range []storetest.Fault{{}, {Err: stint.ErrUnavailable}} {
		faulty.Inject(func(storetest.Call) storetest.Fault { return fault })
		_, _ = s.ShouldRateLimit(t.Context(), request)
	}
	faulty.Inject(func(storetest.Call) storetest.Fault { panic("broken") })
	fails(t, s, request, codes.Internal, "")
	if inside != 0 || fmt.Sprint(costs) != "[2 2 2 2]" {
		t.Errorf("%d requests are inside, costs %v", inside, costs)
	}
}

// A panic of the store is INTERNAL, is logged, as seldom as bad requests since a client may be able to bring it about, and
// spoils neither the process nor later requests.
func TestStorePanics(t *testing.T) {
	s, faulty, text := breaking(t, rls.Config{})
	s.SetClock(storetest.NewClock(noon).Instant)
	request := &pb.RateLimitRequest{Domain: "d", Descriptors: of(entries("a=1"), entries("b=1"))}
	faulty.Inject(func(storetest.Call) storetest.Fault { panic("broken") })
	for range 100 {
		fails(t, s, request, codes.Internal, "the service has a fault; its log says which")
	}
	if log := text.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "fault=broken") {
		t.Errorf("the log:\n%s", text)
	}
	faulty.Inject(nil)
	if got := said(ask(t, s, request.Descriptors...)); got != "ok ok:4 ok:4" {
		t.Errorf("after a panic: %s", got)
	}
}

// A limit that a request brings is more work than one that is configured: nothing of it is prepared.
func TestOverridesCostMore(t *testing.T) {
	var costs []int64
	s, _, _ := breaking(t, rls.Config{Enter: func(ctx context.Context, cost int64) (context.Context, func(), error) {
		costs = append(costs, cost)
		return ctx, func() {}, nil
	}})
	brought := limited("a=1", 1, typed.RateLimitUnit_DAY)
	ask(t, s, entries("a=1"), entries("a=2"))
	ask(t, s, entries("a=1"), brought, brought)
	if fmt.Sprint(costs) != "[2 9]" {
		t.Errorf("the costs are %v", costs)
	}
}
