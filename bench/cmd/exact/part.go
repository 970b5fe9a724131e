package main

import (
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// A part is what all processes do at once.
type part struct {
	Algorithm stint.Algorithm
	Keys      int
	Callers   int
	Duration  time.Duration
	Ops       int // of each process, instead of a duration; 0 for none
}

// parts are two for each algorithm: one client, and many.
func (o *options) parts() []part {
	var parts []part
	for _, algorithm := range o.algorithms {
		for _, keys := range []int{1, o.keys} {
			parts = append(parts, part{algorithm, keys, o.callers, o.duration, o.ops})
		}
	}
	return parts
}

// policy has a limit that is so small that what is asked for exceeds it all the time,
// and so quick that there is always something new to admit. Each part has states of its
// own.
func (p part) policy() (*stint.Policy, error) {
	l := stint.Limit{Algorithm: p.Algorithm, Capacity: 100}
	every := 100 * time.Millisecond
	if p.Keys > 1 {
		l.Capacity, every = 5, 2*time.Second
	}
	if l.IsBucket() {
		l.Rate = stint.Per(l.Capacity, every)
	} else {
		l.Window = every
	}
	return stint.NewPolicy(fmt.Sprintf("%s-%d", p.Algorithm, p.Keys), l)
}
