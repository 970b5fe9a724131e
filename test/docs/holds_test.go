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
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
)

// gateway is the page's LLM gateway, before a model that says a word a line and stops when nobody listens.
type gateway struct {
	limiter *stint.Limiter
	model   func(ctx context.Context, say func(word string) error) error
}

const maxTokens = 500

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hold, decision, err := g.limiter.Reserve(r.Context(), r.Header.Get("X-User"), maxTokens, stint.Hold{TTL: 2 * time.Minute})
	switch {
	case errors.Is(err, stint.ErrInvalid): // no user, for example
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case errors.Is(err, stint.ErrResolved): // if you set Hold.ID: it was used before
		http.Error(w, err.Error(), http.StatusConflict)
		return
	case err != nil:
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	httplimit.WriteHeaders(w.Header(), g.limiter.Policy(), decision)
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
	err = g.model(work, func(word string) error {
		used++
		if _, err := io.WriteString(w, word+"\n"); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	})
	if err != nil {
		log.Print(err)
	}
	if refused = err != nil && used == 0 && work.Err() == nil; refused { // and not because the client hung up
		http.Error(w, "the model refused", http.StatusBadGateway)
	}
}

func newGateway(t *testing.T, model func(context.Context, func(string) error) error) (*gateway, *memstore.Store) {
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
	op := stint.Op{Verb: stint.Peek, Claim: stint.Claim{Key: "ann", Policy: g.limiter.Policy(), Permits: 1}, Each: each}
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
	words := func(n int) func(context.Context, func(string) error) error {
		return func(ctx context.Context, say func(string) error) error {
			for i := range n {
				if err := say(fmt.Sprint("word", i)); err != nil {
					return err
				}
			}
			return ctx.Err()
		}
	}
	g, store := newGateway(t, words(40))
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
	g.model = func(ctx context.Context, say func(string) error) error {
		if err := say("one"); err != nil {
			return err
		}
		<-ctx.Done() // the client hangs up
		return ctx.Err()
	}
	go ask(t, server.URL, func(r io.Reader) { _, _ = r.Read(make([]byte, 1)) })
	<-ended
	if got, want := left(t, g, store), [3]int64{5, 98, 999_959}; got != want {
		t.Errorf("after a client that hung up %v are left, want %v", got, want)
	}
	g.model = func(_ context.Context, say func(string) error) error {
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
	g, store := newGateway(t, func(context.Context, func(string) error) error { return errors.New("not today") })
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

// A sixth stream is denied while five run.
func TestGatewayAtOnce(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	g, _ := newGateway(t, func(context.Context, func(string) error) error {
		begun <- struct{}{}
		<-finish
		return nil
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
		httplimit.Cost(r.Context()).Set(120) // or Add, as a stream runs; Cancel if nothing ran
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
