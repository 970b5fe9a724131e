package enforce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// A line stays that of its client when who stood in it has left, and uses the memory of the
// key for another.
func TestLinesOfBorrowedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patient := waiting("a", time.Minute, 0, stint.TokenBucket(1, stint.PerSecond(1)))
		limiter, _ := newLimiter(t, patient)
		decide(t, limiter, alice)
		memory := []byte(alice.Address)
		borrowed := rules.Request{Path: "/x", Address: unsafe.String(&memory[0], len(memory))} //nolint:gosec // it is about strings that change
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		wait := func(ctx context.Context, r rules.Request) {
			go func() {
				var v enforce.Verdict
				ended <- limiter.Decide(ctx, &r, &v)
			}()
			synctest.Wait()
		}
		wait(ctx, borrowed)
		wait(t.Context(), alice)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		copy(memory, "198.51.1.")
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if v := decide(t, limiter, alice); !v.Allowed || v.Held != time.Second {
			t.Errorf("held %s, want it served next, after 1s", v.Held)
		}
	})
}
