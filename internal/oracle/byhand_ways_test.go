package oracle

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

// A wayStep is a step of a hand-computed example with ways: what an operation of n permits each answers so long
// after noon.
type wayStep struct {
	at      stint.Instant
	verb    stint.Verb
	n       int64
	allowed bool
	via     uint8
	index   int16
	each    []stint.Outcome
}

// ok and no are what a limit says that admits, or does not. Times are in seconds; -1 is never.
func ok(limit, left, reset, grows int64) stint.Outcome {
	return stint.Outcome{Allowed: true, Limit: limit, Remaining: left, ResetAfter: seconds(reset), GrowsAfter: seconds(grows)}
}

func no(limit, left, retry, reset, grows int64) stint.Outcome {
	o := ok(limit, left, reset, grows)
	o.Allowed, o.RetryAfter = false, seconds(retry)
	return o
}

func seconds(n int64) time.Duration {
	if n == never {
		return stint.Never
	}
	return time.Duration(n) * time.Second
}

func TestOracleWaysByHand(t *testing.T) {
	child := policyOf(t, "child", stint.FixedWindow(2, 10*time.Second))
	parent := policyOf(t, "parent", stint.FixedWindow(5, time.Minute))
	also := policyOf(t, "also", stint.FixedWindow(1, 10*time.Second))
	hammered := policyOf(t, "hammered", stint.SlidingWindowLog(2, 10*time.Second).CountingDenied())
	both := policyOf(t, "both", stint.FixedWindow(2, 10*time.Second), stint.FixedWindow(3, time.Minute).Named("m"))
	claim := func(key string, p *stint.Policy, keep int64) stint.Claim {
		return stint.Claim{Key: key, Policy: p, Keep: keep}
	}
	for _, example := range []struct {
		name   string
		must   []stint.Claim
		groups [][]stint.Way
		steps  []wayStep
	}{
		{"a floor, else what the parent does not keep", nil, [][]stint.Way{{{claim("c", child, 0), claim("p", parent, 0)}, {claim("p", parent, 2)}}}, []wayStep{
			// Ways 0 and 1 have 0 and 1 left: way 0 decides, since it was charged.
			{0, take, 2, true, 0, 0, []stint.Outcome{ok(2, 0, 10, 10), ok(5, 3, 60, 60), ok(5, 1, 60, 60)}},
			// Way 1 is charged: the parent of way 0 tells what that has left, and does not decide.
			{0, take, 1, true, 1, 2, []stint.Outcome{no(2, 0, 10, 10, 10), ok(5, 2, 60, 60), ok(5, 0, 60, 60)}},
			// The floor waits less than the parent.
			{0, take, 1, false, 0, 0, []stint.Outcome{no(2, 0, 10, 10, 10), ok(5, 2, 60, 60), no(5, 0, 60, 60, 60)}},
			{0, try, 1, false, 0, 0, []stint.Outcome{no(2, 0, 10, 10, 10), ok(5, 2, 60, 60), no(5, 0, 60, 60, 60)}},
			{10 * s, peek, 1, true, 0, 0, []stint.Outcome{ok(2, 2, 0, 0), ok(5, 2, 50, 50), no(5, 0, 50, 50, 50)}},
			// Way 0 never admits 3.
			{10 * s, take, 3, false, 0, 2, []stint.Outcome{no(2, 2, never, 0, 0), no(5, 2, 50, 50, 50), no(5, 0, 50, 50, 50)}},
			// No way ever admits 6: the first one's first limit decides.
			{10 * s, take, 6, false, 0, 0, []stint.Outcome{no(2, 2, never, 0, 0), no(5, 2, never, 50, 50), no(5, 0, never, 50, 50)}},
			{10 * s, take, 1, true, 0, 0, []stint.Outcome{ok(2, 1, 10, 10), ok(5, 1, 50, 50), no(5, 0, 50, 50, 50)}},
			{10 * s, reset, 0, true, 0, 0, []stint.Outcome{ok(2, 2, 0, 0), ok(5, 5, 0, 0), ok(5, 3, 0, 0)}},
		}},
		{"two floors share a parent", nil, [][]stint.Way{{{claim("c", child, 0), claim("p", parent, 0)}, {claim("d", child, 0), claim("p", parent, 1)}, {claim("p", parent, 4)}}}, []wayStep{
			{0, peek, 1, true, 0, 0, []stint.Outcome{ok(2, 2, 0, 0), ok(5, 5, 0, 0), ok(2, 2, 0, 0), ok(5, 4, 0, 0), ok(5, 1, 0, 0)}},
			{0, take, 2, true, 0, 0, []stint.Outcome{ok(2, 0, 10, 10), ok(5, 3, 60, 60), ok(2, 2, 0, 0), ok(5, 2, 60, 60), no(5, 0, never, 60, 60)}},
			{0, take, 2, true, 1, 2, []stint.Outcome{no(2, 0, 10, 10, 10), ok(5, 1, 60, 60), ok(2, 0, 10, 10), ok(5, 0, 60, 60), no(5, 0, never, 60, 60)}},
		}},
		{"a third way", nil, [][]stint.Way{{{claim("p", parent, 4)}, {claim("p", parent, 3)}, {claim("p", parent, 0)}}}, []wayStep{
			{0, take, 1, true, 0, 0, []stint.Outcome{ok(5, 0, 60, 60), ok(5, 1, 60, 60), ok(5, 4, 60, 60)}},
			{0, take, 1, true, 1, 1, []stint.Outcome{no(5, 0, 60, 60, 60), ok(5, 0, 60, 60), ok(5, 3, 60, 60)}},
			{0, take, 1, true, 2, 2, []stint.Outcome{no(5, 0, 60, 60, 60), no(5, 0, 60, 60, 60), ok(5, 2, 60, 60)}},
			{0, take, 3, false, 0, 2, []stint.Outcome{no(5, 0, never, 60, 60), no(5, 0, never, 60, 60), no(5, 2, 60, 60, 60)}},
			{0, take, 1, true, 2, 2, []stint.Outcome{no(5, 0, 60, 60, 60), no(5, 0, 60, 60, 60), ok(5, 1, 60, 60)}},
			{0, take, 1, true, 2, 2, []stint.Outcome{no(5, 0, 60, 60, 60), no(5, 0, 60, 60, 60), ok(5, 0, 60, 60)}},
			// All ways wait as long: the first decides.
			{0, take, 1, false, 0, 0, []stint.Outcome{no(5, 0, 60, 60, 60), no(5, 0, 60, 60, 60), no(5, 0, 60, 60, 60)}},
		}},
		{"a limit that has to admit", []stint.Claim{claim("k", also, 0)}, [][]stint.Way{{{claim("c", child, 0), claim("p", parent, 0)}, {claim("p", parent, 2)}}}, []wayStep{
			{0, take, 1, true, 0, 0, []stint.Outcome{ok(1, 0, 10, 10), ok(2, 1, 10, 10), ok(5, 4, 60, 60), ok(5, 2, 60, 60)}},
			// It alone denies: nothing of the ways is charged.
			{0, take, 1, false, 0, 0, []stint.Outcome{no(1, 0, 10, 10, 10), ok(2, 1, 10, 10), ok(5, 4, 60, 60), ok(5, 2, 60, 60)}},
			{10 * s, take, 1, true, 0, 0, []stint.Outcome{ok(1, 0, 10, 10), ok(2, 1, 10, 10), ok(5, 3, 50, 50), ok(5, 1, 50, 50)}},
			{20*s - 1, peek, 2, false, 0, 0, []stint.Outcome{
				{Limit: 1, RetryAfter: stint.Never, ResetAfter: 1000, GrowsAfter: 1000},
				{Limit: 2, Remaining: 1, RetryAfter: 1000, ResetAfter: 1000, GrowsAfter: 1000},
				{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 40*time.Second + 1000, GrowsAfter: 40*time.Second + 1000},
				{Limit: 5, Remaining: 1, RetryAfter: 40*time.Second + 1000, ResetAfter: 40*time.Second + 1000, GrowsAfter: 40*time.Second + 1000},
			}},
		}},
		{"two groups", nil, [][]stint.Way{{{claim("c", child, 1)}, {claim("p", parent, 3)}}, {{claim("d", child, 0)}, {claim("q", parent, 0)}}}, []wayStep{
			{0, take, 1, true, 0, 0, []stint.Outcome{ok(2, 0, 10, 10), ok(5, 2, 0, 0), ok(2, 1, 10, 10), ok(5, 5, 0, 0)}},
			// Via is of the first group. The second is charged on its first way.
			{0, take, 1, true, 1, 2, []stint.Outcome{no(2, 0, 10, 10, 10), ok(5, 1, 60, 60), ok(2, 0, 10, 10), ok(5, 5, 0, 0)}},
			{0, take, 1, true, 1, 1, []stint.Outcome{no(2, 0, 10, 10, 10), ok(5, 0, 60, 60), no(2, 0, 10, 10, 10), ok(5, 4, 60, 60)}},
			// The first group denies: the second is not charged, and waits for nothing.
			{0, take, 1, false, 0, 0, []stint.Outcome{no(2, 0, 10, 10, 10), no(5, 0, 60, 60, 60), no(2, 0, 10, 10, 10), ok(5, 4, 60, 60)}},
			{10 * s, peek, 1, true, 0, 0, []stint.Outcome{ok(2, 1, 0, 0), no(5, 0, 50, 50, 50), ok(2, 2, 0, 0), ok(5, 4, 50, 50)}},
			{10 * s, take, 1, true, 0, 0, []stint.Outcome{ok(2, 0, 10, 10), no(5, 0, 50, 50, 50), ok(2, 1, 10, 10), ok(5, 4, 50, 50)}},
		}},
		// Of equal limits the first in the operation's order decides: what has to admit is before the groups.
		{"a limit that has to admit is like one of a way", []stint.Claim{claim("k", also, 0)}, [][]stint.Way{
			{{claim("c", child, 1)}, {claim("p", parent, 5)}},
		}, []wayStep{
			{0, take, 1, true, 0, 0, []stint.Outcome{ok(1, 0, 10, 10), ok(2, 0, 10, 10), no(5, 0, never, 0, 0)}},
			{0, take, 1, false, 0, 0, []stint.Outcome{no(1, 0, 10, 10, 10), no(2, 0, 10, 10, 10), no(5, 0, never, 0, 0)}},
		}},
		{"a way that may be empty, alone", nil, [][]stint.Way{{{claim("c", child, 0)}, nil}}, []wayStep{
			{0, peek, 3, true, 1, 0, []stint.Outcome{no(2, 2, never, 0, 0)}},
			{0, take, 1, true, 0, 0, []stint.Outcome{ok(2, 1, 10, 10)}},
			{0, take, 2, true, 1, 0, []stint.Outcome{no(2, 1, 10, 10, 10)}}, // nothing is charged
			{0, take, 1, true, 0, 0, []stint.Outcome{ok(2, 0, 10, 10)}},
			{0, take, 1, true, 1, 0, []stint.Outcome{no(2, 0, 10, 10, 10)}},
			{10 * s, try, 1, true, 0, 0, []stint.Outcome{ok(2, 1, 10, 10)}},
			{10 * s, reset, 0, true, 0, 0, []stint.Outcome{ok(2, 2, 0, 0)}},
		}},
		// The child has less than the parent, and waits longer, and does not decide.
		{"a way that may be empty beside a limit that has to admit", []stint.Claim{claim("p", parent, 0)}, [][]stint.Way{
			{{claim("c", child, 0)}, nil},
		}, []wayStep{
			{0, take, 1, true, 0, 0, []stint.Outcome{ok(5, 4, 60, 60), ok(2, 1, 10, 10)}},
			{0, take, 2, true, 1, 0, []stint.Outcome{ok(5, 2, 60, 60), no(2, 1, 10, 10, 10)}},
			// The parent denies: nothing is charged of the child, whether it would fit or not.
			{0, take, 3, false, 0, 0, []stint.Outcome{no(5, 2, 60, 60, 60), no(2, 1, never, 10, 10)}},
			{0, take, 2, true, 1, 0, []stint.Outcome{ok(5, 0, 60, 60), no(2, 1, 10, 10, 10)}},
			{0, take, 1, false, 0, 0, []stint.Outcome{no(5, 0, 60, 60, 60), ok(2, 1, 10, 10)}},
			{0, peek, 1, false, 0, 0, []stint.Outcome{no(5, 0, 60, 60, 60), ok(2, 1, 10, 10)}},
		}},
		{"an empty way behind two, and a group behind that", nil, [][]stint.Way{
			{{claim("c", child, 0)}, {claim("d", child, 1)}, nil}, {{claim("p", parent, 0)}},
		}, []wayStep{
			{0, take, 1, true, 0, 2, []stint.Outcome{ok(2, 1, 10, 10), ok(2, 1, 0, 0), ok(5, 4, 60, 60)}},
			{0, take, 1, true, 0, 2, []stint.Outcome{ok(2, 0, 10, 10), ok(2, 1, 0, 0), ok(5, 3, 60, 60)}},
			{0, take, 1, true, 1, 2, []stint.Outcome{no(2, 0, 10, 10, 10), ok(2, 0, 10, 10), ok(5, 2, 60, 60)}},
			{0, take, 1, true, 2, 2, []stint.Outcome{no(2, 0, 10, 10, 10), no(2, 0, 10, 10, 10), ok(5, 1, 60, 60)}},
			{0, take, 2, false, 0, 2, []stint.Outcome{no(2, 0, 10, 10, 10), no(2, 0, never, 10, 10), no(5, 1, 60, 60, 60)}},
		}},
		{"a limit that counts denied requests beside ways", []stint.Claim{claim("k", hammered, 0)}, [][]stint.Way{{{claim("a", parent, 4)}, {claim("b", parent, 4)}}}, []wayStep{
			{0, take, 1, true, 0, 1, []stint.Outcome{ok(2, 1, 10, 10), ok(5, 0, 60, 60), ok(5, 1, 0, 0)}},
			{0, take, 1, true, 1, 0, []stint.Outcome{ok(2, 0, 10, 10), no(5, 0, 60, 60, 60), ok(5, 0, 60, 60)}},
			{10 * s, try, 1, false, 0, 1, []stint.Outcome{ok(2, 2, 0, 0), no(5, 0, 50, 50, 50), no(5, 0, 50, 50, 50)}},
			{10 * s, take, 1, false, 0, 1, []stint.Outcome{ok(2, 1, 10, 10), no(5, 0, 50, 50, 50), no(5, 0, 50, 50, 50)}},
		}},
		// The limits of one policy are one way: both admit, or it does not.
		{"a policy of two limits", nil, [][]stint.Way{{{claim("c", both, 0)}, {claim("p", parent, 0)}}}, []wayStep{
			{0, take, 2, true, 0, 0, []stint.Outcome{ok(2, 0, 10, 10), ok(3, 1, 60, 60), ok(5, 5, 0, 0)}},
			{10 * s, take, 2, true, 1, 2, []stint.Outcome{ok(2, 2, 0, 0), no(3, 1, 50, 50, 50), ok(5, 3, 50, 50)}},
			{10 * s, take, 1, true, 0, 1, []stint.Outcome{ok(2, 1, 10, 10), ok(3, 0, 50, 50), ok(5, 3, 50, 50)}},
			{10 * s, take, 5, false, 0, 2, []stint.Outcome{no(2, 1, never, 10, 10), no(3, 0, never, 50, 50), no(5, 3, 50, 50, 50)}},
		}},
	} {
		t.Run(example.name, func(t *testing.T) {
			oracle := New(0)
			for i, l := range example.steps {
				op := Copy(stint.Op{Verb: l.verb, And: example.must, Extra: &stint.Extra{Groups: example.groups}})
				if len(op.And) > 0 {
					op.Claim, op.And = op.And[0], op.And[1:]
				}
				for _, c := range Claims(&op) {
					c.Permits = l.n
				}
				must.Do(t, op.Validate())
				o := l.each[l.index]
				d := stint.Decision{
					Allowed: l.allowed, Via: l.via, Index: l.index, At: noon + l.at,
					Limit: o.Limit, Remaining: o.Remaining, ResetAfter: o.ResetAfter,
				}
				if !l.allowed {
					d.RetryAfter = o.RetryAfter
				}
				if _, err := oracle.Check(op, noon+l.at, Answer{Decision: d, Each: l.each}); err != nil {
					t.Errorf("line %d, the oracle expects otherwise: %v", i, err)
					oracle.Decide(op, noon+l.at)
				}
			}
		})
	}
}

// A state that two ways share was dropped for both of them, or for none.
func TestOracleForgettingSharedState(t *testing.T) {
	parent := policyOf(t, "", stint.FixedWindow(5, 10*time.Second))
	op := stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{{
		{{Key: "k", Policy: parent, Permits: 1, Keep: 2}}, {{Key: "k", Policy: parent, Permits: 1}},
	}}}}
	for left, want := range map[[2]int64]bool{{0, 2}: true, {2, 4}: true, {0, 4}: false, {2, 2}: false} {
		oracle := New(0)
		oracle.Decide(operation(stint.VerbTake, "k", parent, 2), noon)
		oracle.Decide(operation(stint.VerbTake, "other", parent, 2), noon+30*second)
		each := []stint.Outcome{ok(5, left[0], 10, 10), ok(5, left[1], 10, 10)}
		_, err := oracle.Check(op, noon, Answer{Each: each, Decision: stint.Decision{
			Allowed: true, Limit: 5, Remaining: left[0], ResetAfter: 10 * time.Second, At: noon,
		}})
		if (err == nil) != want {
			t.Errorf("%d left: %v; expected to be accepted: %t", left, err, want)
		}
	}
}

// Ways are told in the description of an operation.
func TestDescribeWays(t *testing.T) {
	p := policyOf(t, "", stint.FixedWindow(5, 10*time.Second))
	op := stint.Op{
		Claim: stint.Claim{Key: "c", Policy: p, Permits: 1},
		Extra: &stint.Extra{Groups: [][]stint.Way{{
			{{Key: "a", Policy: p, Permits: 1}, {Key: "b", Policy: p, Permits: 1}},
			{{Key: "b", Policy: p, Permits: 1, Keep: 3}},
			nil,
		}}},
	}
	const of = ` under policy "" of {Algorithm FIXED_WINDOW, Capacity 5, Window 10s}`
	want := `take 1 of key "c"` + of + ` either 1 of key "a"` + of + ` with 1 of key "b"` + of + ` else 1 of key "b" keeping 3` + of + ` else nothing`
	if got := Describe(op); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
