package failover_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/watchdog"
	"github.com/stint-go/stint/storetest"
)

// sharded gives a store shards, by the key. One that newSharded made calls a shard unreachable that was silent for
// the timeout, by the clock of a bubble.
type sharded struct {
	stint.Store
	n           int
	unreachable *func(int, error)
}

func newSharded(store stint.Store, n int) sharded { return sharded{store, n, new(func(int, error))} }

func (s sharded) Watch(_ time.Duration, unreachable func(int, error)) stint.Shards {
	if s.unreachable != nil {
		*s.unreachable = unreachable
	}
	return stint.Shards{Count: s.n, Of: s.Shard}
}

func (s sharded) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}, Timeout: timeout})
}

func (s sharded) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if s.unreachable == nil {
		return s.Store.Decide(ctx, op)
	}
	var once sync.Once
	silent := func() { once.Do(func() { (*s.unreachable)(s.Shard(op.Key), watchdog.ErrSilent) }) }
	start, timer := time.Now(), time.AfterFunc(timeout, silent)
	defer timer.Stop()
	d, err := s.Store.Decide(ctx, op)
	if err != nil && time.Since(start) >= timeout {
		silent()
	}
	return d, err
}

func (s sharded) Shard(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(s.n))
}

// keyOf finds a key of a shard.
func keyOf(s sharded, shard int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key", i); s.Shard(key) == shard {
			return key
		}
	}
}

// One part of the store is dead: its callers wait once, the others never.
func TestShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parts sharded
		f := newFixtureOn(t, func(s stint.Store) stint.Store {
			parts = newSharded(s, 4)
			return parts
		}, nil)
		p := minutely(t)
		const dead = 2
		touches := func(c storetest.Call) bool {
			for i := range c.Ops {
				if parts.Shard(c.Ops[i].Key) == dead {
					return true
				}
				for _, and := range c.Ops[i].And {
					if parts.Shard(and.Key) == dead {
						return true
					}
				}
			}
			return false
		}
		f.faulty.Inject(func(c storetest.Call) storetest.Fault { return storetest.Fault{Block: touches(c)} })
		var group sync.WaitGroup
		for shard := range 4 {
			group.Go(func() {
				key := keyOf(parts, shard)
				start := time.Now()
				for i := range 50 {
					d := f.must(key, p)
					if d.Degraded != (shard == dead) {
						t.Errorf("shard %d: call %d: %+v", shard, i, d)
					}
				}
				if took := time.Since(start); shard == dead && took != timeout || shard != dead && took != 0 {
					t.Errorf("shard %d: the calls took %s", shard, took)
				}
			})
		}
		group.Wait()
		down := f.Down()
		if len(down) != 1 || down[0].Shard != dead {
			t.Fatalf("down: %+v", down)
		}
		// A batch is answered in order, each operation by its part.
		ops := []stint.Op{
			op(0, keyOf(parts, 0), p, 1), op(0, keyOf(parts, dead), p, 1), op(0, keyOf(parts, 1), p, 1),
			op(0, keyOf(parts, 3), p, 1, claim(keyOf(parts, dead), p, 1)), op(0, "", p, 1), op(0, keyOf(parts, 3), p, 1, claim(keyOf(parts, 0), p, 1)),
		}
		results := make([]stint.Result, len(ops))
		start := time.Now()
		f.DecideAll(t.Context(), ops, results)
		for i, degraded := range []bool{false, true, false, true, false, false} {
			if r := results[i]; r.Decision.Degraded != degraded || (r.Err != nil) != (i == 4) {
				t.Errorf("operation %d: %+v", i, r)
			}
		}
		if !errors.Is(results[4].Err, stint.ErrInvalid) || time.Since(start) != 0 {
			t.Errorf("%v after %s", results[4].Err, time.Since(start))
		}
		// Operations over several parts need all of them.
		d, err := f.Decide(t.Context(), op(0, keyOf(parts, 0), p, 1, claim(keyOf(parts, dead), p, 1)))
		if err != nil || !d.Degraded || time.Since(start) != 0 {
			t.Errorf("over a part that is away: %+v, %v", d, err)
		}
		f.regain()
		if d := f.must(keyOf(parts, dead), p); d.Degraded {
			t.Errorf("back: %+v", d)
		}
		if n := len(f.seen()); n != 2 {
			t.Errorf("changes %+v", f.seen())
		}
	})
}

// When all parts are dead, a caller that needs one after the other waits for three
// deadlines at most: one of its own, one in which the others are asked, and one of a call that it
// made at the very end of that.
func TestAllShardsAreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 16
		var parts sharded
		f := newFixtureOn(t, func(s stint.Store) stint.Store {
			parts = newSharded(s, n)
			return parts
		}, nil)
		p := minutely(t)
		f.faulty.Inject(silence)
		start := time.Now()
		for shard := range n {
			if d := f.must(keyOf(parts, shard), p); !d.Degraded {
				t.Errorf("shard %d: %+v", shard, d)
			}
		}
		if took := time.Since(start); took > 3*timeout {
			t.Errorf("the calls took %s", took)
		}
		synctest.Wait()
		if s := f.Stats(); s.Unreachable != n || s.Reachable != 0 {
			t.Errorf("%+v", s)
		}
		if took := f.regain(); took > 2*time.Second {
			t.Errorf("back after %s", took)
		}
	})
}

func TestShardsWithoutKeys(t *testing.T) {
	for name, shard := range map[string]int{"none for most": 0, "outside": 7, "below": -1} {
		store := stubborn{nil, shard, new(func(int, error))}
		_, err := failover.New(store, failover.Config{})
		if !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
		(*store.unreachable)(0, watchdog.ErrSilent) // nobody is there to hear it
	}
}

// stubborn puts all keys into one of its three shards.
type stubborn struct {
	stint.Store
	shard       int
	unreachable *func(int, error)
}

func (s stubborn) Watch(_ time.Duration, unreachable func(int, error)) stint.Shards {
	*s.unreachable = unreachable
	return stint.Shards{Count: 3, Of: func(string) int { return s.shard }}
}
