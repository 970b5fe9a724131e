// Package loadgen has the generator of `stint bench`, package load, count answers, and time some of them.
package loadgen

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/load"
)

// An Answer is what a caller got.
type Answer uint8

// The answers.
const (
	Denied Answer = iota
	Admitted
	Failed
)

// A Plan is the callers, their rate and the time for which they ask.
type Plan struct {
	// Callers is the number of goroutines. Each waits for its answer before it asks again.
	Callers int
	// Rate is the number of questions that are due per second, for all callers together.
	// 0 makes a closed loop.
	Rate int
	// Duration is for how long they ask.
	Duration time.Duration
	// Questions, if not 0, is how many are asked in all, however long that takes. A closed
	// loop gives each caller an equal share.
	Questions int
	// Ask asks one question. In a closed loop i counts the caller's own questions, in an
	// open loop those of all callers; both start with 0.
	Ask func(ctx context.Context, caller, i int) Answer
}

// A Result is what all callers got together.
type Result struct {
	// Answers counts the answers of each kind.
	Answers [Failed + 1]int64
	// Elapsed is the time from the first question to the last answer.
	Elapsed time.Duration
	// Latency holds, in nanoseconds, the time until its answer of every question that was
	// timed. In an open loop that is every question, and its time counts from when it was
	// due; in a closed loop it is each caller's first, and every timedEvery-th from then on.
	Latency *hdrhistogram.Histogram
}

// Count is the number of answers.
func (r *Result) Count() int64 {
	return r.Answers[Denied] + r.Answers[Admitted] + r.Answers[Failed]
}

// Seconds is the q-quantile, from 0 to 1, of a histogram of nanoseconds; 0 if it is empty.
func Seconds(h *hdrhistogram.Histogram, q float64) float64 {
	return time.Duration(h.ValueAtQuantile(100 * q)).Seconds()
}

// timedEvery is how often a question of a closed loop is timed. Where an answer takes a tenth of a microsecond, looking at
// the clock for each would cost as much.
const timedEvery = 8

// The histograms are exact to 1 %. A time above longest counts as longest.
const (
	longest = 2 * time.Minute
	digits  = 2
)

// Run lets the callers ask. It returns early, with an error, when the context ends, and
// asks nothing if the plan is wrong.
func Run(ctx context.Context, plan Plan) (*Result, error) {
	if plan.Callers < 1 || plan.Questions < 0 || plan.Questions == 0 && plan.Duration <= 0 || plan.Ask == nil {
		return nil, fmt.Errorf("callers %d, questions %d, duration %v; allowed: one caller or more, and questions or a duration", plan.Callers, plan.Questions, plan.Duration)
	}
	questions := load.Plan{Callers: plan.Callers, Questions: plan.Questions}
	if plan.Questions == 0 {
		questions.Length = plan.Duration
	}
	if plan.Rate > 0 {
		questions.Rate = stint.PerSecond(int64(plan.Rate))
	}
	result := &Result{Latency: hdrhistogram.New(1, longest.Nanoseconds(), digits)}
	tallies := make([]struct {
		answers [Failed + 1]int64
		_       [5]int64 // a cache line each
	}, plan.Callers)
	var timing sync.Mutex
	questions.Ask = func(caller, i int, asked time.Time) {
		timed := !asked.IsZero()
		if !timed && i%timedEvery == 0 {
			asked, timed = time.Now(), true
		}
		tallies[caller].answers[plan.Ask(ctx, caller, i)]++
		if timed {
			latency := min(max(time.Since(asked), 0), longest).Nanoseconds()
			timing.Lock()
			defer timing.Unlock()
			_ = result.Latency.RecordValue(latency) // every value in the range is recorded
		}
	}
	start := time.Now()
	questions.Run(ctx)
	result.Elapsed = time.Since(start)
	for i := range tallies {
		for kind, n := range tallies[i].answers {
			result.Answers[kind] += n
		}
	}
	return result, ctx.Err()
}
