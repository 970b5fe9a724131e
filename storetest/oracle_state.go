package storetest

import (
	"time"

	"github.com/stint-go/stint"
)

// A limitState is what is recorded of one limit under one key, together with the
// parameters of the limit that recorded it. It is immutable. Instants given to it
// are the store's; a state that has recorded a later time uses that.
type limitState interface {
	// adopt brings the state to now by the limit that wrote it and takes it over for
	// the limit that reads it.
	adopt(limit *stint.Limit, now stint.Instant) limitState
	// time is the newest time recorded.
	time() stint.Instant
	// available is how many permits could be taken at an instant if nobody had taken any
	// since; less than 0 in debt.
	available(at stint.Instant) int64
	// guess is when n permits may first be available. It only saves searching: what it
	// says is verified.
	guess(n int64) stint.Instant
	// readyAt is the instant before which nothing is admitted, whatever is available.
	readyAt() stint.Instant
	// delay is how long a request admitted at now waits for its turn.
	delay(now stint.Instant) time.Duration
	// untouchedAt is the first instant at which the state equals an untouched one.
	untouchedAt() stint.Instant
	// take records n admitted permits.
	take(n int64, now stint.Instant) limitState
	// settle records a charge (n > 0) or a refund (n < 0) and tells how much was
	// applied, with the sign of n.
	settle(n int64, now stint.Instant) (limitState, int64)
	// String describes the state completely.
	String() string
}

// untouched is the untouched state of a limit.
func untouched(limit *stint.Limit, windows *calendarWindows) limitState {
	switch limit.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		return newBucketState(limit)
	case stint.AlgorithmFixedWindow:
		return windowState{limit: limit, windows: windows}
	case stint.AlgorithmSlidingWindowLog:
		return logState{limit: limit}
	case stint.AlgorithmSlidingWindowCounter:
		return counterState{limit: limit}
	default:
		return unknown[limitState]("model", limit.Algorithm)
	}
}

// unknown ends a test, as the package lacks something for an algorithm.
func unknown[T any](lacks string, a stint.Algorithm) T {
	panic("storetest has no " + lacks + " of " + a.String()) //nolint:forbidigo // no T is at hand to fail
}

// admits tells whether the operation's permits would be admitted at an instant, beside those that it keeps.
func (op limitOp) admits(c limitState, at stint.Instant) bool {
	return op.permits <= op.most() && c.available(at)-op.keep >= op.permits && max(at, c.time()) >= c.readyAt()
}

// remaining is how many permits are left at an instant above those that the operation keeps.
func (op limitOp) remaining(c limitState, at stint.Instant) int64 {
	return max(0, c.available(at)-op.keep)
}

// retryAfter is the shortest wait after which the operation's permits would be admitted.
func (op limitOp) retryAfter(c limitState, now stint.Instant) time.Duration {
	if op.permits > op.most() {
		return stint.Never
	}
	guess := max(c.guess(op.permits+op.keep), c.readyAt())
	return leastWait(now, guess, func(at stint.Instant) bool { return op.admits(c, at) })
}

// resetAfter is how long until the state equals an untouched one; 0 if it does at
// the time that counts for it.
func resetAfter(c limitState, now stint.Instant) time.Duration {
	if c.untouchedAt() <= max(now, c.time()) {
		return 0
	}
	return wait(now, c.untouchedAt())
}

// growsAfter is the shortest wait after which Remaining would be larger; 0 if it is never.
func (op limitOp) growsAfter(c limitState, now stint.Instant) time.Duration {
	left := op.remaining(c, now)
	if left >= op.most() {
		return 0
	}
	return leastWait(now, c.guess(left+1+op.keep), func(at stint.Instant) bool { return op.remaining(c, at) > left })
}

// leastWait is the shortest wait from now to an instant at which ok holds. With
// nobody taking, what ok asks for turns true once and stays so. The guess is used
// only if ok holds there and not one microsecond earlier; otherwise the instant
// is searched.
func leastWait(now, guess stint.Instant, ok func(stint.Instant) bool) time.Duration {
	if ok(now) {
		return 0
	}
	if guess > now && ok(guess) && !ok(guess-1) {
		return wait(now, guess)
	}
	bad, good := now, now+1
	for !ok(good) {
		if good > farFuture {
			return stint.Never
		}
		bad, good = good, now+2*(good-now)
	}
	for good-bad > 1 {
		middle := bad + (good-bad)/2
		if ok(middle) {
			good = middle
		} else {
			bad = middle
		}
	}
	return wait(now, good)
}
