package migrate_test

import (
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/goredis"
)

func TestRedisRate(t *testing.T) {
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr()})
	defer func() { _ = client.Close() }()

	limiter := redis_rate.NewLimiter(client)
	result := must.Get(limiter.Allow(ctx, "user:42", redis_rate.PerMinute(10)))(t)
	if result.Allowed == 0 {
		t.Log("try again in", result.RetryAfter)
	}
	if result.Allowed != 1 {
		t.Errorf("admitted are %d permits", result.Allowed)
	}
}

func TestOnGoRedis(t *testing.T) {
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr()})
	defer func() { _ = client.Close() }()

	store := must.Get(goredis.Open(client, goredis.Config{Failover: failover.Config{Timeout: time.Minute}}))(t)
	if err := store.Ready(ctx); err != nil { // connected, so that the first decision takes one round trip
		log.Print(err) // and not log.Fatal: the store admits meanwhile, and goes on connecting
	}
	defer store.Close()
	limiter := must.Get(stint.New(store, "api", stint.TokenBucket(10, stint.PerMinute(10))))(t)
	decision := must.Get(limiter.Allow(ctx, "user:42"))(t)
	if !decision.Allowed {
		t.Log("try again in", decision.RetryAfter)
	}
	if !decision.Allowed || decision.Remaining != 9 {
		t.Errorf("%v; want 9 left", decision)
	}
}

func TestTwoByRedisRate(t *testing.T) {
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr()})
	defer func() { _ = client.Close() }()
	limiter, user := redis_rate.NewLimiter(client), "ann"
	if spent, err := limiter.AllowN(ctx, "hour:"+user, redis_rate.PerHour(1000), 1000); err != nil || spent.Allowed != 1000 {
		t.Fatal(spent, err)
	}
	perSecond := must.Get(limiter.Allow(ctx, "second:"+user, redis_rate.PerSecond(10)))(t)
	perHour := must.Get(limiter.Allow(ctx, "hour:"+user, redis_rate.PerHour(1000)))(t)
	allowed := perSecond.Allowed > 0 && perHour.Allowed > 0
	if allowed || perSecond.Remaining > 9 {
		t.Errorf("allowed %v, %d of the second are left; want a denial that took one", allowed, perSecond.Remaining)
	}
}

func TestTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store, user := t.Context(), newStore(), "ann"
		limiter, err := stint.New(store, "api",
			stint.TokenBucket(10, stint.PerSecond(10)).Named("second"), stint.TokenBucket(1000, stint.PerHour(1000)).Named("hour"))
		if err != nil {
			t.Fatal(err)
		}
		decision := must.Get(limiter.Allow(ctx, user))(t)
		if !decision.Allowed || decision.Remaining != 9 {
			t.Fatal(decision)
		}
		each, denied := make([]stint.Outcome, 2), 0
		for range 200 { // until the hour denies, and then some more
			decision := must.Get(limiter.Ask(ctx, user, stint.Query{N: 10, Each: each}))(t)
			if !decision.Allowed && each[1].Remaining < 10 {
				denied++
			}
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(time.Second)
		}
		if denied < 50 || each[0].Remaining != 10 {
			t.Errorf("%d denials, %d left of the second; want 10, as denials take nothing", denied, each[0].Remaining)
		}
	})
}

// A burst of GCRA is the capacity of a bucket.
func TestBurst(t *testing.T) {
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr()})
	defer func() { _ = client.Close() }()
	theirs := redis_rate.NewLimiter(client)
	ours := must.Get(stint.New(newStore(), "api", stint.TokenBucket(3, stint.PerDay(1))))(t)
	for i := range 4 {
		limit := redis_rate.Limit{Rate: 1, Period: 24 * time.Hour, Burst: 3}
		result := must.Get(theirs.Allow(ctx, "ann", limit))(t)
		decision := must.Get(ours.Allow(ctx, "ann"))(t)
		if allowed := i < 3; (result.Allowed == 1) != allowed || decision.Allowed != allowed {
			t.Errorf("request %d: %+v and %v", i, result, decision)
		}
		if i < 3 && (result.RetryAfter != -1 || decision.RetryAfter != 0) {
			t.Errorf("an admitted request: %s and %s", result.RetryAfter, decision.RetryAfter)
		}
	}
	// 0 looks, and says 0 whether something is left or not.
	if look, err := theirs.AllowN(ctx, "ben", redis_rate.PerHour(10), 0); err != nil || look.Allowed != 0 || look.Remaining != 10 {
		t.Errorf("%+v, %v", look, err)
	}
	if look, err := ours.Peek(ctx, "ben"); err != nil || !look.Allowed || look.Remaining != 3 {
		t.Errorf("%v, %v", look, err)
	}
}

// To take what is left, ask for it.
func TestAtMost(t *testing.T) {
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr()})
	defer func() { _ = client.Close() }()
	if result, err := redis_rate.NewLimiter(client).AllowAtMost(ctx, "ann", redis_rate.PerHour(10), 15); err != nil || result.Allowed != 10 {
		t.Errorf("%+v, %v", result, err)
	}
	limiter := must.Get(stint.New(newStore(), "api", stint.TokenBucket(10, stint.PerHour(10))))(t)
	decision, err := limiter.AllowN(ctx, "ann", 15)
	if err != nil || decision.Allowed || decision.Remaining != 10 {
		t.Fatal(decision, err)
	}
	if decision, err = limiter.AllowN(ctx, "ann", decision.Remaining); err != nil || !decision.Allowed || decision.Remaining != 0 {
		t.Error(decision, err)
	}
}

// Another limit on the same key: redis_rate keeps when all is there again, and stint what is left.
func TestAnotherLimit(t *testing.T) {
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr()})
	defer func() { _ = client.Close() }()
	theirs := redis_rate.NewLimiter(client)
	ours := must.Get(stint.New(newStore(), "api", stint.TokenBucket(10, stint.PerDay(10))))(t)
	perDay := func(n int) redis_rate.Limit { return redis_rate.Limit{Rate: n, Burst: n, Period: 24 * time.Hour} }
	if result, err := theirs.AllowN(ctx, "ann", perDay(10), 5); err != nil || result.Remaining != 5 {
		t.Fatal(result, err)
	}
	if decision, err := ours.AllowN(ctx, "ann", 5); err != nil || decision.Remaining != 5 {
		t.Fatal(decision, err)
	}
	if result, err := theirs.Allow(ctx, "ann", perDay(100)); err != nil || result.Remaining != 49 {
		t.Errorf("redis_rate: %+v, %v", result, err)
	}
	larger := must.Get(ours.With(stint.TokenBucket(100, stint.PerDay(100))))(t)
	if decision, err := larger.Allow(ctx, "ann"); err != nil || decision.Remaining != 4 {
		t.Errorf("stint: %v, %v", decision, err)
	}
}
