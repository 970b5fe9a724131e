package memstore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/storetest"
)

// edited makes a policy's n-th version, which nobody else has.
func edited(t testing.TB, name string, n int) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy(name, stint.TokenBucket(int64(10+n), stint.PerSecond(1))))(t)
}

func take(t testing.TB, s *Store, key string, policy *stint.Policy) stint.Decision {
	t.Helper()
	return must.Get(s.Decide(t.Context(), stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: 1}}))(t)
}

// counts is how many limit versions there are, and how many ids were ever given.
func (s *Store) counts() (versions, ids int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.versions), len(*s.epochs.Load())
}

// collected collects garbage until the condition holds.
func collected(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		runtime.GC()
	}
}

// heap is what of the heap is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Policies that come and go, and policies that are edited, leave nothing behind.
func TestPoliciesComeAndGo(t *testing.T) {
	const each = 2000
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	clock := storetest.NewClock(0)
	s := New(Config{Now: clock.Now})
	round := func(n int) {
		for i := range each {
			policy := edited(t, fmt.Sprint("rule", n*each+i), 0)
			take(t, s, "k", policy)
			take(t, s, "k", edited(t, "edited", n*each+i))
		}
		clock.Advance(1000 * time.Hour)
		for _, shard := range s.all() {
			s.purge(shard, clock.Instant())
		}
		collected(t, "policies that are gone are forgotten", func() bool { known, _ := s.counts(); return known == 0 })
	}
	round(0)
	before, bytes := heap(), s.Stats().Bytes
	for n := 1; n < rounds; n++ {
		round(n)
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d bytes of heap are left of %d policies", grown, 2*(rounds-1)*each)
	}
	if now := s.Stats().Bytes; now > bytes {
		t.Errorf("%d bytes are counted, before it were %d", now, bytes)
	}
	if _, ids := s.counts(); ids > 2*each {
		t.Errorf("%d ids were given to at most %d limits at a time", ids, 2*each)
	}
	runtime.KeepAlive(s)
}

func (s *Store) all() (shards []*shard) {
	for i := range s.shards {
		shards = append(shards, &s.shards[i])
	}
	return shards
}

// What a policy wrote is read by those that come after it, though nothing is left of it, as
// if it were still there.
func TestStatesOutlivePolicies(t *testing.T) {
	clock := storetest.NewClock(0)
	s, twin := New(Config{Now: clock.Now}), New(Config{Now: clock.Now})
	var kept []*stint.Policy // the twin's
	both := func(version int) {
		t.Helper()
		kept = append(kept, edited(t, "a", version))
		want := take(t, twin, "k", kept[len(kept)-1])
		if d := take(t, s, "k", edited(t, "a", version)); d != want {
			t.Errorf("version %d says %+v, want %+v", version, d, want)
		}
	}
	for range 10 {
		both(0)
	}
	collected(t, "the plan is gone", func() bool { return s.epoch(1).version.orphaned.Load() })
	if known, _ := s.counts(); known != 1 {
		t.Fatalf("%d versions are known, want that of the state", known)
	}
	if used := s.Stats().Bytes; used < versionBytes+groupBytes {
		t.Errorf("%d bytes are counted, want table and version", used)
	}
	clock.Advance(3 * time.Second)
	both(5)
	collected(t, "who wrote first is gone", func() bool { known, _ := s.counts(); return known == 1 })
	both(0)
	both(7)
	must.Do(t, s.ResetAll(t.Context(), stint.Scope{Policy: "a"}))
	collected(t, "nothing is left", func() bool { known, _ := s.counts(); return known == 0 })
	if d := take(t, s, "k", edited(t, "a", 0)); !d.Allowed || d.Remaining != 9 {
		t.Errorf("%+v, want 9 of 10 left", d)
	}
	s.census(t)
	runtime.KeepAlive(kept)
}

// Policies go while others decide on their states; the race detector watches, and no permit
// is given twice.
func TestPoliciesGoUnderLoad(t *testing.T) {
	const workers, takes, keys = 4, 2000, 8
	clock := storetest.NewClock(0)
	s := New(Config{Now: clock.Now})
	var all sync.WaitGroup
	admitted := make([][keys]int, workers)
	ctx, end := context.WithCancel(t.Context())
	var collector sync.WaitGroup
	collector.Go(func() {
		for ctx.Err() == nil {
			runtime.GC()
		}
	})
	const capacity = 100
	for w := range workers {
		all.Go(func() {
			for i := range takes {
				// Two limits for each client: one is everybody's, the other one's own for a moment.
				policy, err := stint.NewPolicy("a", stint.FixedWindow(capacity, time.Hour))
				if err != nil {
					t.Error(err)
					return
				}
				other, err := stint.NewPolicy(fmt.Sprint("b", i%7), stint.TokenBucket(int64(1000+i), stint.PerSecond(1)))
				if err != nil {
					t.Error(err)
					return
				}
				key := i % keys
				d, err := s.Decide(ctx, stint.Op{
					Claim: stint.Claim{Key: fmt.Sprint(key), Policy: policy, Permits: 1},
					And:   []stint.Claim{{Key: fmt.Sprint("own", w), Policy: other, Permits: 1}},
				})
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					admitted[w][key]++
				}
				if i%50 == 0 {
					if err := s.ResetAll(ctx, stint.Scope{Policy: fmt.Sprint("b", i%7)}); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	end()
	collector.Wait()
	for key := range keys {
		sum := 0
		for w := range workers {
			sum += admitted[w][key]
		}
		if sum != capacity {
			t.Errorf("%d takes of client %d were admitted, want %d", sum, key, capacity)
		}
	}
	s.census(t)
}

// census counts the slots of every epoch.
func (s *Store) census(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	slots := map[*epoch]int64{}
	for _, shard := range s.all() {
		shard.mu.Lock()
		groups := shard.table.Load().groups
		for at := range groups {
			for i := range groupSlots {
				if id := groups[at][i].epoch.Load(); id != 0 {
					slots[s.epoch(id)]++
				}
			}
		}
		shard.mu.Unlock()
	}
	var past int64
	for _, e := range *s.epochs.Load() {
		switch {
		case e == nil:
			continue
		case e.slots.Load() != slots[e]:
			t.Errorf("epoch %d counts %d slots and has %d", e.id, e.slots.Load(), slots[e])
		case e.version == nil && slots[e] == 0:
			t.Errorf("epoch %d is over and has no slots", e.id)
		case e.version == nil:
			past += slots[e]
		case s.versions[e.version.key] != e.version || e.version.epoch != e || e.version.id.Load() != e.id:
			t.Errorf("epoch %d of policy %s is not its version's", e.id, e.version.policy)
		case slots[e] == 0 && e.version.orphaned.Load():
			t.Errorf("epoch %d of policy %s is nobody's", e.id, e.version.policy)
		}
		delete(slots, e)
	}
	for e := range slots {
		t.Errorf("slots have the id of epoch %d, which is not known", e.id)
	}
	if s.staleSlots.Load() != past {
		t.Errorf("%d slots are counted as past, %d are", s.staleSlots.Load(), past)
	}
}
