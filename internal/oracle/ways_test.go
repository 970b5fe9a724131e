package oracle_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/oracle"
)

// A script is a hold's life by hand: a child of 2 per 10 seconds, and its parent of 6 per minute, which keeps 2 for it.
type script struct {
	*testing.T
	oracle        *oracle.Oracle
	child, parent *stint.Policy
	at            stint.Instant
}

func newScript(t *testing.T) *script {
	policy := func(name string, l stint.Limit) *stint.Policy {
		p, err := stint.NewPolicy(name, l)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	return &script{
		t, oracle.New(10), policy("child", stint.FixedWindow(2, 10*time.Second)),
		policy("parent", stint.FixedWindow(6, time.Minute)), dawn,
	}
}

func (s *script) op(verb stint.Verb, n int64) stint.Op {
	return stint.Op{
		Verb: verb,
		Extra: &stint.Extra{Groups: [][]stint.Way{{
			{{Key: "c", Policy: s.child, Permits: n}, {Key: "p", Policy: s.parent, Permits: n}},
			{{Key: "p", Policy: s.parent, Permits: n, Keep: 2}},
		}}},
	}
}

// do carries out an operation on a hold.
func (s *script) do(verb stint.Verb, n int64, hold stint.HoldOp) oracle.Answer {
	s.Helper()
	op := s.op(verb, n)
	op.Extra.Hold = &hold
	if err := op.Validate(); err != nil {
		s.Fatal(err)
	}
	return s.oracle.Decide(op, s.at)
}

// hold is a hold of 20 seconds.
func hold(id string) stint.HoldOp {
	return stint.HoldOp{Hold: stint.Hold{ID: id, TTL: 20 * time.Second}}
}

// answers checks an answer: admitted by a way, or denied for so many seconds.
func (s *script) answers(a oracle.Answer, via uint8, wait int64) {
	s.Helper()
	d := a.Decision
	if a.Err != nil || d.Allowed != (wait == 0) || d.Via != via || d.RetryAfter != time.Duration(wait)*time.Second {
		s.Errorf("%+v, %v; expected via %d, or a wait of %d s", d, a.Err, via, wait)
	}
}

// left checks what is left of both.
func (s *script) left(child, parent int64) {
	s.Helper()
	a := s.oracle.Decide(s.op(stint.VerbPeek, 1), s.at)
	if got, want := []int64{a.Each[0].Remaining, a.Each[1].Remaining}, []int64{child, parent}; !slices.Equal(got, want) {
		s.Errorf("%d left, expected %d", got, want)
	}
}

// A hold grows, and ends, on the way that it is on.
func TestHoldStaysOnItsWay(t *testing.T) {
	s := newScript(t)
	s.answers(s.do(stint.VerbReserve, 2, hold("a")), 0, 0)
	s.left(0, 4)
	s.answers(s.do(stint.VerbReserve, 1, hold("b")), 1, 0)
	s.left(0, 3)
	s.at += 10_000_000 // the child has 2 again
	s.answers(s.do(stint.VerbReserve, 2, hold("b")), 1, 0)
	s.left(2, 2)
	// The child would admit one more, but it is not asked: b waits until a expires.
	s.answers(s.do(stint.VerbReserve, 3, hold("b")), 0, 10)
	// The child never admits 3: until a and b expire.
	s.answers(s.do(stint.VerbReserve, 3, hold("c")), 0, 20)
	s.answers(s.do(stint.VerbReserve, 1, hold("c")), 0, 0)
	s.left(1, 1)
	s.answers(s.do(stint.VerbCommit, 1, hold("b")), 1, 0)
	s.left(1, 2)
	a := s.do(stint.VerbCommit, 1, hold("b"))
	if s.answers(a, 1, 0); !a.Hold.Replayed || a.Decision.Applied != -1 {
		t.Errorf("the same commit again: %+v", a)
	}
	s.answers(s.do(stint.VerbCancel, 0, hold("a")), 0, 0) // the window of its child is over
	s.left(1, 4)
	s.answers(s.do(stint.VerbCommit, 4, hold("c")), 0, 0) // with its debt of 2 the child admits all of it
	s.left(0, 1)
}

// A hold that was released is decided anew; one that was kept stays on its way.
func TestHoldAfterItsExpiry(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := newScript(t)
		s.answers(s.do(stint.VerbReserve, 2, hold("a")), 0, 0)
		b := hold("b")
		b.OnExpiry = stint.Expiry(keep)
		s.answers(s.do(stint.VerbReserve, 2, b), 1, 0)
		s.at += 20_000_000
		if !keep {
			s.left(2, 6)
			s.answers(s.do(stint.VerbReserve, 2, b), 0, 0)
			s.left(0, 4)
			continue
		}
		s.left(2, 4)
		s.answers(s.do(stint.VerbReserve, 2, b), 1, 0) // nothing is lacking
		s.left(2, 4)
		s.answers(s.do(stint.VerbReserve, 4, b), 1, 0)
		s.left(2, 2)
	}
}

// A late commit is charged on the way that its hold was on, one of a hold that the store has lost on the first.
func TestLateCommitOfWays(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := newScript(t)
		s.answers(s.do(stint.VerbReserve, 2, hold("a")), 0, 0)
		b := hold("b")
		b.OnExpiry = stint.Expiry(keep)
		s.answers(s.do(stint.VerbReserve, 1, b), 1, 0)
		s.at += 30_000_000
		if a := s.do(stint.VerbCommit, 3, b); !a.Hold.Late {
			t.Errorf("%+v", a)
		} else {
			s.answers(a, 1, 0)
		}
		s.left(2, 3)
	}
	s := newScript(t)
	lost := hold("lost")
	lost.ExpiresAt = s.at + 1
	if a := s.do(stint.VerbCommit, 1, lost); !a.Hold.Late {
		t.Errorf("%+v", a)
	} else {
		s.answers(a, 0, 0)
	}
	s.left(1, 5)
}

// A hold has other claims if they are in other ways.
func TestHoldOfOtherWays(t *testing.T) {
	s := newScript(t)
	s.answers(s.do(stint.VerbReserve, 1, hold("a")), 0, 0)
	fewer, parted := s.op(stint.VerbCommit, 1), s.op(stint.VerbCommit, 1)
	ways := parted.Extra.Groups[0]
	fewer.Extra.Groups[0] = fewer.Extra.Groups[0][:1]
	parted.Extra.Groups[0] = []stint.Way{ways[0][:1], ways[0][1:], ways[1]}
	for _, op := range []stint.Op{fewer, parted} {
		h := hold("a")
		op.Extra.Hold = &h
		if a := s.oracle.Decide(op, s.at); !errors.Is(a.Err, stint.ErrOtherClaims) {
			t.Errorf("%+v", a)
		}
	}
	s.left(1, 5)
}
