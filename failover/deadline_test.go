package failover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/failover"
)

type contextKey struct{}

// The context of a call is as one of context.WithTimeout.
func TestDeadline(t *testing.T) {
	errCause := errors.New("cause")
	for name, row := range map[string]struct {
		watched bool // whether Done is asked for before it ends
		cancel  bool // the parent, before the time is up
		want    error
		cause   error
		after   time.Duration
	}{
		"deadline, watched":   {true, false, context.DeadlineExceeded, context.DeadlineExceeded, timeout},
		"deadline, unwatched": {false, false, context.DeadlineExceeded, context.DeadlineExceeded, timeout},
		"cancelled, watched":  {true, true, context.Canceled, errCause, timeout / 2},
		"cancelled, late":     {false, true, context.Canceled, errCause, timeout / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), contextKey{}, "value"))
				defer cancel(nil)
				start := time.Now()
				ctx, release, ok := failover.WithTimeout(parent, timeout)
				defer release()
				at, bounded := ctx.Deadline()
				if !ok || !bounded || !at.Equal(start.Add(timeout)) || ctx.Value(contextKey{}) != "value" || ctx.Err() != nil {
					t.Fatalf("deadline %v %v, value %v, error %v", at, bounded, ctx.Value(contextKey{}), ctx.Err())
				}
				if row.watched {
					select {
					case <-ctx.Done():
						t.Fatal("it has ended already")
					default:
					}
				}
				if row.cancel {
					time.AfterFunc(row.after, func() { cancel(errCause) })
				}
				if !row.watched {
					<-time.After(row.after)
					synctest.Wait()
					if !errors.Is(ctx.Err(), row.want) {
						t.Errorf("Err is %v before Done is asked for, want %v", ctx.Err(), row.want)
					}
				}
				<-ctx.Done()
				if took := time.Since(start); took != row.after {
					t.Errorf("it ended after %s, want %s", took, row.after)
				}
				if !errors.Is(ctx.Err(), row.want) || !errors.Is(context.Cause(ctx), row.cause) {
					t.Errorf("Err %v, cause %v, want %v and %v", ctx.Err(), context.Cause(ctx), row.want, row.cause)
				}
			})
		})
	}
}

// A context that is released ends, as by context.CancelFunc, so contexts made of it go.
func TestDeadlineReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, watched := range []bool{true, false} {
			ctx, release, _ := failover.WithTimeout(t.Context(), timeout)
			if watched {
				ctx.Done()
			}
			child, cancel := context.WithCancel(ctx)
			release()
			<-ctx.Done()
			<-child.Done()
			cancel()
			if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(child.Err(), context.Canceled) {
				t.Errorf("watched %t: Err %v, the child's %v", watched, ctx.Err(), child.Err())
			}
		}
	})
}

func TestDeadlineIsNeverLaterThanTheParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, earlier := range []time.Duration{timeout, timeout / 2, -time.Second} {
			parent := within(t, earlier)
			if ctx, _, own := failover.WithTimeout(parent, timeout); own || ctx != parent {
				t.Errorf("the parent ends in %s, and yet there is a context", earlier)
			}
		}
		ctx, release, own := failover.WithTimeout(within(t, 2*timeout), timeout)
		defer release()
		if at, _ := ctx.Deadline(); !own || !at.Equal(time.Now().Add(timeout)) {
			t.Errorf("the parent ends later; the deadline is %v", at)
		}
	})
}
