package server_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/storetest"
)

// A service that is stopped while the commits of streams fail waits until they are charged, but no longer than its
// DrainTimeout.
func TestDrainWaitsForCommits(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration
		lost   bool
	}{
		"in time":  {patience, false},
		"too late": {300 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			var store *storetest.Faulty
			var tries, committed atomic.Int64
			var stopping atomic.Bool
			r := runGRPC(t, func(c2 *server.Config) {
				store = storetest.NewFaulty(c2.Store)
				c2.Store, c2.Drain.Timeout = store, c.within
			})
			store.Inject(func(call storetest.Call) storetest.Fault {
				switch {
				case call.Ops[0].Verb != stint.VerbCommit:
					return storetest.Fault{}
				case !stopping.Load(), c.lost, tries.Add(1) < 3: // not by the first try of the drain
					return storetest.Fault{Err: stint.ErrUnavailable}
				}
				committed.Add(call.Ops[0].Permits)
				return storetest.Fault{}
			})
			_, err := pb.NewRateLimitServiceClient(r.dial()).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{
				Domain: "d", Descriptors: []*common.RateLimitDescriptor{{
					Entries: []*common.RateLimitDescriptor_Entry{
						{Key: "k", Value: "x"}, {Key: "stint_commit", Value: "1"},
					},
					HitsAddend: wrapperspb.UInt64(70),
				}},
			})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("the end of a stream: %v", err)
			}
			if metrics := r.get("/metrics").body; !strings.Contains(metrics, "\nrate_limiter_commits_waiting 1\n") ||
				!strings.Contains(metrics, "\nrate_limiter_commits_lost_total 0\n") {
				t.Error("no metric counts the commit that waits")
			}
			stopping.Store(true)
			r.stop()
			if err := r.end(); err != nil && !c.lost { // a connection may be cut off then, too
				t.Error(err)
			}
			if lost := committed.Load() == 0; lost != c.lost || !lost && committed.Load() != 70 {
				t.Errorf("%d permits are committed", committed.Load())
			}
			if logged := strings.Contains(r.log.String(), "commits that are not charged"); logged != c.lost {
				t.Errorf("the log: %s", r.log.String())
			}
		})
	}
}
