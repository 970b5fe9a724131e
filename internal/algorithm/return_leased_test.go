package algorithm_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// leaseStep is a step of a small life of a bucket: one of these.
type leaseStep struct {
	take     int64         // permits
	lease    int64         // permits
	giveBack int           // 1 for the oldest lease that is out, 2 for the newest
	pass     time.Duration // time
}

var leaseSteps = []leaseStep{
	{take: 1}, {take: 4}, {lease: 2}, {lease: 5}, {giveBack: 1}, {giveBack: 2}, {pass: time.Millisecond}, {pass: 2500 * time.Microsecond},
}

// All lives of seven steps: permits are leased, returned in any order, and others take
// meanwhile. The bucket is never better than one that was charged only with what did
// not return, from the start; so that one admits all of it.
func TestReturnLeasedIsNeverBetter(t *testing.T) {
	steps := 7
	if testing.Short() {
		steps = 5
	}
	bucket := algorithm.NewMachine(stint.TokenBucket(5, stint.Per(1, time.Millisecond)))
	gaveBack := 0
	life := make([]leaseStep, steps)
	var try func(int)
	try = func(n int) {
		if n < steps {
			for _, step := range leaseSteps {
				life[n] = step
				try(n + 1)
			}
			return
		}
		gaveBack += liveLease(t, &bucket, life)
	}
	try(0)
	if gaveBack == 0 {
		t.Error("nothing was ever given back")
	}
}

// charge is what was taken at a time.
type charge struct {
	at     stint.Instant
	n      int64
	leased bool
}

func liveLease(t *testing.T, bucket *algorithm.Machine, life []leaseStep) (gaveBack int) {
	const dawn = stint.Instant(1_767_225_600_000_000)
	now := dawn
	var state algorithm.State
	charges := make([]charge, 0, len(life))
	for _, step := range life {
		now = now.Add(step.pass)
		if n := bucket.Admit(&state, now, 1, 0, step.lease); n > 0 {
			charges = append(charges, charge{now, n, true})
		}
		if step.take > 0 && bucket.Admit(&state, now, step.take, 0, 1) > 0 {
			charges = append(charges, charge{now, step.take, false})
		}
		chosen := -1
		for i := range charges {
			if step.giveBack > 0 && charges[i].leased && (chosen < 0 || step.giveBack == 2) {
				chosen = i
			}
		}
		if chosen >= 0 {
			if bucket.ReturnLease(&state, now, charges[chosen].n, charges[chosen].at) {
				gaveBack++
			}
			charges[chosen] = charge{}
		}
	}
	var without algorithm.State
	for _, c := range charges {
		if c.n > 0 && bucket.Admit(&without, c.at, c.n, 0, 1) != 1 {
			t.Fatalf("%+v: %d permits were too many", life, c.n)
		}
	}
	left, most := remaining(bucket, state, now), remaining(bucket, without, now)
	if left > most {
		t.Fatalf("%+v: %d permits are left, without what was returned it would be %d", life, left, most)
	}
	return gaveBack
}

func remaining(bucket *algorithm.Machine, state algorithm.State, now stint.Instant) int64 {
	var out stint.Outcome
	bucket.Apply(algorithm.Peek, &state, now, 1, 0, &out)
	return out.Remaining
}

// What comes back of a lease is what the bucket has not refilled since.
func TestReturnLeased(t *testing.T) {
	bucket := algorithm.NewMachine(stint.TokenBucket(100, stint.Per(3, time.Second)))
	for _, c := range []struct {
		after time.Duration
		left  int64
	}{
		{0, 100},
		{time.Microsecond, 99},
		{time.Second, 100},
		{1100 * time.Millisecond, 99},
		{3 * time.Second, 100},
		{3100 * time.Millisecond, 99},
		{4 * time.Second, 100},
		{time.Hour, 100},
		{-time.Hour, 100},
	} {
		var state algorithm.State
		now := stint.Instant(1_767_225_600_000_000)
		if bucket.Admit(&state, now, 1, 0, 10) != 10 {
			t.Fatal("10 permits don't fit")
		}
		after := now.Add(c.after)
		bucket.ReturnLease(&state, after, 10, now)
		if left := remaining(&bucket, state, after); left != c.left {
			t.Errorf("%s later %d permits are left, want %d", c.after, left, c.left)
		}
	}
}
