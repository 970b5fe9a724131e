package memstore

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// The clock is read while all states of an operation are held: nobody else can decide on
// one of them with a later time before.
func TestClockIsReadUnderTheLocks(t *testing.T) {
	var s *Store
	var hashes []uint64
	free, reads := 0, 0
	s = New(Config{Now: func() stint.Instant {
		for _, hash := range hashes {
			reads++
			shard := s.shard(hash)
			if slot, _ := shard.table.Load().find(hash); slot == nil || slot.epoch.Load() != 0 {
				free++
			}
		}
		return still()
	}})
	one := policyOf(t, stint.TokenBucket(10, stint.PerSecond(1)))
	two := policyOf(t, stint.TokenBucket(20, stint.PerSecond(1)), stint.SlidingWindowLog(10, time.Minute))
	for name, decide := range map[string]func() error{
		"take":  func() error { _, err := s.Take(t.Context(), one, "k", 1); return err },
		"one":   func() error { return s.take(t, one) },
		"many":  func() error { return s.take(t, two) },
		"batch": func() error { return s.takeAll(t, two) },
	} {
		hashes = nil
		if err := decide(); err != nil { // the states are there now
			t.Fatal(err)
		}
		policy := two
		if name == "take" || name == "one" {
			policy = one
		}
		plan := s.plan(policy)
		for i := range plan.limits {
			hashes = append(hashes, s.hash("k", &plan.limits[i]))
		}
		free, reads = 0, 0
		if err := decide(); err != nil {
			t.Fatal(err)
		}
		if free > 0 || reads != len(hashes) {
			t.Errorf("%s: %d of %d states could be taken while the clock was read, want 0 of %d", name, free, reads, len(hashes))
		}
	}
}

func (s *Store) take(t *testing.T, p *stint.Policy) error {
	_, err := s.Decide(t.Context(), stint.Op{Claim: stint.Claim{Key: "k", Policy: p, Permits: 1}})
	return err
}

func (s *Store) takeAll(t *testing.T, p *stint.Policy) error {
	results := make([]stint.Result, 1)
	s.DecideAll(t.Context(), []stint.Op{{Claim: stint.Claim{Key: "k", Policy: p, Permits: 1}}}, results)
	return results[0].Err
}

// A time that was read early, and decides late, is not before those of the shard's decisions meanwhile.
func TestTimesOfAShardDoNotRunBack(t *testing.T) {
	s := New(Config{})
	a, b := &s.shards[1], &s.shards[2]
	now := s.readClock()
	late, later := now+1_000_000, now+2_000_000
	if got := s.decidedAt(a, late); got != late {
		t.Errorf("decided at %d, want %d", got, late)
	}
	if got := s.decidedAt(a, now); got != late {
		t.Errorf("read at %d and decided behind %d: %d", now, late, got)
	}
	s.decidedAt(b, later)
	if got := s.decidedTogether([]uint64{1, 2}); got != later {
		t.Errorf("decided together behind %d and %d: %d, want %d", late, later, got, later)
	}
	if got := s.decidedAt(a, now); got != later {
		t.Errorf("decided behind what was decided together at %d: %d", later, got)
	}
}
