// Package closedloop lets callers ask as fast as they are answered: each asks again
// as soon as it has its answer.
package closedloop

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/stint-go/stint/bench/internal/histogram"
)

// An Answer is what a caller got.
type Answer uint8

// The answers.
const (
	Denied Answer = iota
	Admitted
	Failed
)

// A Plan is who asks, and for how long.
type Plan struct {
	// Callers is the number of goroutines.
	Callers int
	// Duration is for how long they ask. Each caller's questions up to the next that is
	// timed are still answered and counted. It counts only when Turns is 0.
	Duration time.Duration
	// Turns, if not 0, is how often each caller asks, however long that takes.
	Turns int
	// Ask puts question number turn of a caller, both counted from 0.
	Ask func(ctx context.Context, caller, turn int) Answer
}

// Validate reports the first thing wrong with the plan.
func (p Plan) Validate() error {
	switch {
	case p.Callers < 1:
		return fmt.Errorf("callers is %d; allowed: 1 or more", p.Callers)
	case p.Turns < 0:
		return fmt.Errorf("turns is %d; allowed: 0 or more", p.Turns)
	case p.Turns == 0 && p.Duration <= 0:
		return fmt.Errorf("duration is %v; allowed: more than 0", p.Duration)
	case p.Ask == nil:
		return fmt.Errorf("ask is nil; allowed: a function")
	}
	return nil
}

// A Result is what all callers got together.
type Result struct {
	// Answers counts the answers of each kind.
	Answers [Failed + 1]int64
	// Elapsed is the time from the first question to the last answer.
	Elapsed time.Duration
	// Latency holds the time until its answer of every question that was timed: each
	// caller's first, and every timedEvery-th from then on.
	Latency histogram.Histogram
}

// Count is the number of answers.
func (r *Result) Count() int64 {
	return r.Answers[Denied] + r.Answers[Admitted] + r.Answers[Failed]
}

// yieldEvery is how many denials in a row a caller gets before it lets others run.
// Denials may come without waiting for anything; callers that never wait would keep
// a processor from the goroutines that read from the network, for tens of
// milliseconds each.
const yieldEvery = 64

// timedEvery is how often a question is timed, and the clock looked at. Where an answer
// takes a tenth of a microsecond, looking at the clock for each would cost as much, and
// the histograms of hundreds of callers fill the processor's cache.
const timedEvery = 8

// tally is one caller's part of a result.
type tally struct {
	answers [Failed + 1]int64
	latency histogram.Histogram
}

// Run lets the callers ask. It returns early, with an error, when the plan is wrong
// or the context ends.
func Run(ctx context.Context, plan Plan) (*Result, error) {
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	tallies := make([]*tally, plan.Callers)
	for i := range tallies {
		tallies[i] = &tally{}
	}
	var callers sync.WaitGroup
	gate := make(chan struct{})
	var start time.Time
	for i, t := range tallies {
		callers.Go(func() {
			<-gate
			t.ask(ctx, &plan, i, start)
		})
	}
	start = time.Now()
	close(gate)
	callers.Wait()
	result := &Result{Elapsed: time.Since(start)}
	for _, t := range tallies {
		for kind, n := range t.answers {
			result.Answers[kind] += n
		}
		result.Latency.Add(&t.latency)
	}
	return result, ctx.Err()
}

func (t *tally) ask(ctx context.Context, plan *Plan, caller int, start time.Time) {
	denials := 0
	for turn := 0; plan.Turns == 0 || turn < plan.Turns; turn++ {
		var answer Answer
		if turn%timedEvery != 0 {
			answer = plan.Ask(ctx, caller, turn)
		} else {
			asked := time.Now()
			if ctx.Err() != nil || plan.Turns == 0 && asked.Sub(start) >= plan.Duration {
				return
			}
			answer = plan.Ask(ctx, caller, turn)
			t.latency.Record(time.Since(asked))
		}
		t.answers[answer]++
		if answer != Denied {
			denials = 0
		} else if denials++; denials == yieldEvery {
			denials = 0
			runtime.Gosched()
		}
	}
}
