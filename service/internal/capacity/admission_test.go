package capacity

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

func named(client string) func() string { return func() string { return client } }

// enter has a client's work begin.
func enter(t *testing.T, a *Admission, cost int64, client string) *Ticket {
	t.Helper()
	work := must.Get(a.Enter(t.Context(), cost, named(client)))(t)
	return &work
}

// A client that asks for little does not wait behind one that asks for much, nor behind however many do, also with its
// second request and those after it while none of theirs has ended.
func TestTurnsAreFair(t *testing.T) {
	for asks, want := range map[string]string{ // clients and their costs, of which no two heavy ones fit together
		"heavy 1000, heavy 1000, heavy 1000, heavy 1000, heavy 1000, light 501, other 600": "light other heavy heavy heavy heavy heavy",
		"heavy0 1000, heavy1 1000, heavy2 1000, light 1, light 1, light 1":                 "light light light heavy0 heavy1 heavy2",
	} {
		synctest.Test(t, func(t *testing.T) {
			a := NewAdmission(1000)
			active := enter(t, a, 1000, "heavy")
			var mu sync.Mutex
			var order []string
			for ask := range strings.SplitSeq(asks, ", ") {
				var client string
				var cost int64
				must.Get(fmt.Sscan(ask, &client, &cost))(t)
				go func() {
					work, err := a.Enter(t.Context(), cost, named(client))
					if err != nil {
						return
					}
					mu.Lock()
					order = append(order, client)
					mu.Unlock()
					work.Leave()
				}()
				synctest.Wait()
			}
			active.Leave()
			synctest.Wait()
			if got := strings.Join(order, " "); got != want {
				t.Errorf("after %s: %s, want %s", asks, got, want)
			}
			if n := a.active.Load(); n != 0 {
				t.Errorf("%d operations are under way at the end", n)
			}
		})
	}
}

// Clients that ask for more than there is get the same, whichever asks for more, and what a client is refused it does
// not pay for: it has all its turns when it asks for little again.
func TestRefusedWorkIsNotPaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(1)
		var begun [2]atomic.Int64
		ask := func(client int, every, length time.Duration) {
			for end := time.Now().Add(length); time.Now().Before(end); <-time.After(every) {
				go func() {
					work, err := a.Enter(t.Context(), 1, named(fmt.Sprint(client)))
					if err != nil {
						return
					}
					begun[client].Add(1)
					<-time.After(time.Millisecond)
					work.Leave()
				}()
			}
		}
		go ask(0, 501*time.Microsecond, 3*time.Second)
		ask(1, 100*time.Microsecond, 2*time.Second)
		if n := begun[1].Swap(0); n < 800 || n > 1200 {
			t.Errorf("%d of 2000 turns are of the client that asks for ten times what there is; want half of them", n)
		}
		ask(1, 10*time.Millisecond, time.Second)
		if n := begun[1].Load(); n < 90 {
			t.Errorf("%d of 100 requests of a client that asks for little have a turn", n)
		}
		<-time.After(time.Second) // until all are answered
	})
}

// Nor does it pay for what it gave up waiting for.
func TestWorkThatGaveUpIsNotPaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(1000)
		active := enter(t, a, 1000, "heavy")
		order := make(chan string, 16)
		ask := func(client string, cost int64) {
			if work, err := a.Enter(t.Context(), cost, named(client)); err == nil {
				order <- client
				work.Leave()
			}
		}
		for range 10 {
			go ask("heavy", 1000)
		}
		<-time.After(admissionWait / 2)
		go ask("light", 600)
		<-time.After(admissionWait * 3 / 4)
		go ask("heavy", 500)
		synctest.Wait()
		active.Leave()
		if first, second := <-order, <-order; first != "heavy" || second != "light" {
			t.Errorf("%s goes before %s", first, second)
		}
	})
}

// What does not get its turn in time is refused, and so is the heaviest when too many wait.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(1000)
		active := enter(t, a, 1000, "heavy")
		defer active.Leave()
		if _, err := a.Enter(t.Context(), 1, named("light")); !errors.Is(err, stint.ErrOverloaded) {
			t.Errorf("nothing ended: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.Enter(ctx, 1, named("light")); !errors.Is(err, context.Canceled) || errors.Is(err, stint.ErrOverloaded) {
			t.Errorf("a request that has left: %v", err)
		}
		refused := make(chan string, maxWaiting)
		for range maxWaiting {
			go func() {
				if _, err := a.Enter(t.Context(), 5, named("heavy")); err != nil {
					refused <- "heavy"
				}
			}()
		}
		synctest.Wait()
		if len(refused) > 0 {
			t.Error("refused although there was room")
		}
		go func() {
			if _, err := a.Enter(t.Context(), 5, named("light")); err != nil {
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
		a := NewAdmission(10)
		active := enter(t, a, 10, "heavy")
		defer active.Leave()
		var refused [2]atomic.Int64
		ask := func(n int, cost int64, client string, to *atomic.Int64) {
			for range n {
				go func() {
					if _, err := a.Enter(t.Context(), cost, named(client)); err != nil {
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
	a := NewAdmission(10)
	active := enter(t, a, 10, "heavy")
	defer active.Leave()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 4 { // as long as somebody waits, not all are forgotten at once
		go func() {
			for t.Context().Err() == nil {
				_, _ = a.Enter(t.Context(), 10, named("waits"))
			}
		}()
	}
	for a.waits.Load() < 4 {
		runtime.Gosched()
	}
	for i := range 2 * mostClients {
		if _, err := a.Enter(gone, 1, named(fmt.Sprint(i))); err == nil {
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
	a := NewAdmission(most)
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			for i := range asks {
				work, err := a.Enter(t.Context(), int64(1+(client*i)%100), named(fmt.Sprint(client%7)))
				if err != nil {
					continue
				}
				if n := a.active.Load(); n > most {
					t.Errorf("%d operations are under way", n)
				}
				work.Leave()
				work.Leave()
			}
		})
	}
	group.Wait()
	if a.active.Load() != 0 || a.waits.Load() != 0 || len(a.waiting) != 0 {
		t.Errorf("left: %d under way, %d wait", a.active.Load(), a.waits.Load())
	}
}
