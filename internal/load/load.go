// Package load asks questions, for load tests: in a closed loop, in which each caller asks again as
// soon as it is answered, or in an open loop, in which questions are due at a rate, whatever is
// answered and when.
//
// A [Plan] says how; what is asked, and what is made of the answer, is a function of the caller's.
// In an open loop the time of a question counts from when it was due, so that a target that stalls
// is not measured as if nobody had wanted anything meanwhile (coordinated omission).
package load

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
)

// A Plan is the callers, their rate and when they end. An open loop has a Length or Questions; a closed loop may have
// neither, and ends with its context.
type Plan struct {
	// Callers is the number of goroutines, 1 or more. Each waits for its answer before it asks again.
	Callers int
	// Rate is how many questions are due, for all callers together. The zero Rate makes a closed loop.
	Rate stint.Rate
	// Length is for how long questions are due. 0: no end. Those that are late are still asked then.
	Length time.Duration
	// Questions is how many are asked in all. A closed loop gives each caller an equal share. 0: no
	// end.
	Questions int
	// Ask asks one question. In a closed loop i counts the caller's own questions, and due is zero; in
	// an open loop i counts those of all callers. Both start with 0. A question that finds no caller
	// free is asked late.
	Ask func(caller, i int, due time.Time)
	// Sleep waits for a question to be due. nil: [sleep.Thread]. It may return early.
	Sleep func(time.Duration)
}

// yieldEvery is how many questions a caller asks before it lets others run. Some are answered without waiting for
// anything; callers that never wait would keep a processor from the goroutines that read from the network, for tens of
// milliseconds each.
const yieldEvery = 64

// longestNap is for how long an open loop doesn't look whether its context has ended.
const longestNap = 50 * time.Millisecond

// Run lets the callers ask until the plan is done, or the context ends; it waits for their last
// answers.
func (p *Plan) Run(ctx context.Context) {
	var callers sync.WaitGroup
	defer callers.Wait()
	if p.Rate.Permits == 0 {
		p.closed(ctx, &callers)
		return
	}
	due := make(chan int, p.number())
	start := time.Now()
	for caller := range p.Callers {
		callers.Go(func() {
			for i := range due {
				if ctx.Err() == nil {
					p.Ask(caller, i, start.Add(p.due(i)))
				}
			}
		})
	}
	p.pace(ctx, start, due)
}

// number is how many questions an open loop has.
func (p *Plan) number() int {
	n := math.Inf(1)
	if p.Length > 0 {
		n = math.Ceil(float64(p.Length) * float64(p.Rate.Permits) / float64(p.Rate.Period))
	}
	if p.Questions > 0 {
		n = min(n, float64(p.Questions))
	}
	return int(n)
}

// due is when a question of an open loop is due, after its start.
func (p *Plan) due(i int) time.Duration {
	return time.Duration(float64(i) * float64(p.Rate.Period) / float64(p.Rate.Permits))
}

// pace hands out the questions of an open loop when they are due, from a thread of its own.
func (p *Plan) pace(ctx context.Context, start time.Time, due chan<- int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(due)
	nap := p.Sleep
	if nap == nil {
		nap = sleep.Thread
	}
	for i := range cap(due) {
		for left := p.due(i) - time.Since(start); left > 0 && ctx.Err() == nil; left = p.due(i) - time.Since(start) {
			nap(min(left, longestNap))
		}
		if ctx.Err() != nil {
			return
		}
		due <- i
	}
}

// closed starts the callers of a closed loop, and waits for them. They look at a flag: for answers that
// take a tenth of a microsecond, looking at the clock would cost as much.
func (p *Plan) closed(ctx context.Context, callers *sync.WaitGroup) {
	if p.Length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Length)
		defer cancel()
	}
	var over atomic.Bool
	defer context.AfterFunc(ctx, func() { over.Store(true) })()
	for caller := range p.Callers {
		callers.Go(func() {
			share := (p.Questions + p.Callers - 1 - caller) / p.Callers
			for i := 0; (p.Questions == 0 || i < share) && !over.Load(); i++ {
				p.Ask(caller, i, time.Time{})
				if i%yieldEvery == yieldEvery-1 {
					runtime.Gosched()
				}
			}
		})
	}
	callers.Wait()
}
