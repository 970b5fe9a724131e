package migrate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
)

func TestUsersByTime(t *testing.T) {
	var mu sync.Mutex
	limiters := map[string]*rate.Limiter{} // grows for ever
	allow := func(user string) bool {
		mu.Lock()
		defer mu.Unlock()
		if limiters[user] == nil {
			limiters[user] = rate.NewLimiter(10, 100)
		}
		return limiters[user].Allow()
	}
	for range 100 {
		if !allow("ann") {
			t.Fatal("denied within the burst")
		}
	}
}

func TestUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(100, stint.PerSecond(10)))
		if err != nil {
			t.Fatal(err)
		}
		allow := func(ctx context.Context, user string) bool {
			decision, err := limiter.Allow(ctx, user)
			return err == nil && decision.Allowed
		}
		for i := range 101 {
			if allowed := allow(t.Context(), "ann"); allowed != (i < 100) {
				t.Fatalf("request %d: allowed %v", i, allowed)
			}
		}
	})
}

func TestWorkerByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, jobs, began := t.Context(), make([]int, 11), time.Now()
		do := func(int) {}
		limiter := rate.NewLimiter(50, 1)
		for _, job := range jobs {
			if err := limiter.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			do(job)
		}
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("11 jobs took %s", took)
		}
	})
}

func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, jobs, began := t.Context(), make([]int, 11), time.Now()
		do := func(int) {}
		limiter, err := stint.New(memstore.New(memstore.Config{}), "mail", stint.LeakyBucket(8, stint.PerSecond(50)))
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range jobs {
			if _, err := limiter.Wait(ctx, "smtp.example.com"); err != nil {
				t.Fatal(err)
			}
			do(job)
		}
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("11 jobs took %s", took)
		}
	})
}

func TestModelByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, estimate := rate.NewLimiter(rate.Every(time.Minute/1000), 1000), 200
		ask := func(ctx context.Context, prompt string) (string, error) {
			if !limiter.AllowN(time.Now(), estimate) {
				return "", errBusy
			}
			answer, tokens, err := complete(ctx, prompt)
			limiter.ReserveN(time.Now(), tokens-estimate) // above the burst it charges nothing
			return answer, err
		}
		if answer, err := ask(t.Context(), "is it?"); answer != "yes" || err != nil {
			t.Errorf("%q, %v", answer, err)
		}
		if _, err := ask(t.Context(), "is it?"); !errors.Is(err, errBusy) {
			t.Errorf("%v; want %v", err, errBusy)
		}
		if limiter.ReserveN(time.Now(), 1001).OK() {
			t.Error("more than the burst was charged")
		}
	})
}

func TestClockByTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limiter := rate.NewLimiter(rate.Every(time.Minute), 1)
	for i, want := range []bool{true, false, true} { // after 0, 30 and 60 seconds
		if limiter.AllowN(now.Add(time.Duration(i)*30*time.Second), 1) != want {
			t.Error(i)
		}
	}
}

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(1, stint.PerMinute(1)))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, false, true} { // after 0, 30 and 60 seconds
			if decision, err := limiter.Allow(t.Context(), "ann"); err != nil || decision.Allowed != want {
				t.Error(i, decision, err)
			}
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(30 * time.Second) // passes at once
		}
	})
}

// send prints a page.
func (p *printer) send(string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = append(p.at, time.Now())
}

// A printer knows when it printed pages.
type printer struct {
	mu sync.Mutex
	at []time.Time
}

// printAll prints so many pages at once, and returns how long after that each came, and how many were refused.
func printAll(pages int, printed *printer, output func() bool) (delays []time.Duration, refused int) {
	began, results := time.Now(), make(chan bool)
	for range pages {
		go func() { results <- output() }()
		synctest.Wait() // until it sleeps, so that they come one after the other
	}
	for range pages {
		if !<-results {
			refused++
		}
	}
	for _, at := range printed.at {
		delays = append(delays, at.Sub(began))
	}
	return delays, refused
}

func TestDelayByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var printed printer
		send := printed.send
		limiter := rate.NewLimiter(1, 1)
		output := func(page string) bool {
			reservation := limiter.Reserve()
			if !reservation.OK() { // more than the burst, which is never allowed
				return false
			}
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(reservation.Delay())
			send(page)
			return true
		}
		delays, refused := printAll(6, &printed, func() bool { return output("a page") })
		if refused != 0 || len(delays) != 6 || delays[5] != 5*time.Second {
			t.Errorf("printed after %s, %d refused", delays, refused)
		}
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var printed printer
		ctx, send := t.Context(), printed.send
		limiter, err := stint.New(memstore.New(memstore.Config{}), "printer", stint.LeakyBucket(5, stint.PerSecond(1)))
		if err != nil {
			t.Fatal(err)
		}
		output := func(page string) bool {
			decision, err := limiter.Allow(ctx, "printer")
			if err != nil || !decision.Allowed { // 5 pages are queued
				return false
			}
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(decision.Delay)
			send(page)
			return true
		}
		delays, refused := printAll(6, &printed, func() bool { return output("a page") })
		if refused != 1 || len(delays) != 5 || delays[4] != 4*time.Second {
			t.Errorf("printed after %s, %d refused", delays, refused)
		}
	})
}

// Reserve takes tokens of the future; Allow of stint takes what is there, and nothing if it denies.
func TestNegativeByTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limiter := rate.NewLimiter(1, 1)
	for want := range 3 {
		if delay := limiter.ReserveN(now, 1).DelayFrom(now); delay != time.Duration(want)*time.Second {
			t.Errorf("reservation %d has to wait %s", want, delay)
		}
	}
	if tokens := limiter.TokensAt(now); tokens != -2 {
		t.Errorf("%v tokens; want -2", tokens)
	}
	if limiter.AllowN(now.Add(2*time.Second), 1) || !limiter.AllowN(now.Add(3*time.Second), 1) {
		t.Error("it is not allowed again after 3 s")
	}
}

// In x/time/rate a caller that waits has its tokens already. In stint it has none until it may go on.
func TestOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, began := t.Context(), time.Now()
		theirs := rate.NewLimiter(1, 2)
		ours, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(2, stint.PerSecond(1)))
		if err != nil {
			t.Fatal(err)
		}
		wait := func(ctx context.Context, n int64) (d time.Duration, err error) {
			_, err = ours.WaitN(ctx, "ann", n)
			return time.Since(began), err
		}
		if _, err := wait(ctx, 2); err != nil || theirs.WaitN(ctx, 2) != nil {
			t.Fatal("the bucket was not full")
		}
		late := make(chan time.Duration, 2) // theirs, ours
		go func() {
			if err := theirs.WaitN(ctx, 2); err != nil {
				t.Error(err)
			}
			late <- time.Since(began)
		}()
		go func() {
			d, err := wait(ctx, 2)
			if err != nil {
				t.Error(err)
			}
			late <- d
		}()
		//nolint:forbidigo // in a synctest bubble
		time.Sleep(1500 * time.Millisecond)
		if decision, err := ours.Allow(ctx, "ann"); theirs.Allow() || err != nil || !decision.Allowed {
			t.Errorf("%v, %v: the one who waits for two permits is not overtaken", decision, err)
		}
		if first, second := <-late, <-late; first != 2*time.Second || second != 3*time.Second {
			t.Errorf("x/time/rate waited %s, stint %s", first, second)
		}
	})
}

// A wait that is longer than the context lasts fails at once, and so does one that never ends.
func TestHopelessWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began, theirs := time.Now(), rate.NewLimiter(rate.Every(2*time.Second), 1)
		ours, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(1, stint.Every(2*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ours.Wait(ctx, "ann"); err != nil || theirs.Wait(ctx) != nil {
			t.Fatal("the bucket was not full")
		}
		if _, err := ours.Wait(ctx, "ann"); theirs.Wait(ctx) == nil || !errors.Is(err, stint.ErrDeadline) {
			t.Errorf("a wait beyond the deadline: %v", err)
		}
		if _, err := ours.WaitN(ctx, "ann", 2); theirs.WaitN(ctx, 2) == nil || !errors.Is(err, stint.ErrNever) {
			t.Errorf("a wait for more than the bucket holds: %v", err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("that took %s", took)
		}
	})
}

// To ask for nothing is allowed there, and an error here.
func TestNothingAsked(t *testing.T) {
	ours, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(1, stint.PerSecond(1)))
	if err != nil {
		t.Fatal(err)
	}
	if !rate.NewLimiter(1, 1).AllowN(time.Now(), 0) {
		t.Error("x/time/rate denies it")
	}
	if _, err := ours.AllowN(t.Context(), "ann", 0); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("%v; want ErrInvalid", err)
	}
}
