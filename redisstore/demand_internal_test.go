package redisstore

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// Sized by the rate, a share is what the client takes in half a lease's time, follows
// the rate smoothly, and is at most a part of the capacity.
func TestSize(t *testing.T) {
	const capacity = 1_000_000
	byRate := newMachine(stint.TokenBucket(capacity, stint.PerSecond(capacity)).WithLease(stint.LeaseAuto))
	l := &lease{leases: &leases{time: DefaultLeaseTime}, limit: &limit{machine: byRate}}
	now := time.Duration(0)
	run := func(perMilli int64, millis int) (last int64, steps []int64) {
		for range millis {
			now += time.Millisecond
			l.direct.Add(perMilli)
			last = l.size(now)
			steps = append(steps, last)
		}
		return last, steps
	}
	if n := l.size(now); n != 0 {
		t.Errorf("of an unknown client: %d", n)
	}
	if n, _ := run(0, 100); n != 0 {
		t.Errorf("of an idle client: %d", n)
	}
	half := DefaultLeaseTime.Milliseconds() / 2
	for _, perMilli := range []int64{100, 1000, 10} {
		before := l.size(now)
		last, steps := run(perMilli, 600)
		if want := perMilli * half; last < want*98/100 || last > want*102/100 {
			t.Errorf("at %d per millisecond: %d, want %d", perMilli, last, want)
		}
		for _, n := range steps {
			if jump := n - before; max(jump, -jump) > max(before, perMilli*half)/40+1 {
				t.Errorf("at %d per millisecond: from %d to %d in one millisecond", perMilli, before, n)
			}
			before = n
		}
	}
	if n, _ := run(capacity/10, 600); n != capacity/shareOf {
		t.Errorf("at most: %d, want %d", n, capacity/shareOf)
	}
	if n, _ := run(0, 2000); n != 0 {
		t.Errorf("after a pause: %d", n)
	}
	l.limit = &limit{machine: newMachine(stint.FixedWindow(10, time.Second).WithLease(7))}
	if n := l.size(now); n != 7 {
		t.Errorf("of a given size: %d", n)
	}
}
