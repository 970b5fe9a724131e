package bench

import (
	"context"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

func newStintSubject(tb testing.TB, q quota, _ int) subject {
	return newStint(tb, stint.TokenBucket(q.permits, stint.Per(q.refill, q.period)))
}

// newStint is a limiter of one limit on a memory store with the default
// configuration.
func newStint(tb testing.TB, limit stint.Limit) subject {
	l := newStintLimiter(tb, limit)
	ctx := context.Background()
	permits := min(limit.Capacity, fillPermits)
	return subject{
		take: func(key string) (bool, error) {
			d, err := l.Allow(ctx, key)
			return d.Allowed, err
		},
		fill: func(key string) error {
			_, err := l.AllowN(ctx, key, permits)
			return err
		},
		held: func(key string) (bool, error) {
			d, err := l.Peek(ctx, key)
			return d.Remaining < d.Limit, err
		},
	}
}

func newStintLimiter(tb testing.TB, limit stint.Limit) *stint.Limiter {
	tb.Helper()
	return newLimiterOn(tb, memstore.Config{}, limit)
}

func newLimiterOn(tb testing.TB, config memstore.Config, limit stint.Limit) *stint.Limiter {
	tb.Helper()
	return must.Get(stint.New(memstore.New(config), "test", limit))(tb)
}
