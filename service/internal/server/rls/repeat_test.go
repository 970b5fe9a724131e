package rls_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/storetest"
)

// Envoy sends the end of a stream once. It is charged once, whatever the store or the process was doing then.
func TestServiceRepeatsCommits(t *testing.T) {
	refused := func(after bool) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable, After: after} }
	for name, test := range map[string]struct {
		fault storetest.Fault // of commits
		busy  bool
		code  codes.Code
	}{
		"the store is unreachable": {fault: refused(false), code: codes.Unavailable},
		"the answer is lost":       {fault: refused(true), code: codes.Unavailable},
		"the process is busy":      {busy: true, code: codes.ResourceExhausted},
	} {
		for _, c := range []struct {
			name        string
			before, end []*common.RateLimitDescriptor
			left        string
		}{
			{
				"two holds", of(before("tokens=u", "1", 600), before("tried=u", "1", 5)),
				of(after("tokens=u", "1", 70), after("tried=u", "1", 2)), "ok ok:930 ok:8",
			},
			{"no hits are said", of(before("tokens=u", "1", 600), before("tried=u", "1", 1)), of(entries("tokens=u,stint_commit=1"), entries("tried=u,stint_commit=1")), "ok ok:999 ok:9"},
			{"the same entry", of(before("tokens=u", "1", 600), before("tried=u", "1", 5)), of(before("tokens=u", "1", 70), before("tried=u", "1", 2)), "ok ok:930 ok:8"},
			{"it was not held", nil, of(after("tokens=u", "1", 70), after("tried=u", "1", 2)), "ok ok:930 ok:8"},
			{"nothing is known of it", nil, of(entries("tokens=u,stint_commit=1"), entries("tried=u,stint_commit=1")), "ok ok:1000 ok:10"},
			{
				"another limit denied it", of(before("tokens=u", "1", 100), before("tried=u", "1", 1), costing("requests=u", 4)),
				of(after("tokens=u", "1", 70), after("tried=u", "1", 2)), "ok ok:930 ok:8",
			},
		} {
			if test.busy && c.name == "the same entry" || test.fault.After && c.name == "nothing is known of it" {
				continue // a process that did not look does not know that it is an end; what is refused has an answer
			}
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(memstore.New(memstore.Config{}))
				var busy atomic.Bool
				enter := func(ctx context.Context, _ int64) (context.Context, func(), error) {
					if busy.Load() {
						return ctx, nil, stint.ErrOverloaded
					}
					return ctx, func() {}, nil
				}
				s := newService(t, rls.Config{Store: store, Enter: enter}, holding)
				if c.before != nil {
					ask(t, s, c.before...)
				}
				store.Inject(func(call storetest.Call) storetest.Fault {
					if call.Ops[0].Verb == stint.VerbCommit {
						return test.fault
					}
					return storetest.Fault{}
				})
				busy.Store(test.busy)
				_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: c.end})
				if status.Code(err) != test.code {
					t.Errorf("%s, %s: %v", name, c.name, err)
				}
				if waiting, _ := s.Commits(); waiting == 0 {
					t.Errorf("%s, %s: nothing waits", name, c.name)
				}
				time.AfterFunc(30*time.Second, func() { store.Inject(nil) })
				if err := s.Drain(t.Context()); err != nil {
					t.Errorf("%s, %s: %v", name, c.name, err)
				}
				busy.Store(false)
				walk(t, s, []step{{of(costing("tokens=u", 0), costing("tried=u", 0)), c.left}})
				if waiting, lost := s.Commits(); waiting != 0 || lost != 0 {
					t.Errorf("%s, %s: %d wait, %d are lost", name, c.name, waiting, lost)
				}
			})
		}
	}
}

// What is no good is not repeated, and what is given up counts.
func TestServiceGivesUpCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(memstore.Config{}))
		s := newService(t, rls.Config{Store: store}, holding)
		ask(t, s, before("tokens=u", "1", 600))
		_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: of(after("places=u", "1", 1))})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "stint_commit") {
			t.Errorf("an end of other limits: %v", err)
		}
		if waiting, lost := s.Commits(); waiting != 0 || lost != 0 {
			t.Errorf("%d wait, %d are lost", waiting, lost)
		}
		store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
		_, _ = s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: of(after("tokens=u", "1", 1))})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if waiting, lost := s.Commits(); waiting != 0 || lost != 1 {
			t.Errorf("%d wait, %d are lost", waiting, lost)
		}
	})
}

// What a stream cost that the store can't charge any more is counted as lost. An end that names no TTL is known for a
// minute.
func TestServiceCountsLateCommits(t *testing.T) {
	for _, test := range []struct {
		end  *common.RateLimitDescriptor
		left string
		lost uint64
	}{
		{after("tokens=u", "1", 70), "ok ok:1000", 1},
		{after("tokens=u,stint_ttl=60s", "1", 70), "ok ok:930", 0},
		{entries("tokens=u,stint_commit=1"), "ok ok:1000", 0}, // nothing to charge
	} {
		synctest.Test(t, func(t *testing.T) {
			store := storetest.NewFaulty(memstore.New(memstore.Config{}))
			store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
			s := newService(t, rls.Config{Store: store}, holding)
			_, _ = s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: of(test.end)})
			time.AfterFunc(90*time.Second, func() { store.Inject(nil) })
			<-time.After(110 * time.Second)
			if waiting, lost := s.Commits(); waiting != 0 || lost != test.lost {
				t.Errorf("%v: %d wait, %d are lost; want %d", test.end, waiting, lost, test.lost)
			}
			walk(t, s, []step{{of(costing("tokens=u", 0)), test.left}})
		})
	}
}
