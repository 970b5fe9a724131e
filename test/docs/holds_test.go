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
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// A model says a word a line, stops when nobody listens, and tells at its end how many tokens that was.
type model = func(ctx context.Context, say func(word string) error) (tokens int64, err error)

// gateway is the page's LLM gateway.
type gateway struct {
	limiter *stint.Limiter
	model   model
}

const maxTokens = 500

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	each := make([]stint.Outcome, g.limiter.Policy().Len())
	hold, decision, err := g.limiter.Reserve(r.Context(), r.Header.Get("X-User"), maxTokens, stint.Hold{TTL: 2 * time.Minute, Each: each})
	switch {
	case errors.Is(err, stint.ErrInvalid): // no user, for example
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	httplimit.WriteHeaders(w.Header(), g.limiter.Policy(), decision, each...)
	if !decision.Allowed {
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	used, refused := int64(0), false
	defer func() { // also when the client hangs up, and on panic
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
		defer cancel()
		if refused {
			_, err = hold.Cancel(ctx)
		} else {
			_, err = hold.Commit(ctx, used)
		}
		if err != nil {
			log.Print(err)
		}
	}()
	work, stop := hold.KeepAlive(r.Context())
	defer stop()
	tokens, err := g.model(work, func(word string) error {
		used++ // as far as we know, until the model tells
		if _, err := io.WriteString(w, word+"\n"); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	})
	switch {
	case err == nil:
		used = tokens
	case errors.Is(context.Cause(work), stint.ErrLost) && used == 0:
		http.Error(w, "the place was lost", http.StatusServiceUnavailable)
	case errors.Is(context.Cause(work), stint.ErrLost):
		panic(http.ErrAbortHandler) // so that the client can tell this from an end
	case work.Err() == nil && used == 0: // and not because the client hung up
		refused = true
		http.Error(w, "the model refused", http.StatusBadGateway)
	default:
		log.Print(err)
	}
}

func newGateway(t *testing.T, model model) (*gateway, *memstore.Store) {
	t.Helper()
	store := memstore.New(memstore.Config{})
	limiter, err := stint.New(store, "llm",
		stint.Concurrency(5).Named("at-once").WithCost(1),
		stint.SlidingWindowCounter(100, time.Minute).Named("requests").WithCost(1),
		stint.SlidingWindowCounter(1_000_000, 24*time.Hour).Named("tokens"),
	)
	if err != nil {
		t.Fatal(err)
	}
	return &gateway{limiter, model}, store
}

// left are the places, requests and tokens that a user has.
func left(t *testing.T, g *gateway, store *memstore.Store) [3]int64 {
	t.Helper()
	each := make([]stint.Outcome, 3)
	op := stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: "ann", Policy: g.limiter.Policy(), Permits: 1}, Each: each}
	if _, err := store.Decide(t.Context(), op); err != nil {
		t.Fatal(err)
	}
	return [3]int64{each[0].Remaining, each[1].Remaining, each[2].Remaining}
}

func ask(t *testing.T, url string, read func(io.Reader)) int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Error(err)
		return 0
	}
	request.Header.Set("X-User", "ann")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	read(response.Body)
	return response.StatusCode
}

func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

// The gateway charges what a stream has said: to its end, until its client hung up, and until it panicked.
func TestGateway(t *testing.T) {
	ended := make(chan struct{})
	g, store := newGateway(t, func(ctx context.Context, say func(string) error) (int64, error) {
		for i := range 30 {
			if err := say(fmt.Sprint("word", i)); err != nil {
				return 0, err
			}
		}
		return 40, ctx.Err()
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		g.ServeHTTP(w, r)
	}))
	defer server.Close()
	go func() { <-ended }()
	if status := ask(t, server.URL, drain); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	if got, want := left(t, g, store), [3]int64{5, 99, 999_960}; got != want {
		t.Errorf("after a whole stream %v are left, want %v", got, want)
	}
	tokens, err := g.limiter.With(stint.SlidingWindowCounter(1_000_000, 24*time.Hour).Named("tokens"))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := tokens.Peek(t.Context(), "ann"); err != nil || d.Remaining != 999_960 {
		t.Errorf("%+v of the tokens, %v", d, err)
	}
	g.model = func(ctx context.Context, say func(string) error) (int64, error) {
		if err := say("one"); err != nil {
			return 0, err
		}
		<-ctx.Done() // the client hangs up
		return 0, ctx.Err()
	}
	go ask(t, server.URL, func(r io.Reader) { _, _ = r.Read(make([]byte, 1)) })
	<-ended
	if got, want := left(t, g, store), [3]int64{5, 98, 999_959}; got != want {
		t.Errorf("after a client that hung up %v are left, want %v", got, want)
	}
	g.model = func(_ context.Context, say func(string) error) (int64, error) {
		_ = say("one")
		panic(http.ErrAbortHandler)
	}
	go func() { <-ended }()
	ask(t, server.URL, drain)
	if got, want := left(t, g, store), [3]int64{5, 97, 999_958}; got != want {
		t.Errorf("after a panic %v are left, want %v", got, want)
	}
}

// A model that refuses is a bad gateway, and costs the user nothing. Somebody without a name is told so.
func TestGatewayRefuses(t *testing.T) {
	g, store := newGateway(t, func(context.Context, func(string) error) (int64, error) { return 0, errors.New("not today") })
	for user, want := range map[string]int{"ann": http.StatusBadGateway, "": http.StatusBadRequest} {
		request, answer := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		request.Header.Set("X-User", user)
		g.ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("user %q: status %d, want %d", user, answer.Code, want)
		}
	}
	if got, want := left(t, g, store), [3]int64{5, 100, 1_000_000}; got != want {
		t.Errorf("%v are left, want %v", got, want)
	}
}

// A stream whose hold is lost does not look like one that has ended. Its client is told so, or cut off.
func TestGatewayThatLosesItsPlace(t *testing.T) {
	for _, words := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			g, _ := newGateway(t, nil)
			g.model = func(work context.Context, say func(string) error) (int64, error) {
				for range words {
					if err := say("one"); err != nil {
						return 0, err
					}
				}
				live, err := g.limiter.Holds(work, "ann")
				if err != nil || len(live) == 0 {
					t.Fatal(live, err)
				}
				if err := g.limiter.Drop(work, "ann", live[0].ID); err != nil {
					t.Fatal(err)
				}
				<-work.Done() // noticed at the next renewal
				return 0, work.Err()
			}
			request, answer := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
			request.Header.Set("X-User", "ann")
			defer func() {
				if v := recover(); words == 0 && answer.Code != http.StatusServiceUnavailable || words > 0 && v != http.ErrAbortHandler { //nolint:errorlint // the sentinel itself
					t.Errorf("after %d words: status %d, and %v", words, answer.Code, v)
				}
			}()
			g.ServeHTTP(answer, request)
		})
	}
}

// A sixth stream is denied while five run.
func TestGatewayAtOnce(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	g, _ := newGateway(t, func(context.Context, func(string) error) (int64, error) {
		begun <- struct{}{}
		<-finish
		return 0, nil
	})
	server := httptest.NewServer(g)
	defer server.Close()
	var streams sync.WaitGroup
	for range 5 {
		streams.Go(func() { ask(t, server.URL, drain) })
		<-begun
	}
	request, answer := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
	request.Header.Set("X-User", "ann")
	g.ServeHTTP(answer, request)
	if answer.Code != http.StatusTooManyRequests || answer.Header().Get("Retry-After") != "1" {
		t.Errorf("status %d of a sixth, Retry-After %q", answer.Code, answer.Header().Get("Retry-After"))
	}
	close(finish)
	streams.Wait()
}

// The middleware of the page commits what its handler says.
func TestMiddlewareThatHolds(t *testing.T) {
	g, store := newGateway(t, nil)
	limiter := g.limiter
	middleware, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Key:     func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil },
		Cost:    func(*http.Request) (int64, error) { return maxTokens, nil }, // at most
		Reserve: &stint.Hold{TTL: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := middleware.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cost := httplimit.Cost(r.Context())
		cost.Set(0)   // else a client that hangs up now pays for all that was held
		cost.Add(40)  // as a stream runs
		cost.Set(120) // what it was in the end; Cancel if nothing ran
	}))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	request.Header.Set("X-User", "ann")
	handler.ServeHTTP(httptest.NewRecorder(), request)
	if got, want := left(t, g, store), [3]int64{5, 99, 999_880}; got != want {
		t.Errorf("%v are left, want %v", got, want)
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

func TestJobs(t *testing.T) {
	limiter, err := stint.New(memstore.New(memstore.Config{}), "jobs", stint.Concurrency(3))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	running, most, done := 0, 0, 0
	jobs := make([]func(context.Context) error, 50)
	for i := range jobs {
		jobs[i] = func(context.Context) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			running--
			done++
			return nil
		}
	}
	runJobs(t.Context(), limiter, "acme", jobs)
	if most > 3 || done != 50 {
		t.Errorf("%d jobs ran at once, %d in all", most, done)
	}
}

// The page's job runner goes on when the store does, however long that was silent.
func TestJobsOutlastAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paused := storetest.NewFaulty(memstore.New(memstore.Config{}))
		store, err := failover.New(paused, failover.Config{Mode: failover.Closed})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limiter, err := stint.New(store, "jobs", stint.Concurrency(3))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(5*time.Second, func() {
			paused.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Block: true} })
		})
		time.AfterFunc(35*time.Second, func() { paused.Inject(nil) })
		var done atomic.Int64
		jobs := make([]func(context.Context) error, 50)
		for i := range jobs {
			jobs[i] = func(ctx context.Context) error {
				defer done.Add(1)
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

var errBusy = errors.New("come again later")

// A download is charged when it has ended, into debt, also if the client has hung up.
func TestDownloads(t *testing.T) {
	store := memstore.New(memstore.Config{Now: still})
	limiter, err := stint.New(store, "bytes", stint.TokenBucket(10_000_000, stint.PerSecond(1_000_000)).WithMaxDebt(100_000_000))
	if err != nil {
		t.Fatal(err)
	}
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

// A reset frees the places of a key, also those whose holds' ids nobody knows. A holder that still runs is denied at its next renewal if others
// have its place.
func TestResetFreesPlaces(t *testing.T) {
	limiter, err := stint.New(memstore.New(memstore.Config{}), "exports", stint.Concurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	reserve := func(id string, want bool) {
		t.Helper()
		if _, d, err := limiter.Reserve(t.Context(), "ann", 1, stint.Hold{ID: id}); err != nil || d.Allowed != want {
			t.Errorf("%s: %v, %v; want it admitted: %t", id, d, err, want)
		}
	}
	reserve("stuck", true)
	reserve("next", false)
	reserve("stuck", true) // a renewal
	if err := limiter.Reset(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	reserve("next", true)
	reserve("stuck", false)
}
