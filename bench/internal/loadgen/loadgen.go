// Package loadgen is the load generator. Its callers ask in a closed loop, in which each
// asks again as soon as it is answered, or in an open loop, in which questions are due at
// a fixed rate whatever is answered and when.
package loadgen

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
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
	// Groups divides the callers of an open loop by their number modulo Groups. Question i
	// is for group i modulo Groups; the first caller of the group that is free asks it.
	// If none is, it is asked late, and its latency still counts from when it was due.
	// 0 is 1.
	Groups int
	// Duration is for how long they ask. Each caller's questions up to the next that is
	// timed are still answered and counted.
	Duration time.Duration
	// Questions, if not 0, is how many are asked in all, however long that takes. A closed
	// loop rounds it up to a multiple of Callers.
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
	// Lag holds, in nanoseconds, how late the questions of an open loop were asked.
	Lag *hdrhistogram.Histogram
}

// Count is the number of answers.
func (r *Result) Count() int64 {
	return r.Answers[Denied] + r.Answers[Admitted] + r.Answers[Failed]
}

// Seconds is the q-quantile, from 0 to 1, of a histogram of nanoseconds; 0 if it is empty.
func Seconds(h *hdrhistogram.Histogram, q float64) float64 {
	return time.Duration(h.ValueAtQuantile(100 * q)).Seconds()
}

// yieldEvery is how many denials in a row a caller gets before it lets others run.
// Denials may come without waiting for anything; callers that never wait would keep
// a processor from the goroutines that read from the network, for tens of
// milliseconds each.
const yieldEvery = 64

// timedEvery is how often a question of a closed loop is timed, and the clock looked at.
// Where an answer takes a tenth of a microsecond, looking at the clock for each would
// cost as much.
const timedEvery = 8

// The histograms are exact to 1 %. A time above longest counts as longest.
const (
	longest = 2 * time.Minute
	digits  = 2
)

// run is a plan under way.
type run struct {
	plan  Plan
	start time.Time
	due   []chan int // of each group: the questions that are due

	mu     sync.Mutex
	result Result
}

// Run lets the callers ask. It returns early, with an error, when the context ends, and
// asks nothing if the plan is wrong.
func Run(ctx context.Context, plan Plan) (*Result, error) {
	if plan.Callers < max(plan.Groups, 1) || plan.Questions < 0 || plan.Questions == 0 && plan.Duration <= 0 || plan.Ask == nil {
		return nil, fmt.Errorf("callers %d, groups %d, questions %d, duration %v; allowed: as many callers as groups, one or more, and questions or a duration", plan.Callers, plan.Groups, plan.Questions, plan.Duration)
	}
	ask := (*run).closed
	if plan.Rate > 0 {
		ask = (*run).open
		if plan.Questions == 0 {
			plan.Questions = max(int(float64(plan.Rate)*plan.Duration.Seconds()), 1)
		}
	}
	r := &run{plan: plan}
	if plan.Rate > 0 {
		for range max(plan.Groups, 1) {
			r.due = append(r.due, make(chan int, plan.Questions))
		}
	}
	r.result.Latency = hdrhistogram.New(1, longest.Nanoseconds(), digits)
	r.result.Lag = hdrhistogram.New(1, longest.Nanoseconds(), digits)
	var callers sync.WaitGroup
	gate := make(chan struct{})
	for caller := range plan.Callers {
		callers.Go(func() {
			<-gate
			answers := ask(r, ctx, caller)
			r.mu.Lock()
			defer r.mu.Unlock()
			for kind, n := range answers {
				r.result.Answers[kind] += n
			}
		})
	}
	r.start = time.Now()
	close(gate)
	if plan.Rate > 0 {
		r.pace(ctx)
	}
	callers.Wait()
	r.result.Elapsed = time.Since(r.start)
	return &r.result, ctx.Err()
}

// closed asks until the caller has had its share of the questions, or the time is over.
func (r *run) closed(ctx context.Context, caller int) (answers [Failed + 1]int64) {
	share := (r.plan.Questions + r.plan.Callers - 1) / r.plan.Callers
	denials := 0
	for i := 0; share == 0 || i < share; i++ {
		var answer Answer
		if i%timedEvery != 0 {
			answer = r.plan.Ask(ctx, caller, i)
		} else {
			asked := time.Now()
			if ctx.Err() != nil || share == 0 && asked.Sub(r.start) >= r.plan.Duration {
				break
			}
			answer = r.plan.Ask(ctx, caller, i)
			r.record(r.result.Latency, time.Since(asked))
		}
		answers[answer]++
		if answer != Denied {
			denials = 0
		} else if denials++; denials == yieldEvery {
			denials = 0
			runtime.Gosched()
		}
	}
	return answers
}

// dueAt is when a question of an open loop is due.
func (r *run) dueAt(i int) time.Time {
	return r.start.Add(time.Duration(i) * time.Second / time.Duration(r.plan.Rate))
}

// pace hands out the questions of an open loop when they are due. It sleeps in a thread of its own, since a goroutine's
// sleep ends up to a millisecond late when nothing else runs: the runtime then waits for its timers in whole ones.
func (r *run) pace(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := 0; i < r.plan.Questions && ctx.Err() == nil; i++ {
		for left := time.Until(r.dueAt(i)); left > 0; left = time.Until(r.dueAt(i)) {
			nap := syscall.NsecToTimespec(left.Nanoseconds())
			_ = syscall.Nanosleep(&nap, nil) // a signal ends it early
		}
		r.due[i%len(r.due)] <- i
	}
	for _, due := range r.due {
		close(due)
	}
}

// open asks the questions of the caller's group that no other caller has taken.
func (r *run) open(ctx context.Context, caller int) (answers [Failed + 1]int64) {
	for i := range r.due[caller%len(r.due)] {
		due := r.dueAt(i)
		r.record(r.result.Lag, time.Since(due))
		answers[r.plan.Ask(ctx, caller, i)]++
		r.record(r.result.Latency, time.Since(due))
	}
	return answers
}

func (r *run) record(h *hdrhistogram.Histogram, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = h.RecordValue(min(max(d, 0), longest).Nanoseconds()) // every value in the range is recorded
}
