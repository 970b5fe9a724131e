package memstore

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

// dawn is long after the epoch.
const dawn = stint.Instant(1_790_000_000_000_000)

// still is a clock that stands there.
func still() time.Time { return dawn.Time() }

func policyOf(t *testing.T, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy("", limits...))(t)
}

// TestMovedUnderDecisions has states moved all the time, by rebuilt tables and by
// others that come and go, while many take of them. No admission may be lost or made
// twice.
func TestMovedUnderDecisions(t *testing.T) {
	const keys, capacity = 4, 20_000
	s := New(Config{Now: still})
	limiter := must.Get(stint.New(s, "test", stint.TokenBucket(capacity, stint.PerHour(1))))(t)
	ctx := t.Context()
	var admitted [keys]atomic.Int64
	var done atomic.Bool
	var take, move sync.WaitGroup
	l := &s.plan(limiter.Policy()).limits[0]
	move.Go(func() {
		for i := 0; !done.Load(); i++ {
			shard := s.shard(s.hash(strconv.Itoa(i%keys), l))
			shard.mu.Lock()
			s.rebuild(shard, groupsFor(shard.used+1))
			s.purge(shard, dawn)
			shard.mu.Unlock()
			passing := "passing " + strconv.Itoa(i%5000)
			if _, err := limiter.Allow(ctx, passing); err != nil {
				t.Error(err)
			}
			if err := limiter.Reset(ctx, passing); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		take.Go(func() {
			for i := range keys * capacity {
				d, err := limiter.Allow(ctx, strconv.Itoa(i%keys))
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					admitted[i%keys].Add(1)
				}
			}
		})
	}
	take.Wait()
	done.Store(true)
	move.Wait()
	for key := range admitted {
		if n := admitted[key].Load(); n != capacity {
			t.Errorf("key %d: %d admitted, want %d", key, n, capacity)
		}
	}
}

// TestLimitsWithOneHash: limits of an operation whose states have one hash do not wait for each
// other.
func TestLimitsWithOneHash(t *testing.T) {
	s := New(Config{Now: still})
	claim := stint.Claim{Key: "k", Policy: policyOf(t, stint.TokenBucket(10, stint.PerHour(1))), Permits: 1}
	op := stint.Op{Claim: claim, And: []stint.Claim{claim, claim}} // Validate would refuse it
	for range 2 {
		if d, err := s.decideMany(&op); err != nil || !d.Allowed {
			t.Errorf("decided %+v, error %v", d, err)
		}
	}
}

// TestSweep: what is worthless is reclaimed and its memory given back while decisions
// are made on something else, whether the clock goes on or was set back.
func TestSweep(t *testing.T) {
	const keys, pause = 20_000, 200 * time.Microsecond
	for name, step := range map[string]time.Duration{"a day on": 24 * time.Hour, "set back": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			now := dawn
			s := New(Config{Now: func() time.Time { return now.Time() }})
			limiter := must.Get(stint.New(s, "test", stint.TokenBucket(10, stint.PerHour(10))))(t)
			allow := func(key string) {
				must.Get(limiter.Allow(t.Context(), key))(t)
			}
			allow("busy")
			now = now.Add(step)
			for i := range keys {
				allow(strconv.Itoa(i))
			}
			full := s.Stats()
			now = now.Add(12 * time.Hour)
			for range 2 * keys {
				now = now.Add(pause)
				allow("busy")
			}
			if stats := s.Stats(); stats.Clients != 1 || stats.Reclaimed < keys || stats.Bytes > full.Bytes/10 {
				t.Errorf("stats were %+v and are %+v; want the busy client alone", full, stats)
			}
		})
	}
}
