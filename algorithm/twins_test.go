package algorithm_test

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// A step is what a store asks of an algorithm: an action of n permits at now, on the
// state read by one of the run's limits.
type step struct {
	limit  int
	action algorithm.Action
	now    stint.Instant
	n      int64
	keep   int64 // how many have to be left besides
	k      int64 // of admit
	room   int64 // of admit: the largest cost that fits, as the Go algorithm found
}

// admit is not an action of the algorithms. It takes n permits k times, one after
// another. Its result is how often they were admitted, as applied, and the largest
// cost that would have been before, as remaining.
const admit = algorithm.Settle + 1

func (s step) String() string {
	verb := [...]string{"take", "peek", "deny", "settle", "admit"}[s.action]
	if s.action == admit {
		return fmt.Sprintf("limit %d at %d: %d times take %d, keep %d", s.limit, s.now, s.k, s.n, s.keep)
	}
	return fmt.Sprintf("limit %d at %d: %s %d, keep %d", s.limit, s.now, verb, s.n, s.keep)
}

// amount is the step's n as stores pass it on.
func (s step) amount() int64 {
	if s.action == algorithm.Settle {
		return algorithm.Amount(s.n)
	}
	return s.n
}

// A result is the answer to a step, times in microseconds and never as -1, and the
// state that is stored after it, in three numbers.
type result struct {
	allowed, changed                               bool
	remaining, retry, reset, delay, applied, grows int64
	state                                          [3]int64
}

const never = -1

// A twin carries out steps on the one state that it holds.
type twin interface {
	step(s step) result
	// entries is a log's state in full.
	entries() []algorithm.Entry
}

// machine is the shape that the five algorithms share.
type machine[S any] interface {
	Apply(action algorithm.Action, state *S, now stint.Instant, n, keep int64, out *stint.Outcome)
	Leaves(state *S, now stint.Instant, most int64) time.Duration
}

// keeper holds the state of a machine as a store does: a step works on a copy, which
// is stored if the step changed it.
type keeper[S any] struct {
	limits   []stint.Limit
	machines []machine[S]
	// adopt makes of a state what the reader has of it, and by what it is asked until it is written; nil for none
	adopt  func(state S, reader, writer int, now stint.Instant) (S, machine[S])
	always bool // adopt of the same limit's too
	show   func(*S) [3]int64
	list   func(*S) []algorithm.Entry // nil for none

	state   S
	written bool
	writer  int
}

func (k *keeper[S]) step(s step) result {
	if s.action == admit {
		return k.admit(s)
	}
	state, machine := k.read(s)
	var out stint.Outcome
	machine.Apply(s.action, &state, s.now, s.amount(), s.keep, &out)
	r := result{
		allowed: out.Allowed, changed: changed(s.action, k.limits[s.limit], &out),
		remaining: out.Remaining, retry: out.RetryAfter.Microseconds(), reset: out.ResetAfter.Microseconds(),
		delay: out.Delay.Microseconds(), applied: out.Applied,
	}
	if r.changed {
		machine = k.machines[s.limit]
	}
	if most := out.Limit - s.keep - out.Remaining - 1; most >= 0 { // one more remains when at most so many count
		r.grows = machine.Leaves(&state, s.now, most).Microseconds()
	}
	if out.RetryAfter == stint.Never {
		r.retry = never
	}
	if out.Limit != k.limits[s.limit].Capacity {
		panic("Limit is not the capacity")
	}
	if r.changed {
		k.state, k.written, k.writer = state, true, s.limit
	}
	r.state = k.show(&k.state)
	return r
}

// admit takes one after another.
func (k *keeper[S]) admit(s step) result {
	state, machine := k.read(s)
	apply := machine.Apply
	var out stint.Outcome
	largest := sort.Search(int(k.limits[s.limit].Capacity), func(n int) bool {
		apply(algorithm.Peek, &state, s.now, int64(n)+1, s.keep, &out)
		return !out.Allowed
	})
	r := result{remaining: int64(largest)}
	for range s.k {
		if apply(algorithm.Take, &state, s.now, s.n, s.keep, &out); out.Allowed {
			r.applied++
			apply = k.machines[s.limit].Apply
		}
	}
	if r.applied > 0 {
		r.allowed, r.changed = true, true
		k.state, k.written, k.writer = state, true, s.limit
	}
	r.state = k.show(&k.state)
	return r
}

// read is the stored state as the step's limit reads it, and by what it is asked.
func (k *keeper[S]) read(s step) (S, machine[S]) {
	if k.written && k.adopt != nil && (k.always || k.writer != s.limit) {
		return k.adopt(k.state, s.limit, k.writer, s.now)
	}
	return k.state, k.machines[s.limit]
}

// asked answers for a state that another limit wrote, until it is written.
type asked[S any] struct {
	machine[S]
	limit stint.Limit
	runs  algorithm.Changed
}

func (a *asked[S]) Apply(action algorithm.Action, state *S, now stint.Instant, n, keep int64, out *stint.Outcome) {
	if a.machine.Apply(action, state, now, n, keep, out); !changed(action, a.limit, out) {
		algorithm.CorrectWaits(a.runs, now, n, keep, false, out)
	}
}

func (a *asked[S]) Leaves(_ *S, now stint.Instant, most int64) time.Duration {
	return a.runs.Wait(now, a.limit.Capacity-most)
}

// askedLog answers for a log that another limit wrote.
type askedLog struct{ own, reader *algorithm.SlidingWindowLog }

func (a askedLog) Apply(
	action algorithm.Action, log *algorithm.Log, now stint.Instant, n, keep int64, out *stint.Outcome,
) {
	a.own.ApplyRead(a.reader, action, log, now, n, keep, out)
}

func (a askedLog) Leaves(log *algorithm.Log, now stint.Instant, most int64) time.Duration {
	return a.reader.Leaves(log, now, most)
}

// changed reports whether an action changed the state, as stores tell it.
func changed(action algorithm.Action, limit stint.Limit, out *stint.Outcome) bool {
	switch action {
	case algorithm.Take:
		return out.Allowed
	case algorithm.Deny:
		return limit.CountDenied
	case algorithm.Settle:
		return out.Applied != 0
	default:
		return false
	}
}

func (k *keeper[S]) entries() []algorithm.Entry {
	if k.list == nil {
		return nil
	}
	return k.list(&k.state)
}

// keeperOfBucket keeps the state of either bucket.
func keeperOfBucket[M interface {
	machine[algorithm.BucketState]
	Changed(state algorithm.BucketState, writer M) (algorithm.ChangedBucket, bool)
}](limits []stint.Limit, prepare func(stint.Limit) M) twin {
	machines, all := machinesOf[algorithm.BucketState](limits, prepare)
	return &keeper[algorithm.BucketState]{
		limits: limits, machines: all, show: showBucket,
		adopt: func(
			state algorithm.BucketState, reader, writer int, now stint.Instant,
		) (algorithm.BucketState, machine[algorithm.BucketState]) {
			c, changed := machines[reader].Changed(state, machines[writer])
			if !changed {
				return state, machines[reader]
			}
			return c.State(now), &asked[algorithm.BucketState]{machines[reader], limits[reader], &c}
		},
	}
}

// newTwin is the Go algorithm of the limits, which are of one algorithm.
func newTwin(limits []stint.Limit) twin {
	switch limits[0].Algorithm {
	case stint.AlgorithmTokenBucket:
		return keeperOfBucket(limits, algorithm.NewTokenBucket)
	case stint.AlgorithmLeakyBucket:
		return keeperOfBucket(limits, algorithm.NewLeakyBucket)
	case stint.AlgorithmFixedWindow:
		_, all := machinesOf[algorithm.WindowState](limits, algorithm.NewFixedWindow)
		return &keeper[algorithm.WindowState]{
			limits: limits, machines: all,
			show: func(s *algorithm.WindowState) [3]int64 { return [3]int64{int64(s.Start), int64(s.End), s.Count} },
		}
	case stint.AlgorithmSlidingWindowCounter:
		machines, all := machinesOf[algorithm.CounterState](limits, algorithm.NewSlidingWindowCounter)
		return &keeper[algorithm.CounterState]{
			limits: limits, machines: all,
			show: func(s *algorithm.CounterState) [3]int64 { return [3]int64{int64(s.Start), s.Previous, s.Current} },
			adopt: func(
				state algorithm.CounterState, reader, writer int, now stint.Instant,
			) (algorithm.CounterState, machine[algorithm.CounterState]) {
				c, changed := machines[reader].Changed(state, machines[writer])
				if !changed {
					return state, machines[reader]
				}
				return c.State(now), &asked[algorithm.CounterState]{machines[reader], limits[reader], &c}
			},
		}
	case stint.AlgorithmSlidingWindowLog:
		machines, all := machinesOf[algorithm.Log](limits, algorithm.NewSlidingWindowLog)
		return &keeper[algorithm.Log]{
			limits: limits, machines: all, always: true, list: (*algorithm.Log).Entries,
			show: func(s *algorithm.Log) [3]int64 {
				held, newest, request := s.Summary()
				return [3]int64{held, int64(newest), int64(request)}
			},
			adopt: func(
				state algorithm.Log, reader, writer int, now stint.Instant,
			) (algorithm.Log, machine[algorithm.Log]) {
				w := machines[reader]
				read := w.Reader(machines[writer])
				if read.Adopt(&state, now, read != w); read == w {
					return state, w
				}
				return state, askedLog{w, read}
			},
		}
	default:
		panic("no Go twin is known of " + limits[0].Algorithm.String())
	}
}

// machinesOf prepares each limit, as its own type and as a machine.
func machinesOf[S any, M machine[S]](limits []stint.Limit, prepare func(stint.Limit) M) ([]M, []machine[S]) {
	var machines []M
	var all []machine[S]
	for _, limit := range limits {
		m := prepare(limit)
		machines, all = append(machines, m), append(all, m)
	}
	return machines, all
}

func showBucket(s *algorithm.BucketState) [3]int64 {
	return [3]int64{int64(s.Due), s.Frac, int64(s.Last)}
}

// compare runs steps, whose Go results are known, through the Lua twin and describes
// the first difference, or returns "".
func compare(vm *vm, limits []stint.Limit, steps []step, want []result, entries []algorithm.Entry) string {
	got, gotEntries, err := vm.run(limits, steps)
	if err != nil {
		return fmt.Sprintf("Lua: %v\n%s", err, describe(limits, steps, want))
	}
	for i := range steps {
		if got[i].grows == notAsked || steps[i].action == admit {
			got[i].grows = want[i].grows
		}
		if got[i] != want[i] {
			return fmt.Sprintf("Lua differs at the last of these steps: %+v\n%s",
				got[i], describe(limits, steps[:i+1], want[:i+1]))
		}
	}
	if !slices.Equal(gotEntries, entries) {
		return fmt.Sprintf("Lua's log holds %v\nGo's holds %v\n%s", gotEntries, entries, describe(limits, steps, want))
	}
	return ""
}

// describe lists a run's limits and its last steps.
func describe(limits []stint.Limit, steps []step, results []result) string {
	var text string
	for i, limit := range limits {
		text += fmt.Sprintf("limit %d: %+v\n", i, limit)
	}
	from := max(0, len(steps)-12)
	if from > 0 {
		text += fmt.Sprintf("(%d steps before)\n", from)
	}
	for i := from; i < len(steps); i++ {
		text += fmt.Sprintf("%v\n    %+v\n", steps[i], results[i])
	}
	return text
}
