package algorithm_test

import (
	"fmt"
	"slices"
	"sort"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
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

// A twin is the Go algorithm of limits, which are of one algorithm. It holds a state of theirs as a store does: a step
// works on a copy, which is stored if the step changed it.
type twin struct {
	limits   []stint.Limit
	machines []algorithm.Machine

	state   algorithm.State
	written bool
	writer  int
}

func newTwin(limits []stint.Limit) *twin {
	t := &twin{limits: limits}
	for _, limit := range limits {
		t.machines = append(t.machines, algorithm.NewMachine(limit))
	}
	return t
}

func (t *twin) step(s step) result {
	if s.action == admit {
		return t.admit(s)
	}
	m, state := t.read(s)
	var out stint.Outcome
	changed := m.Apply(s.action, &state, s.now, s.n, s.keep, &out)
	out.GrowsAfter = m.GrowsAfter(&state, s.now, s.keep, out.Remaining)
	r := resultOf(out)
	r.changed = changed
	if out.Limit != m.Capacity() {
		panic("Limit is not the capacity")
	}
	t.write(s, changed, state)
	r.state = show(m, &t.state)
	return r
}

// resultOf is what an outcome says.
func resultOf(out stint.Outcome) result {
	r := result{
		allowed: out.Allowed, remaining: out.Remaining, applied: out.Applied, delay: out.Delay.Microseconds(),
		retry: out.RetryAfter.Microseconds(), reset: out.ResetAfter.Microseconds(), grows: out.GrowsAfter.Microseconds(),
	}
	if out.RetryAfter == stint.Never {
		r.retry = never
	}
	return r
}

// admit takes one after another.
func (t *twin) admit(s step) result {
	m, state := t.read(s)
	var out stint.Outcome
	largest := sort.Search(int(m.Capacity()), func(n int) bool {
		m.Apply(algorithm.Peek, &state, s.now, int64(n)+1, s.keep, &out)
		return !out.Allowed
	})
	r := result{remaining: int64(largest)}
	for range s.k {
		if m.Apply(algorithm.Take, &state, s.now, s.n, s.keep, &out) {
			r.applied++
		}
	}
	r.allowed, r.changed = r.applied > 0, r.applied > 0
	t.write(s, r.changed, state)
	r.state = show(m, &t.state)
	return r
}

// read is the stored state as the step's limit reads it.
func (t *twin) read(s step) (*algorithm.Machine, algorithm.State) {
	m, state := &t.machines[s.limit], t.state
	if t.written {
		if t.writer != s.limit {
			m.Adopt(&state, &t.machines[t.writer])
		}
		m.Read(&state, s.now)
	}
	return m, state
}

func (t *twin) write(s step, changed bool, state algorithm.State) {
	if changed {
		t.state, t.written, t.writer = state, true, s.limit
	}
}

// entries is a log's state in full.
func (t *twin) entries() []algorithm.Entry { return t.state.Log.Entries() }

// show is a state as the Lua twins have it, in three numbers.
func show(m *algorithm.Machine, s *algorithm.State) [3]int64 {
	at, second, third := int64(s.At), s.Second, s.Third
	switch m.Algorithm() {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		return [3]int64{at + second, third, at}
	case stint.AlgorithmFixedWindow:
		return [3]int64{at, at + second, third}
	case stint.AlgorithmSlidingWindowLog:
		held, newest, request := s.Log.Summary()
		return [3]int64{held, int64(newest), int64(request)}
	default:
		return [3]int64{at, second, third}
	}
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
