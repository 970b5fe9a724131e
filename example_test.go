package stint_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
)

// example makes a limiter whose clock stands still, so that the output is the same
// at every run.
func example(limits ...stint.Limit) *stint.Limiter {
	still := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	limiter, err := stint.New(memstore.New(memstore.Config{Now: still}), "api", limits...)
	if err != nil {
		fmt.Println(err)
	}
	return limiter
}

func ExampleLimiter_Allow() {
	limiter := example(stint.TokenBucket(2, stint.PerSecond(10)))
	for range 3 {
		d, err := limiter.Allow(context.Background(), "user:42")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.Allowed, "remaining", d.Remaining, "retry after", d.RetryAfter)
	}
	// Output:
	// true remaining 1 retry after 0s
	// true remaining 0 retry after 0s
	// false remaining 0 retry after 100ms
}

// A request holds a place and what it may cost, and says at its end what it was.
func ExampleLimiter_Reserve() {
	limiter := example(stint.Concurrency(1).Named("places").WithCost(1), stint.SlidingWindowCounter(1000, time.Hour).Named("tokens"))
	ctx := context.Background()
	hold, _, err := limiter.Reserve(ctx, "user:42", 600, stint.Hold{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, d, err := limiter.Reserve(ctx, "user:42", 100, stint.Hold{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("another:", d.Allowed, "by", limiter.Policy().Limit(int(d.Index)).Name)
	end, err := hold.Commit(ctx, 250)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("tokens charged after the fact:", end.Applied)
	// Output:
	// another: false by places
	// tokens charged after the fact: -350
}

func ExampleLimiter_AllowN() {
	limiter := example(stint.SlidingWindowCounter(100, time.Minute))
	d, err := limiter.AllowN(context.Background(), "user:42", 30)
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 70 <nil>
}

// A policy of several limits admits when all of them do.
func ExampleNew() {
	limiter := example(
		stint.SlidingWindowLog(10, time.Minute).Named("per minute"),
		stint.SlidingWindowLog(2, 3*time.Second).Named("burst"),
	)
	for range 3 {
		d, _ := limiter.Allow(context.Background(), "phone:7")
		fmt.Println(d.Allowed, limiter.Policy().Limit(int(d.Index)).Name, d.RetryAfter)
	}
	// Output:
	// true burst 0s
	// true burst 0s
	// false burst 3s
}

// A leaky bucket hands out turns: hold an admitted request for Delay.
func ExampleLeakyBucket() {
	limiter := example(stint.LeakyBucket(3, stint.PerSecond(5)))
	for range 4 {
		d, _ := limiter.Allow(context.Background(), "printer")
		fmt.Println(d.Allowed, d.Delay)
	}
	// Output:
	// true 0s
	// true 200ms
	// true 400ms
	// false 0s
}

func ExampleLimiter_Wait() {
	limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(1, stint.Every(time.Millisecond)))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 3 {
		d, err := limiter.Wait(ctx, "user:42")
		fmt.Println(d.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
}

func ExampleLimiter_WaitN() {
	limiter := example(stint.TokenBucket(5, stint.PerSecond(1)))
	_, err := limiter.WaitN(context.Background(), "user:42", 6)
	fmt.Println(err)
	// Output: stint: the cost is above the limit itself
}

func ExampleLimiter_Peek() {
	limiter := example(stint.FixedWindow(3, time.Minute))
	for range 2 {
		d, _ := limiter.Peek(context.Background(), "user:42")
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 3
	// true 3
}

func ExampleLimiter_Reset() {
	limiter := example(stint.CalendarWindow(1, stint.CalendarDay, "Europe/Berlin"))
	ctx := context.Background()
	d, _ := limiter.Allow(ctx, "user:42")
	fmt.Println(d.Remaining, "until midnight in Berlin:", d.ResetAfter)
	_ = limiter.Reset(ctx, "user:42")
	d, _ = limiter.Peek(ctx, "user:42")
	fmt.Println(d.Remaining)
	// Output:
	// 0 until midnight in Berlin: 23h0m0s
	// 1
}

// The cost of a request may be known only when its work is done.
func ExampleLimiter_Settle() {
	limiter := example(stint.TokenBucket(1000, stint.PerMinute(1000)))
	ctx := context.Background()
	d, _ := limiter.AllowN(ctx, "model tokens:42", 200) // an estimate
	fmt.Println("estimated 200, remaining", d.Remaining)
	d, _ = limiter.Settle(ctx, "model tokens:42", 1050) // it used more
	fmt.Println("charged", d.Applied, "remaining", d.Remaining)
	d, _ = limiter.Allow(ctx, "model tokens:42")
	fmt.Println("allowed", d.Allowed, "retry after", d.RetryAfter)
	d, _ = limiter.Settle(ctx, "model tokens:42", -500)
	fmt.Println("refunded", -d.Applied, "remaining", d.Remaining)
	// Output:
	// estimated 200, remaining 800
	// charged 1050 remaining 0
	// allowed false retry after 15.06s
	// refunded 500 remaining 250
}

func ExampleDecision_String() {
	limiter := example(stint.TokenBucket(2, stint.PerMinute(1)))
	for range 3 {
		d, err := limiter.Allow(context.Background(), "user:123")
		fmt.Println(d, err)
	}
	d, err := limiter.Peek(context.Background(), "user:123")
	fmt.Println(d.At, err)
	// Output:
	// allowed, 1 of 2 left <nil>
	// allowed, 0 of 2 left <nil>
	// denied, 0 of 2 left, retry after 1m0s <nil>
	// 2026-01-01T00:00:00.000000Z <nil>
}

// A client that is denied 20 times within 10 minutes is denied for the rest of them.
func ExampleLimit_OfDenials() {
	store := memstore.New(memstore.Config{})
	limiter, err := stint.New(store, "login",
		stint.FixedWindow(5, time.Minute),
		stint.FixedWindow(20, 10*time.Minute).FromFirst().OfDenials().Named("block"))
	if err != nil {
		fmt.Println(err)
		return
	}
	var last stint.Decision
	for range 5 + 5 + 20 { // two windows of the first limit may be met
		if last, err = limiter.Allow(context.Background(), "192.0.2.1"); err != nil {
			fmt.Println(err)
			return
		}
	}
	limit := limiter.Policy().Limit(int(last.Index))
	fmt.Println(last.Allowed, limit.Name, stint.ReasonOf(limit, &last, 1))
	// Output: false block blocked
}
