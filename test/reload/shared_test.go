package reload_test

import (
	"fmt"
	"sync/atomic"

	"github.com/stint-go/stint"
)

// tally counts what a shared rule admitted by what it left behind.
type tally struct {
	left   []atomic.Int64
	denied atomic.Int64
}

func newTally(capacity int64) *tally { return &tally{left: make([]atomic.Int64, capacity)} }

// note takes in what the rule's limit said, of a request that was admitted or not.
func (t *tally) note(o stint.Outcome, admitted bool) error {
	switch {
	case o.Limit != int64(len(t.left)) || o.Remaining < 0 || o.Remaining >= o.Limit && admitted:
		return fmt.Errorf("%d of %d remain of a shared rule", o.Remaining, o.Limit)
	case admitted:
		t.left[o.Remaining].Add(1)
	case !o.Allowed:
		t.denied.Add(1)
		if o.Remaining != 0 {
			return fmt.Errorf("a shared rule denied with %d permits left", o.Remaining)
		}
	}
	return nil
}

// check holds the tally against what is left in the end: as many were admitted as were taken, and each left another
// number.
func (t *tally) check(left int64) (admitted int64, err error) {
	for remaining := range t.left {
		n := t.left[remaining].Load()
		admitted += n
		if n != 1 && int64(remaining) >= left || n != 0 && int64(remaining) < left {
			err = fmt.Errorf("%d admissions of a shared rule left %d, and %d are left now", n, remaining, left)
		}
	}
	if err == nil && t.denied.Load() > 0 && left > 0 {
		err = fmt.Errorf("a shared rule denied %d times, and %d are left", t.denied.Load(), left)
	}
	return admitted, err
}
