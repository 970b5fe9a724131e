package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// A trace draws operations of one policy for keys that are to be driven alike.
type trace struct {
	*bench
	rng    *rand.Rand
	policy *stint.Policy
}

func newTrace(b *bench, policy *stint.Policy, round int) *trace {
	rng := rand.New(rand.NewPCG(uint64(round), 2)) // #nosec G115 G404 -- small, and must be repeatable
	b.clock.Set(noon + stint.Instant(round)*hour + draw(rng, minute))
	return &trace{b, rng, policy}
}

// advance moves the clock by up to 1.5 s, a quarter of the time not at all, and
// now and then a little back.
func (tr *trace) advance() {
	switch tr.rng.IntN(8) {
	case 0, 1:
	case 2:
		tr.clock.Set(tr.clock.Now() - draw(tr.rng, second/2))
	default:
		tr.clock.Set(tr.clock.Now() + draw(tr.rng, 3*second/2))
	}
}

// next draws an operation for a key to be named.
func (tr *trace) next() func(key string) stint.Op {
	verb, permits := stint.Take, 1+tr.rng.Int64N(2)
	switch tr.rng.IntN(10) {
	case 0:
		verb = stint.Try
	case 1:
		verb, permits = stint.Settle, 1+tr.rng.Int64N(4)
		for i := range tr.policy.Len() {
			if tr.policy.Limit(i).Algorithm == stint.AlgorithmLeakyBucket {
				return func(key string) stint.Op { return operation(verb, key, tr.policy, permits) }
			}
		}
		if tr.rng.IntN(2) == 0 {
			permits = -permits
		}
	}
	return func(key string) stint.Op { return operation(verb, key, tr.policy, permits) }
}

// testRetryAfter is check 2 of ALGORITHMS.md: "on a copy of the state, nothing in
// between, the same cost at exactly t + RetryAfter is admitted; one microsecond
// earlier it is denied". The copies are keys driven alike.
func testRetryAfter(t *testing.T, newStore NewStore, opts Options) {
	eachSpecimen(t, newStore, opts.Algorithms, func(b *bench, policy *stint.Policy) {
		checked := 0
		for round := range opts.Traces {
			tr := newTrace(b, policy, round)
			keys := [3]string{}
			for i := range keys {
				keys[i] = fmt.Sprintf("%d:%d", round, i)
			}
			for range 60 {
				tr.advance()
				next := tr.next()
				var answers [3]stint.Decision
				for i, key := range keys {
					answers[i] = b.decide(next(key))
				}
				if answers[1] != answers[0] || answers[2] != answers[0] {
					b.t.Fatalf("keys driven alike got different answers: %+v", answers)
				}
				d := answers[0]
				if d.Allowed {
					continue
				}
				if d.RetryAfter <= 0 || d.RetryAfter == stint.Never {
					b.t.Fatalf("%s is denied with RetryAfter %s", describeOp(next(keys[0])), formatWait(d.RetryAfter))
				}
				end := d.At.Add(d.RetryAfter)
				b.clock.Set(end - 1)
				if b.decide(next(keys[1])).Allowed {
					b.t.Fatalf("%s was denied for %s, but is admitted a microsecond earlier", describeOp(next(keys[0])), formatWait(d.RetryAfter))
				}
				b.clock.Set(end)
				if again := b.decide(next(keys[2])); !again.Allowed {
					b.t.Fatalf("%s was denied for %s, and then again for %s", describeOp(next(keys[0])), formatWait(d.RetryAfter), formatWait(again.RetryAfter))
				}
				checked++
				break
			}
		}
		if checked == 0 {
			b.t.Fatal("no trace led to a denial")
		}
	})
}

// testPeek is the first half of check 4 of ALGORITHMS.md: "A peek changes nothing".
// Of two keys driven alike one is peeked at in between. A peek also says what the
// take after it says.
func testPeek(t *testing.T, newStore NewStore, opts Options) {
	eachSpecimen(t, newStore, opts.Algorithms, func(b *bench, policy *stint.Policy) {
		records := false
		for i := range policy.Len() {
			records = records || policy.Limit(i).CountDenied
		}
		for round := range opts.Traces {
			tr := newTrace(b, policy, round)
			watched, alone := fmt.Sprintf("watched:%d", round), fmt.Sprintf("alone:%d", round)
			for range 25 {
				tr.advance()
				next := tr.next()
				op := next(watched)
				cost := max(1, op.Permits)
				b.do(stint.Peek, watched, policy, cost+1)
				peeked := b.do(stint.Peek, watched, policy, cost)
				actual := b.decide(next(alone))
				if op.Verb != stint.Settle && (peeked.Allowed != actual.Allowed || peeked.Delay != actual.Delay) {
					b.t.Fatalf("a peek said %+v, %s says %+v", peeked, describeOp(op), actual)
				}
				recorded := records && op.Verb == stint.Take // and its wait computed after that
				if op.Verb != stint.Settle && !recorded && peeked.RetryAfter != actual.RetryAfter {
					b.t.Fatalf("a peek said %+v, %s says %+v", peeked, describeOp(op), actual)
				}
				if after := b.decide(op); after != actual {
					b.t.Fatalf("%s after peeks: %+v, without: %+v", describeOp(op), after, actual)
				}
			}
		}
	})
}

// testReset is the second half of check 4 of ALGORITHMS.md: "A reset makes the key
// as new, for every algorithm, in one step". A key that was used and then reset
// answers like one never seen, even when the clock has stepped back.
func testReset(t *testing.T, newStore NewStore, opts Options) {
	eachSpecimen(t, newStore, opts.Algorithms, func(b *bench, policy *stint.Policy) {
		for round := range opts.Traces {
			tr := newTrace(b, policy, round)
			used, other, unseen := fmt.Sprintf("used:%d", round), fmt.Sprintf("other:%d", round), fmt.Sprintf("unseen:%d", round)
			for range 10 {
				tr.advance()
				next := tr.next()
				b.decide(next(used))
				b.decide(next(other))
			}
			before := b.do(stint.Peek, other, policy, 1)
			d := b.do(stint.Reset, used, policy, 0)
			want := stint.Decision{Allowed: true, Index: d.Index, Limit: d.Limit, Remaining: d.Limit, At: b.clock.Now()}
			if d != want {
				b.t.Fatalf("a reset answers %+v, expected %+v", d, want)
			}
			if after := b.do(stint.Peek, other, policy, 1); after != before {
				b.t.Fatalf("a reset of one key changed another: %+v, before: %+v", after, before)
			}
			if round%2 == 0 {
				b.clock.Advance(-5 * time.Second)
			}
			for range 15 {
				next := tr.next()
				if reset, fresh := b.decide(next(used)), b.decide(next(unseen)); reset != fresh {
					b.t.Fatalf("%s of a key that was reset: %+v, of one never seen: %+v", describeOp(next(used)), reset, fresh)
				}
				tr.advance()
			}
		}
	})
}
