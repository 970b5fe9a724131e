package memstore

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/storetest"
)

func named(t testing.TB, name string, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy(name, limits...))(t)
}

// crowd takes from clients of a policy.
func crowd(t testing.TB, s *Store, policy *stint.Policy, clients int) {
	t.Helper()
	for i := range clients {
		take(t, s, strconv.Itoa(i), policy)
	}
}

// checkReset checks that no client of the policy is known, by its stats and by its
// decisions.
func checkReset(t testing.TB, s *Store, policy *stint.Policy, clients int) {
	t.Helper()
	for i := range clients {
		claim := stint.Claim{Key: strconv.Itoa(i), Policy: policy, Permits: 1}
		d := must.Get(s.Decide(t.Context(), stint.Op{Verb: stint.VerbPeek, Claim: claim}))(t)
		if d.Remaining != d.Limit {
			t.Fatalf("client %d has %d of %d left", i, d.Remaining, d.Limit)
		}
	}
}

// A reset looks at no state: it does not wait for the holder of one.
func TestResetLooksAtNoState(t *testing.T) {
	s := New(Config{Now: still})
	policy := named(t, "a", stint.TokenBucket(10, stint.PerHour(1)))
	crowd(t, s, policy, 100)
	id := s.plan(policy).limits[0].version.id.Load()
	var held []*slot
	for _, shard := range s.all() {
		groups := shard.table.Load().groups
		for at := range groups {
			for i := range groupSlots {
				if slot := &groups[at][i]; slot.hash.Load() != 0 {
					slot.hold()
					held = append(held, slot)
				}
			}
		}
	}
	must.Do(t, s.ResetAll(t.Context(), stint.Scope{Policy: "a"}))
	for _, slot := range held {
		slot.release(id)
	}
	if len(held) != 100 {
		t.Errorf("%d states were held, want 100", len(held))
	}
	checkReset(t, s, policy, 100)
	s.census(t)
}

// What was reset is no client, and is reclaimed with its logs as decisions are made on
// something else. It is not counted as evicted.
func TestResetIsReclaimed(t *testing.T) {
	const clients = 3000
	for name, reset := range map[string]func(s *Store) error{
		"a policy": func(s *Store) error { return s.ResetAll(t.Context(), stint.Scope{Policy: "a"}) },
		"all":      func(s *Store) error { return s.ResetAll(t.Context(), stint.Scope{All: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			now := dawn
			s := New(Config{Now: func() time.Time { return now.Time() }})
			policy := named(t, "a", stint.TokenBucket(10, stint.Per(1, 24*time.Hour)), stint.SlidingWindowLog(10, 24*time.Hour))
			other := named(t, "b", stint.TokenBucket(10, stint.Per(1, 24*time.Hour)))
			crowd(t, s, policy, clients)
			full := s.Stats()
			must.Do(t, reset(s))
			if stats := s.Stats(); stats.Clients != 0 || stats.Reclaimed != 0 {
				t.Errorf("after the reset: %+v, want no clients", stats)
			}
			CheckBytes(t, s)
			s.census(t)
			checkReset(t, s, policy, clients)
			for range 2 * clients {
				now = now.Add(time.Millisecond)
				take(t, s, "k", other)
			}
			if stats := s.Stats(); stats.Clients != 1 || stats.Reclaimed != 2*clients || stats.Evictions != 0 || stats.Bytes > full.Bytes/10 {
				t.Errorf("stats were %+v and are %+v; want one client alone", full, stats)
			}
			CheckBytes(t, s)
			s.census(t)
			runtime.KeepAlive(policy)
		})
	}
}

// At the cap, what was reset goes before any client does.
func TestResetGoesFirst(t *testing.T) {
	const clients = 5000
	s := New(Config{MaxBytes: minMaxBytes, Now: still})
	gone := named(t, "gone", stint.TokenBucket(10, stint.Per(1, 24*time.Hour)))
	kept := named(t, "kept", stint.TokenBucket(10, stint.Per(1, 24*time.Hour)))
	late := named(t, "late", stint.TokenBucket(10, stint.Per(1, 24*time.Hour)))
	crowd(t, s, kept, clients)
	crowd(t, s, gone, 3*clients)
	if n := s.Stats().Evictions; n != 0 {
		t.Fatalf("%d are evicted before the cap", n)
	}
	must.Do(t, s.ResetAll(t.Context(), stint.Scope{Policy: "gone"}))
	crowd(t, s, late, 2*clients)
	if stats := s.Stats(); stats.Evictions != 0 || stats.Clients != 3*clients {
		t.Errorf("%+v, want the others' %d clients, and none evicted", stats, 3*clients)
	}
	CheckBytes(t, s)
	s.census(t)
}

// Resets leave nothing behind: neither ids nor memory.
func TestResetsComeAndGo(t *testing.T) {
	clock := storetest.NewClock(0)
	s := New(Config{Now: clock.Now})
	policy := named(t, "a", stint.TokenBucket(10, stint.PerHour(1)), stint.SlidingWindowLog(10, time.Hour))
	var first Stats
	for round := range 1000 {
		crowd(t, s, policy, 10)
		for range 3 { // of which two find nothing
			must.Do(t, s.ResetAll(t.Context(), stint.Scope{Policy: "a"}))
		}
		crowd(t, s, policy, 10) // into the old slots
		must.Do(t, s.ResetAll(t.Context(), stint.Scope{All: true}))
		if round == 0 {
			first = s.Stats()
		}
	}
	if _, ids := s.counts(); ids > 6 { // two limits, each with an epoch now, and two that wait for their last slots
		t.Errorf("%d ids were given", ids)
	}
	if stats := s.Stats(); stats.Bytes > first.Bytes {
		t.Errorf("%+v, after the first round %+v", stats, first)
	}
	CheckBytes(t, s)
	s.census(t)
	runtime.KeepAlive(policy)
}

// An id that was read before a reset may be another version's when it is used. No slot is
// held by it.
func TestResetBetweenIDAndHold(t *testing.T) {
	s := New(Config{Now: still})
	policy := named(t, "a", stint.FixedWindow(10, time.Hour))
	take(t, s, "k", policy)
	l := &s.plan(policy).limits[0]
	hash, id := s.hash("k", l), l.version.id.Load()
	shard := s.shard(hash)
	must.Do(t, s.ResetAll(t.Context(), stint.Scope{Policy: "a"}))
	if slot, _ := shard.table.Load().find(hash); slot == nil || slot.epoch.Load() != id {
		t.Fatal("want the state as it was written, in its slot")
	}
	if slot := shard.table.Load().hold(hash, id, l.version); slot != nil {
		t.Error("what was reset is held")
		slot.release(id)
	}
	s.purge(shard, dawn)
	changed := named(t, "a", stint.FixedWindow(20, time.Hour))
	take(t, s, "k", changed)
	if now := s.plan(changed).limits[0].version.id.Load(); now != id {
		t.Fatalf("the changed limit has the id %d, want %d again", now, id)
	}
	if slot := shard.table.Load().hold(hash, id, l.version); slot != nil {
		t.Error("what another limit wrote is held")
		slot.release(id)
	}
	if d := take(t, s, "k", policy); d.Remaining != 8 {
		t.Errorf("%+v, want 8 left", d)
	}
}

// An admission knows what it left, and the epochs of its policy that it may have been in,
// counted in resets.
type admission struct {
	left        int64
	first, last int64
}

// TestResetUnderLoad resets without a pause while others decide, by all ways, and states are
// moved, swept and dropped. In every epoch every admission leaves another Remaining; one that
// began after a reset had returned is of an epoch after it.
func TestResetUnderLoad(t *testing.T) {
	const workers, takes, capacity, keys = 4, 3000, 20, 3
	s := New(Config{Now: still})
	policy := named(t, "a", stint.FixedWindow(capacity, 24*time.Hour))
	pair := named(t, "b", stint.FixedWindow(capacity, 24*time.Hour), stint.SlidingWindowLog(capacity, 24*time.Hour))
	var begun, ended [2]atomic.Int64 // resets, of each policy
	var all [workers][2 * keys][]admission
	var work, disturb sync.WaitGroup
	var stop atomic.Bool
	for worker := range workers {
		work.Go(func() {
			for i := range takes {
				at, of := i%keys, 0
				key := strconv.Itoa(at)
				if (i+worker)%4 == 3 {
					at, of = at+keys, 1
				}
				var d stint.Decision
				var err error
				first := ended[of].Load()
				switch (i + worker) % 4 {
				case 0, 1:
					d, err = s.Take(t.Context(), policy, key, 1)
				case 2:
					d, err = s.Decide(t.Context(), stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: 1}})
				case 3:
					var each [2]stint.Outcome
					d, err = s.Decide(t.Context(), stint.Op{Claim: stint.Claim{Key: key, Policy: pair, Permits: 1}, Each: each[:]})
					if d.Allowed && each[0].Remaining != each[1].Remaining {
						t.Errorf("of one client %+v", each)
					}
				}
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					all[worker][at] = append(all[worker][at], admission{d.Remaining, first, begun[of].Load()})
				}
			}
		})
	}
	disturb.Go(func() {
		l := &s.plan(policy).limits[0]
		for i := 0; !stop.Load(); i++ {
			shard := s.shard(s.hash(strconv.Itoa(i%keys), l))
			shard.mu.Lock()
			if s.rebuild(shard, groupsFor(shard.used+1)); i%3 == 0 {
				s.purge(shard, dawn)
			}
			shard.mu.Unlock()
		}
	})
	disturb.Go(func() {
		for i := 0; !stop.Load(); i++ {
			var err error
			if of := i % 3; of < 2 {
				begun[of].Add(1)
				err = s.ResetAll(t.Context(), stint.Scope{Policy: [...]string{"a", "b"}[of]})
				ended[of].Add(1)
			} else {
				begun[0].Add(1)
				begun[1].Add(1)
				err = s.ResetAll(t.Context(), stint.Scope{All: true})
				ended[0].Add(1)
				ended[1].Add(1)
			}
			if err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	work.Wait()
	stop.Store(true)
	disturb.Wait()
	for at := range 2 * keys {
		byLeft := map[int64][]admission{}
		for worker := range workers {
			for _, one := range all[worker][at] {
				byLeft[one.left] = append(byLeft[one.left], one)
			}
		}
		for left, takes := range byLeft {
			if err := apart(takes); err != nil {
				t.Errorf("key %d: of the admissions that left %d, %v", at, left, err)
			}
		}
	}
	must.Do(t, s.ResetAll(t.Context(), stint.Scope{All: true}))
	for i := range 2 * capacity {
		for key := range keys {
			if d, err := s.Take(t.Context(), policy, strconv.Itoa(key), 1); err != nil || d.Allowed != (i < capacity) {
				t.Fatalf("take %d of key %d after all resets: %+v, %v", i, key, d, err)
			}
		}
	}
	s.census(t)
	CheckBytes(t, s)
}

// apart reports an error unless the takes can have been in epochs of their own.
func apart(takes []admission) error {
	slices.SortFunc(takes, func(a, b admission) int { return cmp.Compare(a.first, b.first) })
	var waiting []admission // those that may be in the epoch; the first to be late goes first
	epoch := int64(0)
	for next := 0; next < len(takes) || len(waiting) > 0; epoch++ {
		if len(waiting) == 0 {
			epoch = max(epoch, takes[next].first)
		}
		for ; next < len(takes) && takes[next].first <= epoch; next++ {
			waiting = append(waiting, takes[next])
		}
		slices.SortFunc(waiting, func(a, b admission) int { return cmp.Compare(a.last, b.last) })
		if waiting[0].last < epoch {
			return fmt.Errorf("more than one was between the resets %d and %d", waiting[0].first, waiting[0].last)
		}
		waiting = waiting[1:]
	}
	return nil
}
