package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// pair is a Redis store of one partition and a memory store, under one clock.
type pair struct {
	t      testing.TB
	clock  *storetest.Clock
	stores []contender
	prefix string
	number int // of batches
}

func newPair(t testing.TB, conn redisconn.Conn) *pair {
	p := &pair{t: t, clock: storetest.NewClock(dawn)}
	store, prefix := storeOn(t, conn, redisstore.Options{Partitions: 1, Now: p.clock.Now})
	p.stores = []contender{{"memory", memstore.New(memstore.Config{Now: p.clock.Now})}, {"redis", store}}
	p.prefix = prefix
	return p
}

// batch carries out operations as one batch, asking for each limit's outcome, and
// then asks for the state of each, in a batch as well.
func (p *pair) batch(ops ...stint.Op) {
	p.t.Helper()
	p.number += 2
	steps := make([]storetest.Step, len(ops))
	for i, o := range ops {
		steps[i] = storetest.Step{At: p.clock.Instant(), Op: o, Batch: p.number, Each: true}
	}
	for _, step := range steps {
		step.Batch, step.Op.Verb, step.Op.Permits = p.number+1, stint.VerbPeek, 1
		steps = append(steps, step)
	}
	if err := compare(p.t, p.clock, p.stores, storetest.Sequence{Steps: steps}); err != nil {
		p.t.Fatal(err)
	}
}

// hash reads the one hash of a generation.
func (p *pair) hash() *hash {
	p.t.Helper()
	for _, key := range keysOf(p.t, p.prefix) {
		if key[len(key)-len("cur"):] == "cur" {
			return readHash(p.t, key)
		}
	}
	p.t.Fatal("there is no hash")
	return nil
}

// manyLimits are limits of one identity that differ in what reading a state takes.
func manyLimits(algorithm stint.Algorithm, n int) []stint.Limit {
	limits := make([]stint.Limit, n)
	for i := range limits {
		l := stint.Limit{Algorithm: algorithm, Capacity: 10}
		length := time.Hour + time.Duration(i)*time.Second
		switch {
		case l.IsBucket() && i%3 == 0:
			l.Capacity, l.Rate = int64(10+i), stint.Per(1, time.Hour)
		case l.IsBucket():
			l.Rate = stint.Per(int64(1+i%7), length)
		default:
			l.Window = length
		}
		limits[i] = l
	}
	return limits
}

// More limits than a head can tell apart write in one generation: what reading a state
// of the others takes stands in the state itself.
func TestManyWriters(t *testing.T) {
	const writers, told = 100, 63
	conn := newConn(t)
	for _, algorithm := range notation.Algorithms() {
		if algorithm == stint.AlgorithmSlidingWindowLog {
			continue
		}
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			var policies []*stint.Policy
			for _, l := range manyLimits(algorithm, writers) {
				policies = append(policies, policyOf(t, "", l))
			}
			each := func(verb stint.Verb, client string, permits int64, shift int) []stint.Op {
				ops := make([]stint.Op, writers)
				for i := range ops {
					ops[i] = op(verb, fmt.Sprint(client, i), policies[(i+shift)%writers], permits)
				}
				return ops
			}
			p := newPair(t, conn)
			p.batch(each(stint.VerbTake, "taken", 2, 0)...)
			p.batch(each(stint.VerbSettle, "settled", 3, 0)...)
			for _, o := range each(stint.VerbTake, "one by one", 1, 0) {
				p.batch(o)
			}
			inline := 0
			h := p.hash()
			for client, s := range h.states {
				if s.wide {
					t.Errorf("the numbers of %s are wide: %+v", client, s)
				}
				if s.tag == inlineTag {
					inline++
				}
			}
			if len(h.versions) != told || len(h.states) != 3*writers || inline != 3*(writers-told) {
				t.Errorf("%d writers in the head, %d states, %d of them with their writer, want %d, %d and %d",
					len(h.versions), len(h.states), inline, told, 3*writers, 3*(writers-told))
			}
			// They are read by the limit that wrote them, and by others, and written again.
			for _, shift := range []int{0, 1, 40, writers - 40} {
				p.clock.Advance(time.Second)
				for _, client := range []string{"taken", "settled", "one by one"} {
					p.batch(each(stint.VerbTake, client, 1, shift)...)
					p.batch(each(stint.VerbSettle, client, 1, shift)...)
				}
				p.batch(each(stint.VerbTake, "taken", 20, shift)...) // denied
			}
			if h := p.hash(); len(h.versions) != told || len(h.states) != 3*writers {
				t.Errorf("%d writers in the head, %d states", len(h.versions), len(h.states))
			}
			p.batch(each(stint.VerbReset, "settled", 0, 7)...)
			if h := p.hash(); len(h.states) != 2*writers {
				t.Errorf("%d states after a reset of %d", len(h.states), writers)
			}
		})
	}
}

// A number that does not fit the width that its limit gives it is written wide, by
// limits that the head tells apart and by others.
func TestWideValues(t *testing.T) {
	const most = bounds.MaxPermits
	conn := newConn(t)
	for _, c := range []struct {
		name          string
		large, narrow stint.Limit
		charge        int64         // under the large limit
		back          time.Duration // the clock steps back before the narrow one settles
		settle        int64         // under the narrow limit
	}{
		{"token bucket, ten years", stint.TokenBucket(most, stint.PerSecond(most)), stint.TokenBucket(2, stint.Every(time.Hour)), 2 * most, 0, -1},
		{"fixed window, count", stint.FixedWindow(most, 24*time.Hour), stint.FixedWindow(3, 24*time.Hour), 2 * most, 0, -1},
		{"calendar, count", stint.CalendarWindow(most, stint.CalendarYear, ""), stint.CalendarWindow(3, stint.CalendarYear, ""), most, 0, -5},
		{"sliding window counter, count", stint.SlidingWindowCounter(most, 24*time.Hour), stint.SlidingWindowCounter(3, 24*time.Hour), most + 7, 0, -1},
		{"token bucket, time", stint.TokenBucket(5, stint.PerSecond(1)), stint.TokenBucket(5, stint.PerSecond(1)), 1, 24 * time.Hour, 3},
		{"leaky bucket, time", stint.LeakyBucket(5, stint.PerSecond(1)), stint.LeakyBucket(5, stint.PerSecond(1)), 1, 1000 * 24 * time.Hour, 3},
		{"fixed window, time", stint.FixedWindow(5, time.Second), stint.FixedWindow(5, time.Second), 1, time.Hour, 3},
		{"sliding window counter, time", stint.SlidingWindowCounter(5, time.Second), stint.SlidingWindowCounter(5, time.Second), 1, time.Hour, 3},
		{"calendar, time", stint.CalendarWindow(5, stint.CalendarMinute, ""), stint.CalendarWindow(5, stint.CalendarMinute, ""), 1, 24 * time.Hour, 3},
	} {
		for _, before := range []int{0, 70} { // writers that come first
			t.Run(fmt.Sprintf("%s/writers=%d", c.name, before), func(t *testing.T) {
				p := newPair(t, conn)
				large, narrow := policyOf(t, "", c.large), policyOf(t, "", c.narrow)
				p.batch(op(stint.VerbSettle, "other", large, c.charge), op(stint.VerbTake, "third", large, 1))
				for _, l := range manyLimits(c.large.Algorithm, before) {
					p.batch(op(stint.VerbTake, fmt.Sprint("writer", l.Window, l.Rate, l.Capacity), policyOf(t, "", l), 1))
				}
				client := "other"
				if c.back > 0 {
					client = "k"
					p.clock.Advance(-c.back)
				}
				p.batch(op(stint.VerbSettle, client, narrow, c.settle))
				s, found := p.hash().states[client]
				if inline := s.tag == inlineTag; !found || !s.wide || inline != (before > 0 && large != narrow && c.back == 0) {
					t.Errorf("found %t: %+v, want wide numbers", found, s)
				}
				// It is read by takes and by others, and written again; what fits is narrow
				// again.
				p.batch(op(stint.VerbTake, client, narrow, 1), op(stint.VerbTake, client, narrow, 1), op(stint.VerbTry, "k2", narrow, 1))
				p.batch(op(stint.VerbSettle, client, narrow, 1), op(stint.VerbTake, client, narrow, 1))
				p.batch(op(stint.VerbSettle, client, large, 2))
				p.batch(op(stint.VerbTake, client, large, 1))
				p.batch(op(stint.VerbSettle, client, narrow, 1))
				p.batch(op(stint.VerbReset, client, narrow, 0), op(stint.VerbTake, client, narrow, 2))
				if s := p.hash().states[client]; c.back == 0 && s.wide {
					t.Errorf("%+v, want narrow numbers", s)
				}
			})
		}
	}
}
