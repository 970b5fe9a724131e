package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// newHolding is a middleware that holds for one client, and what is left of its limits.
func newHolding(t *testing.T, next http.Handler, hold stint.Hold, limits ...stint.Limit) (http.Handler, func() []int64) {
	t.Helper()
	store := memstore.New(memstore.Config{Now: still})
	limiter := limiterOn(t, store, limits...)
	key := func(*http.Request) (string, error) { return "k", nil }
	cost := func(r *http.Request) (int64, error) {
		if r.URL.Path == "/health" {
			return 0, nil
		}
		return 10, nil
	}
	h := wrap(t, httplimit.Config{
		Limiter: limiter, Key: key, Cost: cost, Reserve: &hold,
		Failed: func(_ *http.Request, err error) { t.Error(err) },
	}, next)
	return h, func() (left []int64) {
		each := make([]stint.Outcome, len(limits))
		op := stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: "k", Policy: limiter.Policy(), Permits: 1}, Each: each}
		must.Get(store.Decide(t.Context(), op))(t)
		for i := range each {
			left = append(left, each[i].Remaining)
		}
		return left
	}
}

// What a request holds is committed with what its handler says it cost, whatever becomes of the handler.
func TestMiddlewareCommitsWhatRan(t *testing.T) {
	hangUp := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx
	}
	for name, test := range map[string]struct {
		handler func(ctx context.Context)
		left    string
	}{
		"says nothing":    {func(context.Context) {}, "[2 99 990]"},
		"says its cost":   {func(ctx context.Context) { httplimit.Cost(ctx).Set(3) }, "[2 99 997]"},
		"costs nothing":   {func(ctx context.Context) { httplimit.Cost(ctx).Set(0) }, "[2 99 1000]"},
		"adds up":         {func(ctx context.Context) { httplimit.Cost(ctx).Add(3); httplimit.Cost(ctx).Add(4) }, "[2 99 993]"},
		"costs more":      {func(ctx context.Context) { httplimit.Cost(ctx).Set(30) }, "[2 99 970]"},
		"never ran":       {func(ctx context.Context) { httplimit.Cost(ctx).Cancel() }, "[2 100 1000]"},
		"panics":          {func(ctx context.Context) { httplimit.Cost(ctx).Set(5); panic("no") }, "[2 99 995]"},
		"is left":         {func(ctx context.Context) { hangUp(ctx); httplimit.Cost(ctx).Set(6) }, "[2 99 994]"},
		"ends it itself":  {func(ctx context.Context) { _, _ = httplimit.Cost(ctx).Hold().Commit(ctx, 8) }, "[2 99 992]"},
		"grows, says not": {func(ctx context.Context) { _, _ = httplimit.Cost(ctx).Hold().Grow(ctx, 50) }, "[2 99 950]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { test.handler(r.Context()) })
				h, left := newHolding(t, next, stint.Hold{},
					stint.Concurrency(2).Named("places").WithCost(1), stint.FixedWindow(100, 24*time.Hour).FromFirst().Named("requests").WithCost(1),
					stint.FixedWindow(1000, 24*time.Hour).FromFirst().Named("tokens"))
				get(t.Context(), h, "/")
				if got := fmt.Sprint(left()); got != test.left {
					t.Errorf("%s are left, want %s", got, test.left)
				}
			})
		})
	}
}

// As many requests run at once as there are places. The others are told to come again in a second.
func TestMiddlewareOfPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/health" {
				<-finish
			}
		})
		h, left := newHolding(t, next, stint.Hold{TTL: 30 * time.Second},
			stint.Concurrency(2).Named("c").WithCost(1), stint.FixedWindow(3, 24*time.Hour).FromFirst().Named("w").WithCost(1))
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() { get(t.Context(), h, "/") })
		}
		synctest.Wait()
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time: the holds are renewed
		w := get(t.Context(), h, "/")
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("a third gets %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
		if got, want := w.Header().Get("Ratelimit-Policy"), `"c";q=2;qu="concurrent-requests", "w";q=3;w=86400`; got != want {
			t.Errorf("RateLimit-Policy: %s, want %s", got, want)
		}
		if got := w.Header().Get("Ratelimit"); !strings.HasPrefix(got, `"c";r=0;t=1, "w";r=1;`) {
			t.Errorf("RateLimit: %s", got)
		}
		if w := get(t.Context(), h, "/health"); w.Code != http.StatusOK {
			t.Errorf("a request that costs nothing gets %d", w.Code)
		}
		close(finish)
		running.Wait()
		if got := fmt.Sprint(left()); got != "[2 1]" {
			t.Errorf("%s are left", got)
		}
	})
}

// A client that leaves while its request is decided keeps no place.
func TestMiddlewareOfAClientThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(memstore.Config{Now: still}))
		store.Inject(func(call storetest.Call) storetest.Fault {
			lost := call.Ops[0].Verb == stint.VerbReserve
			return storetest.Fault{Block: lost, After: lost}
		})
		limiter := limiterOn(t, store, stint.Concurrency(1))
		key := func(*http.Request) (string, error) { return "k", nil }
		h := wrap(t, httplimit.Config{Limiter: limiter, Key: key, Reserve: &stint.Hold{TTL: time.Hour}}, http.NotFoundHandler())
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if w := get(ctx, h, "/"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("it gets %d", w.Code)
		}
		synctest.Wait()
		if live, err := limiter.Holds(t.Context(), "k"); err != nil || len(live) > 0 {
			t.Errorf("%v are held; %v", live, err)
		}
	})
}

// Retry-After heeds a request's other limits, also where no other field is asked for.
func TestRetryAfterAloneOfPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limiterOn(t, memstore.New(memstore.Config{}),
			stint.FixedWindow(1, 20*time.Second), stint.Concurrency(1).WithCost(1))
		limits := must.Get(httplimit.New(httplimit.Config{
			Limiter: limiter, Reserve: &stint.Hold{TTL: 30 * time.Second}, Fields: httplimit.RetryAfter,
		}))(t)
		running := limits.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			denied := get(r.Context(), limits.Wrap(http.NotFoundHandler()), "/")
			if got := denied.Header().Get("Retry-After"); got != "20" {
				t.Errorf("Retry-After %q, want 20", got)
			}
		}))
		get(t.Context(), running, "/")
	})
}

// WriteHeaders, too, tells who lacks a place to come again in a second, wherever the limit is among others.
func TestWriteHeadersOfPlaces(t *testing.T) {
	limiter := limiter(t,
		stint.FixedWindow(100, 24*time.Hour).FromFirst().Named("tokens"), stint.Concurrency(1).WithCost(1))
	each := make([]stint.Outcome, 2)
	for _, want := range []string{"", "1"} {
		_, d := must.Two(limiter.Reserve(t.Context(), "k", 10, stint.Hold{TTL: 30 * time.Second, Each: each}))(t)
		for _, each := range [][]stint.Outcome{nil, each} {
			header := http.Header{}
			httplimit.WriteHeaders(header, limiter.Policy(), d, each...)
			if got := header.Get("Retry-After"); got != want {
				t.Errorf("with %d outcomes Retry-After is %q, want %q", len(each), got, want)
			}
			if rate := header.Get("Ratelimit"); want != "" && each != nil && !strings.HasSuffix(rate, `"default";r=0;t=1`) {
				t.Errorf("RateLimit: %s", rate)
			}
		}
	}
}

// Outside of a request that holds, nothing is held, and a cost has no effect.
func TestCostOfNobody(t *testing.T) {
	cost := httplimit.Cost(t.Context())
	cost.Set(1)
	cost.Cancel()
	if cost.Hold() != nil {
		t.Error("something is held for nobody")
	}
}

// By rules, a handler says the cost that its request could name.
func TestRulesMiddlewareHolds(t *testing.T) {
	limiter := standing(t, rules.Rule{
		ID: "llm", Scope: []string{rules.Global}, Costs: []rules.Cost{{}, {Attribute: "tokens", Permits: 100}},
		Limits: []stint.Limit{stint.Concurrency(1).Named("places"), stint.FixedWindow(160, 24*time.Hour).FromFirst().Named("tokens")},
	})
	m := must.Get(httplimit.New(httplimit.Config{Rules: limiter, Reserve: &stint.Hold{}}))(t)
	var handler http.Handler
	depth := 0
	handler = m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if depth++; depth == 1 {
			inner := get(r.Context(), handler, "/")
			if got := inner.Header().Get("Retry-After"); inner.Code != http.StatusTooManyRequests || got != "60" {
				t.Errorf("a second gets %d, Retry-After %q", inner.Code, got) // until the tokens come back
			}
		}
		httplimit.Cost(r.Context()).Set(30)
		w.WriteHeader(http.StatusNoContent)
	}))
	for i, want := range []int{204, 204, 204, 429} { // 30 of 160 for each, and 100 before
		if w := get(t.Context(), handler, "/"); w.Code != want {
			t.Errorf("request %d gets %d, want %d", i, w.Code, want)
		}
	}
}
