package memstore

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// TestForgetMoved forgets a policy a group at a time, while between the groups states
// come and go, so that others move, over table ends and to tables of other sizes. What
// was there at first must be gone; what is of another policy must stay.
func TestForgetMoved(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 300 {
		s := New(Config{Now: still})
		gone := s.plan(namedPolicy(t, "gone")).limits
		kept := s.plan(namedPolicy(t, "kept")).limits
		w := forgetting{store: s, shard: &s.shards[0], policy: "gone", stride: 1 + round%3}
		// Few homes, the table's end and its middle often, so that groups are full and searches go on.
		hash := func() uint64 {
			home := []uint64{0, 255 << 48, 255<<48 | 1<<47, 128 << 48, random.Uint64() >> shardBits}[random.IntN(5)]
			return home&^0xffff | 1 + random.Uint64N(1<<15)
		}
		put := func(hash uint64, l *limit) {
			if slot, _ := w.shard.table.Load().find(hash); slot == nil {
				p := part{limit: l, hash: hash, changed: true}
				p.state.a, p.state.b = uint64(still().Add(24*time.Hour)), uint64(still()) // it matters
				s.keep(w.shard, &p, nil, still())
			}
		}
		var old, others []uint64
		for range 5 + random.IntN(90) {
			h := hash()
			if slot, _ := w.shard.table.Load().find(h); slot != nil {
				continue
			}
			if random.IntN(2) == 0 {
				put(h, &gone[0])
				old = append(old, h)
			} else {
				put(h, &kept[0])
				others = append(others, h)
			}
		}
		for w.step() {
			for range random.IntN(4) {
				switch {
				case len(others) > 0 && random.IntN(2) == 0:
					i := random.IntN(len(others))
					s.reset(w.shard, others[i])
					others = slices.Delete(others, i, i+1)
				case random.IntN(4) == 0:
					s.rebuild(w.shard, size(w.shard.used+1))
				default:
					if h := hash(); !slices.Contains(old, h) && !slices.Contains(others, h) {
						put(h, &kept[0])
						others = append(others, h)
					}
				}
			}
		}
		for _, h := range old {
			if slot, group := w.shard.table.Load().find(h); slot != nil {
				t.Fatalf("round %d: %x is still there, in group %d", round, h, group)
			}
		}
		for _, h := range others {
			if slot, _ := w.shard.table.Load().find(h); slot == nil {
				t.Fatalf("round %d: %x of another policy is lost", round, h)
			}
		}
		if int(w.shard.used) != len(others) || w.removed != int64(len(old)) {
			t.Fatalf("round %d: %d states are left and %d were removed, want %d and %d",
				round, w.shard.used, w.removed, len(others), len(old))
		}
	}
}

func namedPolicy(t *testing.T, name string) *stint.Policy {
	t.Helper()
	policy, err := stint.NewPolicy(name, stint.TokenBucket(10, stint.PerHour(1)))
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// TestForgetBounded: a shard is locked for a bounded number of groups, whatever it
// holds.
func TestForgetBounded(t *testing.T) {
	s := New(Config{Now: still})
	limiter, err := stint.New(s, stint.TokenBucket(10, stint.PerHour(1)))
	if err != nil {
		t.Fatal(err)
	}
	l := &s.plan(limiter.Policy()).limits[0]
	shard := &s.shards[0]
	for i, held := 0, 0; held < 2000; i++ {
		if key := strconv.Itoa(i); s.shard(s.hash(key, l)) == shard {
			held++
			if _, err := limiter.Allow(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	groups, most := len(shard.table.Load().groups), uint32(0)
	w := forgetting{store: s, shard: shard, stride: forgetGroups}
	steps := 1
	for before := shard.used; w.step(); before = shard.used {
		most = max(most, before-shard.used)
		steps++
	}
	if want := (groups + forgetGroups - 1) / forgetGroups; steps != want || shard.used != 0 {
		t.Errorf("%d groups took %d steps, want %d; %d states are left", groups, steps, want, shard.used)
	}
	// A step may go through the groups around the table's end as well.
	if most > 2*forgetGroups*groupSlots {
		t.Errorf("one step removed %d states", most)
	}
}
