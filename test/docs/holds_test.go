package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/storetest"
)

// A model says a word a line, stops when nobody listens, and tells at its end how many tokens that was.
type model = func(ctx context.Context, say func(word string) error) (tokens int64, err error)

const maxTokens = 500

func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

// The middleware of the page commits what its handler says.
func TestMiddlewareThatHolds(t *testing.T) {
	store := newStore()
	limiter := must.Get(stint.New(store, "llm",
		stint.Concurrency(5).Named("at-once").WithCost(1),
		stint.SlidingWindowCounter(100, time.Minute).Named("requests").WithCost(1),
		stint.SlidingWindowCounter(1_000_000, 24*time.Hour).Named("tokens"),
	))(t)
	middleware := must.Get(httplimit.New(httplimit.Config{
		Limiter: limiter,
		Key:     func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil },
		Cost:    func(*http.Request) (int64, error) { return maxTokens, nil }, // at most
		Reserve: &stint.Hold{TTL: time.Minute},
	}))(t)
	handler := middleware.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cost := httplimit.Cost(r.Context())
		cost.Set(0)   // else a client that hangs up now pays for all that was held
		cost.Add(40)  // as a stream runs
		cost.Set(120) // what it was in the end; Cancel if nothing ran
	}))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	request.Header.Set("X-User", "ann")
	handler.ServeHTTP(httptest.NewRecorder(), request)
	each := make([]stint.Outcome, 3)
	op := stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: "ann", Policy: limiter.Policy(), Permits: 1}, Each: each}
	must.Get(store.Decide(t.Context(), op))(t)
	if got := fmt.Sprint(each[0].Remaining, each[1].Remaining, each[2].Remaining); got != "5 99 999880" {
		t.Errorf("%s are left, want 5 99 999880", got)
	}
}

// runJobs is the page's job runner.
func runJobs(ctx context.Context, limiter *stint.Limiter, tenant string, jobs []func(ctx context.Context) error) {
	var running sync.WaitGroup
	for _, job := range jobs {
		place, _, err := limiter.ReserveWait(ctx, tenant, 1, stint.Hold{})
		if err != nil {
			log.Print(err)
			break
		}
		running.Go(func() {
			work, stop := place.KeepAlive(ctx)
			defer stop()
			err := job(work)
			if errors.Is(context.Cause(work), stint.ErrLost) {
				log.Print("another job has the place")
			} else if err != nil {
				log.Print(err)
			}
			if _, err := place.Commit(context.WithoutCancel(ctx), 1); err != nil {
				log.Print(err)
			}
		})
	}
	running.Wait()
}

var errBusy = errors.New("come again later")

// A download is charged when it has ended, into debt, also if the client has hung up.
func TestDownloads(t *testing.T) {
	store := stillStore()
	limiter := must.Get(
		stint.New(store, "bytes", stint.TokenBucket(10_000_000, stint.PerSecond(1_000_000)).WithMaxDebt(100_000_000)))(t)
	download := func(ctx context.Context, w io.Writer, user string, file io.Reader) error {
		decision, err := limiter.Allow(ctx, user) // a byte: is anything left?
		if err != nil || !decision.Allowed {
			return errors.Join(err, errBusy)
		}
		sent, err := io.Copy(w, file) // also if it fails, sent is what was used
		_, failed := limiter.Settle(context.WithoutCancel(ctx), user, sent-1)
		return errors.Join(err, failed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hangUp := readerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), io.EOF
	})
	if err := download(ctx, io.Discard, "ann", io.MultiReader(io.LimitReader(zeros{}, 30_000_000), hangUp)); err != nil {
		t.Error(err)
	}
	if err := download(t.Context(), io.Discard, "ann", zeros{}); !errors.Is(err, errBusy) {
		t.Errorf("%v; want %v", err, errBusy)
	}
	if decision, err := limiter.Peek(t.Context(), "ann"); err != nil || decision.RetryAfter < 20*time.Second || decision.RetryAfter > 21*time.Second {
		t.Errorf("%v, %v; want a wait of 20 s for the debt", decision.RetryAfter, err)
	}
}

// zeros is a file without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The page's job runner has as many jobs at once as there are places, and goes on when the store does.
func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paused := storetest.NewFaulty(newStore())
		store := must.Get(failover.New(paused, failover.Config{Mode: failover.Closed}))(t)
		defer store.Close()
		limiter := must.Get(stint.New(store, "jobs", stint.Concurrency(3)))(t)
		time.AfterFunc(5*time.Second, func() {
			paused.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Block: true} })
		})
		time.AfterFunc(35*time.Second, func() { paused.Inject(nil) })
		var running, done atomic.Int64
		jobs := make([]func(context.Context) error, 50)
		for i := range jobs {
			jobs[i] = func(ctx context.Context) error {
				if n := running.Add(1); n > 3 {
					t.Errorf("%d jobs run at once", n)
				}
				defer done.Add(1)
				defer running.Add(-1)
				return sleep.For(ctx, time.Second)
			}
		}
		start := time.Now()
		runJobs(t.Context(), limiter, "acme", jobs)
		if n, took := done.Load(), time.Since(start); n != 50 || took < 40*time.Second || took > 3*time.Minute {
			t.Errorf("%d jobs ran in %v", n, took)
		}
	})
}
