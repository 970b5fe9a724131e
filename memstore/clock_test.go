package memstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
)

// The clock is read while all states of an operation are held: nobody else can decide on
// one of them with a later time before.
func TestClockIsReadUnderTheLocks(t *testing.T) {
	var s *Store
	var hashes []uint64
	free, reads := 0, 0
	s = New(Config{Now: func() time.Time {
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
		must.Do(t, decide())
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
	late, later := now+100_000, now+200_000
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

// A clock that was wrong when the store was made, or has not counted while the machine slept, is
// followed when it is looked at; small steps are not.
func TestClockFollowsTheWallClock(t *testing.T) {
	const day = 24 * time.Hour
	for _, off := range []time.Duration{-50 * 365 * day, -12 * time.Hour, -2 * time.Second, 2 * time.Second, day} {
		s := New(Config{})
		wrong := *newAnchor(time.Now())
		wrong.origin = wrong.origin.Add(off)
		wrong.due = 0
		s.anchor.Store(&wrong)
		least := stint.Instant(time.Now().UnixMicro())
		read := s.readClock()
		if most := stint.Instant(time.Now().UnixMicro()); read < least || read > most {
			t.Errorf("%s off: read %s, want %s to %s", off, read, least, most)
		}
	}
	now := time.Now()
	slewed := newAnchor(now)
	slewed.origin = slewed.origin.Add(maxDrift)
	if next := slewed.look(now); next.origin != slewed.origin {
		t.Errorf("a clock that is %s off was set to %s", maxDrift, next.origin)
	}
}

// A step back of the clock is one for all states, whatever the times of decisions before it.
func TestClockStepsBack(t *testing.T) {
	s := New(Config{})
	shard, now := &s.shards[0], s.readClock()
	s.decidedAt(shard, now.Add(time.Hour))
	if got := s.decidedAt(shard, now); got != now {
		t.Errorf("decided at %s after a step back to %s", got, now)
	}
}

// A clock of the caller's counts in whole microseconds, cut down, whatever its location. Every algorithm admits its limit,
// and again as soon as it said.
func TestClockOfTheCaller(t *testing.T) {
	for _, begin := range []time.Time{
		time.Unix(0, 0), time.Date(2026, 1, 1, 1, 2, 3, 4_999, time.FixedZone("", 3600)), latest.AddDate(-1, 0, 0),
	} {
		for _, algorithm := range notation.Algorithms() {
			now := begin
			s := New(Config{Now: func() time.Time { return now }})
			limit := stint.Limit{Algorithm: algorithm, Capacity: 2}
			if limit.IsBucket() {
				limit.Rate = stint.PerMinute(1)
			} else {
				limit.Window = time.Minute
			}
			policy := policyOf(t, limit)
			take := func() stint.Decision {
				return must.Get(s.Take(t.Context(), policy, "k", 2))(t)
			}
			first, denied := take(), take()
			if at := denied.At.Time(); !first.Allowed || denied.Allowed || !at.Equal(begin.Truncate(time.Microsecond)) {
				t.Errorf("%s at %s: %+v, then %+v, decided at %s", algorithm, begin, first, denied, at)
			}
			now = now.Add(denied.RetryAfter - time.Microsecond)
			early := take()
			now = now.Add(time.Microsecond)
			if d := take(); early.Allowed || !d.Allowed {
				t.Errorf("%s at %s, %s later: %+v, and %+v just before", algorithm, begin, denied.RetryAfter, d, early)
			}
		}
	}
}

// A fake clock that was not set, or with another unit, is a fault, and does not deny until 1970.
func TestClockOutOfBounds(t *testing.T) {
	policy := policyOf(t, stint.TokenBucket(1, stint.PerSecond(1)))
	for _, now := range []time.Time{{}, earliest.Add(-1), latest.Add(1)} {
		s := New(Config{Now: func() time.Time { return now }})
		_, taken := s.Take(t.Context(), policy, "k", 1)
		for name, err := range map[string]error{
			"take": taken, "decide": s.take(t, policy), "batch": s.takeAll(t, policy),
			"reset": s.ResetAll(t.Context(), stint.Scope{All: true}),
		} {
			if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "memstore.Config.Now is") {
				t.Errorf("%s at %s: %v", name, now, err)
			}
		}
	}
}
