package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// A batch of more operations than one script call takes is decided in order.
func TestLargeBatch(t *testing.T) {
	store := newStore(t, redisstore.Options{})
	shared := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 300))
	own := policyOf(t, "own", aLimit(stint.AlgorithmTokenBucket, 2), aLimit(stint.AlgorithmSlidingWindowLog, 3))
	ops := make([]stint.Op, 1000)
	for i := range ops {
		ops[i] = op(stint.VerbTake, "k", shared, 1)
		if i%2 == 1 {
			ops[i] = op(stint.VerbTake, fmt.Sprint("client", i), own, 1)
			ops[i].Each = make([]stint.Outcome, 2)
		}
	}
	results := make([]stint.Result, len(ops))
	store.DecideAll(t.Context(), ops, results)
	for i, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		allowed, remaining := i < 600, max(0, 300-int64(i)/2-1)
		if i%2 == 1 {
			allowed, remaining = true, 1
			if each := ops[i].Each; each[0].Remaining != 1 || each[1].Remaining != 2 {
				t.Fatalf("operation %d: %+v of each limit, want 1 and 2 remaining", i, each)
			}
		}
		if r.Decision.Allowed != allowed || r.Decision.Remaining != remaining {
			t.Fatalf("operation %d: %+v, want allowed %t and %d remaining", i, r.Decision, allowed, remaining)
		}
	}
}

// An operation at fault gets its own error; the others are decided.
func TestBatchWithFaults(t *testing.T) {
	store := newStore(t, redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 10))
	good := op(stint.VerbTake, "k", policy, 1)
	twice := good
	twice.And = []stint.Claim{good.Claim}
	ops := []stint.Op{
		good, op(stint.VerbTake, "", policy, 1), op(stint.VerbTake, "k", nil, 1), good,
		op(stint.VerbTake, "k", policy, 0), op(stint.Verb(9), "k", policy, 1), twice, good,
	}
	results := make([]stint.Result, len(ops))
	store.DecideAll(t.Context(), ops, results)
	left := int64(10)
	for i, r := range results {
		switch i {
		case 0, 3, 7:
			left--
			if r.Err != nil || r.Decision.Remaining != left {
				t.Errorf("operation %d: %+v, want %d remaining", i, r, left)
			}
		default:
			if !errors.Is(r.Err, stint.ErrInvalid) {
				t.Errorf("operation %d: %v, want %v", i, r.Err, stint.ErrInvalid)
			}
		}
	}
}

// What is cancelled before it is sent consumes nothing.
func TestCancelled(t *testing.T) {
	store := newStore(t, redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results := make([]stint.Result, 2)
	o := op(stint.VerbTake, "k", policy, 1)
	store.DecideAll(ctx, []stint.Op{o, o}, results)
	for i, r := range results {
		if !errors.Is(r.Err, context.Canceled) || errors.Is(r.Err, stint.ErrUnavailable) {
			t.Errorf("operation %d: %v, want %v alone", i, r.Err, context.Canceled)
		}
	}
	if d := decide(t, store, op(stint.VerbPeek, "k", policy, 1)); d.Remaining != 10 {
		t.Errorf("%d remain of 10", d.Remaining)
	}
}

// A server that does not answer holds a caller until its context ends, and no
// longer; when it answers again, so does the store.
func TestContextEndsWhileServerHangs(t *testing.T) {
	own := testredis.Start(t)
	store := open(t, own.URL(), redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 10))
	take(t, store, "k", policy, 1)
	if err := own.Pause(); err != nil {
		t.Fatal(err)
	}
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
	if err := own.Resume(); err != nil {
		t.Fatal(err)
	}
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
	goleak.VerifyNone(t, before)
}
