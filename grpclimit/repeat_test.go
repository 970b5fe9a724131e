package grpclimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// What a call cost is charged once, though its commit fails for as long as the store remembers the hold. Failed is told
// by what, and what is given up is told again. A drain waits.
func TestServerRepeatsCommits(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"short": time.Second, "long": 170 * time.Second, "too long": 190 * time.Second} {
		for _, stream := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(memstore.New(memstore.Config{}))
				store.Inject(func(call storetest.Call) storetest.Fault {
					if call.Ops[0].Verb == stint.VerbCommit {
						return storetest.Fault{Err: stint.ErrUnavailable}
					}
					return storetest.Fault{}
				})
				limiter := limiterOn(t, store, stint.FixedWindow(1000, 24*time.Hour).FromFirst())
				var mu sync.Mutex
				var told []*enforce.EndError
				limits := newServer(t, grpclimit.Config{
					Limiter: limiter, Reserve: &stint.Hold{TTL: time.Minute},
					Key:  func(context.Context, string) (string, error) { return "k", nil },
					Cost: func(context.Context, string, any) (int64, error) { return 100, nil },
					Failed: func(ctx context.Context, method string, err error) {
						failed, ok := errors.AsType[*enforce.EndError](err)
						if !ok || method != "/a/b" || ctx.Err() != nil {
							t.Errorf("Failed is told of %s: %v", method, err)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						told = append(told, failed)
					},
				})
				ctx, leave := context.WithCancel(t.Context())
				var err error
				if stream {
					err = limits.StreamServerInterceptor()(nil, aStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/a/b"},
						func(_ any, s grpc.ServerStream) error { grpclimit.Cost(s.Context()).Set(70); return nil })
				} else {
					_, err = limits.UnaryServerInterceptor()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"},
						func(ctx context.Context, _ any) (any, error) { grpclimit.Cost(ctx).Set(70); return nil, nil })
				}
				leave()
				must.Do(t, err)
				time.AfterFunc(lasts, func() { store.Inject(nil) })
				err = limits.Drain(t.Context())
				d := must.Get(limiter.Peek(t.Context(), "k"))(t)
				if lost := name == "too long"; lost != (err != nil) || lost != (d.Remaining == 1000) || !lost && d.Remaining != 930 {
					t.Errorf("%s outage: %d are left: %v", name, d.Remaining, err)
				}
				mu.Lock()
				defer mu.Unlock()
				want := 1
				if name == "too long" {
					want = 2
				}
				if len(told) != want || !told[0].Repeated || told[want-1].Repeated != (want == 1) || told[0].Permits != 70 || told[0].Hold == nil {
					t.Errorf("%s outage: Failed is told %v", name, told)
				}
			})
		}
	}
}
