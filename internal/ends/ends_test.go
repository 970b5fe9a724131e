package ends_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/ends"
)

// A store that fails until an instant.
type store struct {
	back    time.Time
	tries   atomic.Int64
	arrived atomic.Int64
}

func (s *store) send(context.Context) error {
	s.tries.Add(1)
	if time.Now().Before(s.back) {
		return stint.ErrUnavailable
	}
	s.arrived.Add(1)
	return nil
}

// What failed arrives when the store is back, and few tries are made until then.
func TestEndsArriveAfterAnOutage(t *testing.T) {
	for _, n := range []int{1, 64, 65, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{back: time.Now().Add(2 * time.Minute)}
				var q ends.Queue
				for range n {
					if !q.Add(stint.ErrUnavailable, ends.End{Send: s.send, Until: time.Now().Add(3 * time.Minute)}) {
						t.Fatal("it is not repeated")
					}
				}
				time.Sleep(2 * time.Minute) //nolint:forbidigo // the bubble's time
				if rounds := s.tries.Load() / int64(min(n, 64)); rounds < 20 || rounds > 60 {
					t.Errorf("%d rounds in two minutes", rounds)
				}
				time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's time
				if got := s.arrived.Load(); got != int64(n) {
					t.Errorf("%d of %d arrived", got, n)
				}
				if waiting, lost := q.Counts(); waiting != 0 || lost != 0 {
					t.Errorf("%d wait, %d are lost", waiting, lost)
				}
			})
		})
	}
}

// One that can't be sent holds up no others.
func TestEndsPassOneThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q ends.Queue
		until := time.Now().Add(time.Hour)
		never := func(context.Context) error { return stint.ErrUnavailable }
		for range 200 {
			q.Add(stint.ErrUnavailable, ends.End{Send: never, Until: until})
		}
		s := &store{}
		q.Add(stint.ErrUnavailable, ends.End{Send: s.send, Until: until})
		time.Sleep(10 * time.Second) //nolint:forbidigo // the bubble's time
		if s.arrived.Load() != 1 {
			t.Error("it has not arrived behind 200 that fail")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = q.Drain(ctx)
	})
}

// What the store does not take, or not in time, is given up and told once.
func TestEndsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			first, later error
			repeated     bool
			after        time.Duration // 0: nothing is told later
		}{
			{first: stint.ErrUnavailable, later: stint.ErrUnavailable, repeated: true, after: time.Minute},
			{first: stint.ErrOverloaded, later: stint.ErrUnknownReservation, repeated: true, after: 50 * time.Millisecond},
			{first: context.DeadlineExceeded, later: nil, repeated: true},
			{first: stint.ErrUnknownReservation},
			{first: stint.ErrOtherClaims},
			{first: stint.Invalid("permits", -1, "0 or more")},
		} {
			var q ends.Queue
			start := time.Now()
			told := make(chan error, 2)
			repeated := q.Add(test.first, ends.End{
				Send:   func(context.Context) error { return test.later },
				Until:  start.Add(time.Minute),
				GaveUp: func(err error) { told <- err },
			})
			if repeated != test.repeated {
				t.Errorf("%v: repeated: %v", test.first, repeated)
			}
			time.Sleep(2 * time.Minute) //nolint:forbidigo // the bubble's time
			_, lost := q.Counts()
			if want := !test.repeated || test.after > 0; (lost == 1) != want || len(told) > 1 {
				t.Errorf("%v, then %v: %d are lost, told %d times", test.first, test.later, lost, len(told))
			}
			if test.after > 0 {
				if err := <-told; !errors.Is(err, test.later) {
					t.Errorf("%v, then %v: told %v", test.first, test.later, err)
				}
			}
		}
		var q ends.Queue
		if q.Add(stint.ErrUnavailable, ends.End{Until: time.Now()}) {
			t.Error("one whose time is over is repeated")
		}
	})
}

// A queue that is full refuses, and goes on with what it has.
func TestEndsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{back: time.Now().Add(time.Minute)}
		var q ends.Queue
		end := ends.End{Send: s.send, Until: time.Now().Add(time.Hour)}
		for i := range ends.Most {
			if !q.Add(stint.ErrUnavailable, end) {
				t.Fatal("refused at", i)
			}
		}
		if q.Add(stint.ErrUnavailable, end) {
			t.Error("a full queue takes one more")
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // the bubble's time
		if waiting, lost := q.Counts(); waiting != 0 || lost != 1 || s.arrived.Load() != ends.Most {
			t.Errorf("%d wait, %d are lost, %d arrived", waiting, lost, s.arrived.Load())
		}
		if !q.Add(stint.ErrUnavailable, end) {
			t.Error("it stays full")
		}
		if err := q.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A drain waits for what is there, sends it at once, and gives it up when its time is over.
func TestEndsDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q ends.Queue
		if err := q.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		s := &store{back: time.Now().Add(20 * time.Second)}
		end := ends.End{Send: s.send, Until: time.Now().Add(time.Hour)}
		q.Add(stint.ErrUnavailable, end)
		time.Sleep(20*time.Second + time.Millisecond) //nolint:forbidigo // the bubble's time: it pauses for long by now
		start := time.Now()
		if err := q.Drain(t.Context()); err != nil || s.arrived.Load() != 1 {
			t.Errorf("%d arrived: %v", s.arrived.Load(), err)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("it took %v though the store is there", took)
		}

		told := make(chan error, 10)
		blocked := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		for _, send := range []func(context.Context) error{blocked, func(context.Context) error { return stint.ErrUnavailable }} {
			q.Add(stint.ErrUnavailable, ends.End{Send: send, Until: time.Now().Add(time.Hour), GaveUp: func(err error) { told <- err }})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start = time.Now()
		err := q.Drain(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "stint: 2 commits") || len(told) != 2 {
			t.Errorf("told %d times: %v", len(told), err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		if !q.Add(stint.ErrUnavailable, end) { // it can be used again
			t.Error("it takes nothing after a drain")
		}
		if err := q.Drain(t.Context()); err != nil || s.arrived.Load() != 2 {
			t.Errorf("%d arrived: %v", s.arrived.Load(), err)
		}
	})
}
