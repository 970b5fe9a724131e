package storetest

import (
	"time"

	"github.com/stint-go/stint"
)

// A cell is what is recorded of one limit under one key, together with the
// parameters of the limit that recorded it. Cells are immutable. Instants given
// to a cell are the store's; a cell that has recorded a later time uses that.
type cell interface {
	// read brings the cell to now by the limit that wrote it and takes it over for
	// the limit that reads it.
	read(limit *stint.Limit, now stint.Instant) cell
	// time is the newest time recorded.
	time() stint.Instant
	// room is how many permits could be taken at an instant if nobody had taken any
	// since; less than 0 in debt.
	room(at stint.Instant) int64
	// guess is when there may first be room for n permits. It only saves searching:
	// what it says is verified.
	guess(n int64) stint.Instant
	// readyAt is the instant before which nothing is admitted, whatever the room.
	readyAt() stint.Instant
	// delay is how long a request admitted at now waits for its turn.
	delay(now stint.Instant) time.Duration
	// untouchedAt is the first instant at which the cell equals an untouched one.
	untouchedAt() stint.Instant
	// take records n admitted permits.
	take(n int64, now stint.Instant) cell
	// settle records a charge (n > 0) or a refund (n < 0) and tells how much was
	// applied, with the sign of n.
	settle(n int64, now stint.Instant) (cell, int64)
	// String describes the cell completely.
	String() string
}

// fresh is the untouched cell of a limit.
func fresh(limit *stint.Limit, almanac *almanac) cell {
	switch limit.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		return newBucket(limit)
	case stint.AlgorithmFixedWindow:
		return window{limit: limit, almanac: almanac}
	case stint.AlgorithmSlidingWindowLog:
		return journal{limit: limit}
	case stint.AlgorithmSlidingWindowCounter:
		return counter{limit: limit}
	}
	return nil
}

// admits tells whether n permits would be admitted at an instant.
func admits(limit *stint.Limit, c cell, n int64, at stint.Instant) bool {
	return n <= limit.Capacity && c.room(at) >= n && max(at, c.time()) >= c.readyAt()
}

func remaining(c cell, at stint.Instant) int64 { return max(0, c.room(at)) }

// retryAfter is the shortest wait after which n permits would be admitted.
func retryAfter(limit *stint.Limit, c cell, n int64, now stint.Instant) time.Duration {
	if n > limit.Capacity {
		return stint.Never
	}
	guess := max(c.guess(n), c.readyAt())
	return leastWait(now, guess, func(at stint.Instant) bool { return admits(limit, c, n, at) })
}

// resetAfter is how long until the cell equals an untouched one; 0 if it does at
// the time that counts for it.
func resetAfter(c cell, now stint.Instant) time.Duration {
	if c.untouchedAt() <= max(now, c.time()) {
		return 0
	}
	return wait(now, c.untouchedAt())
}

// growsAfter is the shortest wait after which Remaining would be larger.
func growsAfter(limit *stint.Limit, c cell, now stint.Instant) time.Duration {
	left := remaining(c, now)
	if left >= limit.Capacity {
		return 0
	}
	return leastWait(now, c.guess(left+1), func(at stint.Instant) bool { return remaining(c, at) > left })
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
		if good > beyond {
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
