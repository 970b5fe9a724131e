package waitqueue_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/internal/waitqueue"
)

// named is a waiter with a name, which tells when its turn comes.
type named struct {
	waitqueue.Waiter[string]
	name string
}

func newWaiter(name string, told *[]string, keys ...string) *named {
	w := &named{name: name}
	for _, key := range keys {
		w.Positions = append(w.Positions, waitqueue.Position[string]{Key: key, Room: 3})
	}
	w.Turn = func(now int64) { *told = append(*told, fmt.Sprintf("%s at %d", name, now)) }
	return w
}

// deny has some of a waiter's queues deny it.
func (w *named) deny(t *testing.T, q *waitqueue.Queues[string], now int64, until ...int64) {
	t.Helper()
	for i, at := range until {
		w.Positions[i].Until = at
	}
	if !q.Deny(&w.Waiter, now) {
		t.Errorf("there is no room for %s", w.name)
	}
}

// follow has a waiter queue behind others, in the queue of a key.
func (w *named) follow(t *testing.T, q *waitqueue.Queues[string], now int64, key string) {
	t.Helper()
	at := q.Ahead(&w.Waiter)
	if at < 0 || w.Positions[at].Key != key || !q.Follow(&w.Waiter, at, now) {
		t.Errorf("%s is not behind others in %q but at %d", w.name, key, at)
	}
}

func TestTurns(t *testing.T) {
	var q waitqueue.Queues[string]
	var told []string
	first, second, third := newWaiter("first", &told, "a", "b"), newWaiter("second", &told, "b", "c"), newWaiter("third", &told, "c")
	if at := q.Ahead(&first.Waiter); at != -1 {
		t.Fatalf("somebody is ahead of the first: %d", at)
	}
	first.deny(t, &q, 0, 10, 20)
	if first.Until != 20 || q.Release(&first.Waiter, 0) != 10 {
		t.Errorf("the first waits until %d", first.Until)
	}
	second.follow(t, &q, 1, "b")
	if at := q.Ahead(&third.Waiter); at != -1 {
		t.Errorf("the third, whom nobody is ahead of in c, is behind %d", at)
	}
	if next := q.Release(&first.Waiter, 10); next != 20 || len(told) > 0 {
		t.Errorf("at 10 the next is %d, told %v", next, told)
	}
	q.Leave(&first.Waiter, 20)
	if !slices.Equal(told, []string{"second at 20"}) {
		t.Errorf("told %v", told)
	}
	second.deny(t, &q, 20, 0, 30)
	third.follow(t, &q, 21, "c")
	q.Leave(&second.Waiter, 22)
	q.Leave(&third.Waiter, 23)
	if !slices.Equal(told, []string{"second at 20", "third at 22"}) || q.Len() > 0 {
		t.Errorf("told %v, %d queues are left", told, q.Len())
	}
}

// A queue that is full takes in nobody, and who is in no queue stays so.
func TestRoom(t *testing.T) {
	var q waitqueue.Queues[string]
	var told []string
	for i := range 3 {
		w := newWaiter(fmt.Sprint(i), &told, "a")
		if at := q.Ahead(&w.Waiter); (at < 0) != (i == 0) {
			t.Fatalf("waiter %d is behind %d", i, at)
		}
		w.deny(t, &q, 0, 10)
	}
	late := newWaiter("late", &told, "b", "a")
	if at := q.Ahead(&late.Waiter); at != 1 || q.Follow(&late.Waiter, at, 1) || late.Queued() {
		t.Errorf("the queue took in one too many, at %d", at)
	}
	late.Positions[0].Until, late.Positions[1].Until = 5, 5
	if q.Deny(&late.Waiter, 1) || late.Queued() || q.Len() != 1 {
		t.Errorf("it is in %d queues", q.Len())
	}
}

// Whatever waiters do: nobody waits in a circle, and when all act as they may, all get through.
func TestNobodyWaitsForEver(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var q waitqueue.Queues[int]
		type request struct {
			waitqueue.Waiter[int]
			behind bool
			tries  int
		}
		var waiting []*request
		for range rapid.IntRange(1, 20).Draw(rt, "requests") {
			r := &request{tries: rapid.IntRange(0, 3).Draw(rt, "tries")}
			for key := range 4 {
				if rapid.Bool().Draw(rt, "counts") {
					r.Positions = append(r.Positions, waitqueue.Position[int]{Key: key, Room: 5})
				}
			}
			r.Turn = func(int64) { r.behind = false }
			waiting = append(waiting, r)
		}
		leave := func(r *request, now int64) {
			q.Leave(&r.Waiter, now)
			waiting = slices.DeleteFunc(waiting, func(other *request) bool { return other == r })
		}
		for now := int64(1); len(waiting) > 0; now++ {
			if now > 10_000 {
				rt.Fatalf("%d wait for ever", len(waiting))
			}
			r := waiting[rapid.IntRange(0, len(waiting)-1).Draw(rt, "who")]
			if r.behind || r.Until > now {
				if r.Until > now {
					q.Release(&r.Waiter, now)
				}
				continue
			}
			if at := q.Ahead(&r.Waiter); at >= 0 {
				if r.behind = q.Follow(&r.Waiter, at, now); !r.behind {
					leave(r, now)
				}
				continue
			}
			for i := range r.Positions {
				r.Positions[i].Until = 0
				if r.tries > 0 && rapid.Bool().Draw(rt, "denies") {
					r.Positions[i].Until = now + rapid.Int64Range(1, 9).Draw(rt, "for")
				}
			}
			if r.tries--; r.tries < 0 || len(r.Positions) == 0 || !q.Deny(&r.Waiter, now) {
				leave(r, now)
			}
			if !q.Sound() {
				rt.Fatal("a queue is out of order, or too long")
			}
		}
		if q.Len() > 0 {
			rt.Fatalf("%d queues are left", q.Len())
		}
	})
}
