package migrate_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

func TestUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := must.Get(stint.New(newStore(), "api", stint.TokenBucket(100, stint.PerSecond(10))))(t)
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

func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, jobs, began := t.Context(), make([]int, 11), time.Now()
		do := func(int) {}
		limiter := must.Get(stint.New(newStore(), "mail", stint.LeakyBucket(8, stint.PerSecond(50))))(t)
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

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := must.Get(stint.New(newStore(), "api", stint.TokenBucket(1, stint.PerMinute(1))))(t)
		for i, want := range []bool{true, false, true} { // after 0, 30 and 60 seconds
			if decision, err := limiter.Allow(t.Context(), "ann"); err != nil || decision.Allowed != want {
				t.Error(i, decision, err)
			}
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(30 * time.Second) // passes at once
		}
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, began := t.Context(), time.Now()
		var mu sync.Mutex
		var printed []time.Duration
		send := func(string) {
			mu.Lock()
			defer mu.Unlock()
			printed = append(printed, time.Since(began))
		}
		limiter := must.Get(stint.New(newStore(), "printer", stint.LeakyBucket(5, stint.PerSecond(1))))(t)
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
		var pages sync.WaitGroup
		var refused atomic.Int64
		for range 6 {
			pages.Go(func() {
				if !output("a page") {
					refused.Add(1)
				}
			})
			synctest.Wait() // until it sleeps, so that they come one after the other
		}
		pages.Wait()
		if refused.Load() != 1 || len(printed) != 5 || printed[4] != 4*time.Second {
			t.Errorf("printed after %s, %d refused", printed, refused.Load())
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
		ours := must.Get(stint.New(newStore(), "api", stint.TokenBucket(2, stint.PerSecond(1))))(t)
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
