package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

func named(client string) func() string { return func() string { return client } }

// enter has a client's work begin.
func enter(t *testing.T, a *admission, cost int64, client string) *ticket {
	t.Helper()
	work, err := a.enter(t.Context(), cost, named(client))
	if err != nil {
		t.Fatalf("%s: %v", client, err)
	}
	return &work
}

// begins is the order in which requests begin.
type begins struct {
	mu    sync.Mutex
	order []string
}

func (b *begins) note(client string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order = append(b.order, client)
}

func (b *begins) so() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.order, " ")
}

// A client that asks for little does not wait behind one that asks for much.
func TestTurnsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1000)
		active := enter(t, a, 1000, "heavy")
		var got begins
		ask := func(client string, cost int64) {
			go func() {
				work, err := a.enter(t.Context(), cost, named(client))
				if err != nil {
					return
				}
				got.note(client)
				work.leave()
			}()
			synctest.Wait()
		}
		for range 5 {
			ask("heavy", 1000)
		}
		ask("light", 501) // no two fit together
		ask("other", 600)
		active.leave()
		synctest.Wait()
		if want := "light other heavy heavy heavy heavy heavy"; got.so() != want {
			t.Errorf("%s, want %s", got.so(), want)
		}
		if n := a.active.Load(); n != 0 {
			t.Errorf("%d operations are under way at the end", n)
		}
	})
}

// However many clients ask for much, one that asks for little goes before all of them, also with its second request and those
// after it while none of theirs has ended.
func TestLittleGoesBeforeMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1000)
		active := enter(t, a, 1000, "heavy")
		var got begins
		ask := func(client string, cost int64) {
			go func() {
				work, err := a.enter(t.Context(), cost, named(client))
				if err != nil {
					return
				}
				got.note(client)
				work.leave()
			}()
			synctest.Wait()
		}
		for i := range 3 {
			ask(fmt.Sprint("heavy", i), 1000)
		}
		for range 3 {
			ask("light", 1)
		}
		active.leave()
		synctest.Wait()
		if want := "light light light heavy0 heavy1 heavy2"; got.so() != want {
			t.Errorf("%s, want %s", got.so(), want)
		}
	})
}

// What does not get its turn in time is refused, and so is the heaviest when too many wait.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1000)
		active := enter(t, a, 1000, "heavy")
		defer active.leave()
		if _, err := a.enter(t.Context(), 1, named("light")); !errors.Is(err, stint.ErrOverloaded) {
			t.Errorf("nothing ended: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.enter(ctx, 1, named("light")); !errors.Is(err, context.Canceled) || errors.Is(err, stint.ErrOverloaded) {
			t.Errorf("a request that has left: %v", err)
		}
		refused := make(chan string, maxWaiting)
		for range maxWaiting {
			go func() {
				if _, err := a.enter(t.Context(), 5, named("heavy")); err != nil {
					refused <- "heavy"
				}
			}()
		}
		synctest.Wait()
		if len(refused) > 0 {
			t.Error("refused although there was room")
		}
		go func() {
			if _, err := a.enter(t.Context(), 5, named("light")); err != nil {
				refused <- "light"
			}
		}()
		synctest.Wait()
		if len(refused) != 1 || <-refused != "heavy" {
			t.Error("not the heaviest was refused")
		}
	})
}

// What waits is bounded by its work, too, of which the heaviest client's goes.
func TestWaitingWorkIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(10)
		active := enter(t, a, 10, "heavy")
		defer active.leave()
		var refused [2]atomic.Int64
		ask := func(n int, cost int64, client string, to *atomic.Int64) {
			for range n {
				go func() {
					if _, err := a.enter(t.Context(), cost, named(client)); err != nil {
						to.Add(1)
					}
				}()
			}
			synctest.Wait()
		}
		ask(waitingWork, 10, "heavy", &refused[0])
		if n := refused[0].Load(); n > 0 {
			t.Errorf("%d were refused although there was room", n)
		}
		ask(5, 1, "light", &refused[1])
		if heavy, light := refused[0].Load(), refused[1].Load(); heavy != 1 || light != 0 {
			t.Errorf("%d of the heavy client and %d of the light one were refused", heavy, light)
		}
	})
}

// Clients that come once, and never get a turn, are not remembered without end.
func TestClientsAreForgotten(t *testing.T) {
	a := newAdmission(10)
	active := enter(t, a, 10, "heavy")
	defer active.leave()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 4 { // as long as somebody waits, not all are forgotten at once
		go func() {
			for t.Context().Err() == nil {
				_, _ = a.enter(t.Context(), 10, named("waits"))
			}
		}()
	}
	for a.waits.Load() < 4 {
		runtime.Gosched()
	}
	for i := range 2 * mostClients {
		if _, err := a.enter(gone, 1, named(fmt.Sprint(i))); err == nil {
			t.Fatal("it got a turn")
		}
		a.mu.Lock()
		n := len(a.finish)
		a.mu.Unlock()
		if n > mostClients {
			t.Fatalf("%d clients are remembered", n)
		}
	}
}

// However many ask for however much, no more is under way than may be, everybody is answered, and
// nothing is left in the end.
func TestAdmissionBounds(t *testing.T) {
	const most, clients, asks = 64, 40, 200
	a := newAdmission(most)
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			for i := range asks {
				work, err := a.enter(t.Context(), int64(1+(client*i)%100), named(fmt.Sprint(client%7)))
				if err != nil {
					continue
				}
				if n := a.active.Load(); n > most {
					t.Errorf("%d operations are under way", n)
				}
				work.leave()
				work.leave()
			}
		})
	}
	group.Wait()
	if a.active.Load() != 0 || a.waits.Load() != 0 || len(a.waiting) != 0 {
		t.Errorf("left: %d under way, %d wait", a.active.Load(), a.waits.Load())
	}
}

// Whatever becomes of requests, no work is counted twice or left over.
func TestNoWorkIsLeft(t *testing.T) {
	t.Parallel()
	set, err := rules.Compile([]rules.Rule{{ID: "all", Scope: []string{rules.PerIP}, Match: rules.Match{Paths: []string{"/**"}}, Limits: []stint.Limit{stint.FixedWindow(100, time.Hour)}}}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config := DefaultConfig()
	config.Store, config.Rules, config.HTTP.MaxOperations, config.API.Open = memstore.New(memstore.Config{}), set, 4, true
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for j := range 200 {
				body := `{"method":"GET","path":"/x","ip":"10.0.0.1"}`
				if (i+j)%3 == 0 {
					body = `{"method":"GET","path":"/x","ip":7}`
				}
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, api.PathEvaluate, strings.NewReader(body)))
				if n := s.service.admission.active.Load(); n < 0 || n > 4 {
					t.Errorf("%d operations are under way", n)
				}
			}
		})
	}
	group.Wait()
	if n := s.service.admission.active.Load(); n != 0 {
		t.Errorf("%d operations are under way in the end", n)
	}
}

// A request for which there is no time is answered 503 in every mode but one.
func TestOverloadIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.Store, config.HTTP.MaxOperations = memstore.New(memstore.Config{}), 1
		s, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		active := enter(t, s.service.admission, 1, "somebody")
		defer active.leave()
		for _, r := range []*http.Request{
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, api.PathCheck, nil),
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, api.PathCheck, strings.NewReader(`[{},{}]`)),
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, api.PathRemaining, nil),
		} {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"type":"`+api.ProblemReducedCapacity+`"`) {
				t.Errorf("%s %s: %d %v %s", r.Method, r.URL, w.Code, w.Header(), w.Body)
			}
		}
	})
}
