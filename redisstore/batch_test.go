package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// A server that does not answer holds a caller until its context ends, and no
// longer; when it answers again, so does the store.
func TestContextEndsWhileServerHangs(t *testing.T) {
	own := testredis.Start(t)
	store := open(t, own.URL(), redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 10))
	take(t, store, "k", policy, 1)
	must.Do(t, own.Pause())
	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := store.Decide(deadline, op(stint.VerbTake, "k", policy, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	cancelled, stop := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, stop)
	if _, err := store.Decide(cancelled, op(stint.VerbTake, "k", policy, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	must.Do(t, own.Resume())
	if d := take(t, store, "k", policy, 1); d.Remaining > 8 {
		t.Errorf("%d remain of 10 after two takes at least", d.Remaining)
	}
}

// A closed store leaves no goroutine behind and decides nothing.
func TestClose(t *testing.T) {
	before := goleak.IgnoreCurrent()
	store := open(t, server.URL(), redisstore.Options{KeyPrefix: "closed"})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 10))
	take(t, store, "k", policy, 1)
	store.Close()
	if _, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1)); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, stint.ErrUnavailable)
	}
	leaks.None(t, before)
}
