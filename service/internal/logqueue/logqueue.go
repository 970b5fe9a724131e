// Package logqueue keeps a log from holding up its writers: when its reader
// stops, or its disk is full, lines are dropped and counted instead.
//
// A [Queue] is an io.Writer for whole lines: the service's log goes through one, and so does the
// record of decisions. Deciding must not wait for a pipe that nobody reads.
package logqueue

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// MaxBytes is how much waits to be written at the most. It is some thousand lines, which a disk
// that pauses for a moment catches up with.
const MaxBytes = 1 << 20

// A Queue is a writer of lines that never waits. A goroutine of its own hands them on in order.
// Lines that come while MaxBytes are waiting are dropped, and so are lines that the writer behind
// it fails to write; once it works again, a line in the place of those that are missing says how
// many. It is safe for concurrent use; each call of Write must be of whole lines. Once a line was
// dropped, so are all that follow until the goroutine has taken what waits: lines that come later
// must not stand before the note of what is missing.
type Queue struct {
	out  io.Writer
	note func(lost int64) []byte

	lost atomic.Int64
	wake chan struct{} // of one place
	done chan struct{}

	mu      sync.Mutex
	waiting []byte
	dropped int64 // lines that came while the queue was full
	closed  bool
}

// New makes a queue in front of a writer; note is the line that stands for lost ones.
// It has to be closed.
func New(out io.Writer, note func(lost int64) []byte) *Queue {
	q := &Queue{out: out, note: note, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Lost is how many lines were lost so far.
func (q *Queue) Lost() int64 { return q.lost.Load() }

// Write queues or drops lines. It fails only after Close.
func (q *Queue) Write(text []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return 0, os.ErrClosed
	case q.dropped > 0 || len(q.waiting)+len(text) > MaxBytes:
		n := lines(text)
		q.dropped += n
		q.lost.Add(n)
	default:
		q.waiting = append(q.waiting, text...)
	}
	q.signal()
	return len(text), nil
}

// Close writes what is waiting and returns when that is done, or ctx is; then its
// error is returned, and what is left is lost.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	q.signal()
	q.mu.Unlock()
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // it is awake
	}
}

// run hands on until the queue is closed and empty. Two buffers change places: one is written while
// the other fills.
func (q *Queue) run() {
	defer close(q.done)
	s := sender{Queue: q}
	var spare []byte
	for range q.wake {
		q.mu.Lock()
		text, dropped, closed := q.waiting, q.dropped, q.closed
		q.waiting, q.dropped = spare[:0], 0
		q.mu.Unlock()
		s.send(text)
		s.missing += dropped
		if closed {
			s.send(nil)
			return
		}
		if dropped > 0 {
			s.send(nil)
		}
		spare = text
	}
}

// A sender writes to the writer behind the queue, and knows what is missing there.
type sender struct {
	*Queue
	missing int64 // lines since the last that was written
	cut     bool  // that one has no end
}

// send writes lines, with a line before them about those that are missing. A write that failed in
// the middle of a line leaves a line without an end, behind which the note has to begin a new one.
// What was written of a text that failed is not written again.
func (s *sender) send(text []byte) {
	if s.missing > 0 {
		note := s.note(s.missing)
		if s.cut {
			note = append([]byte{'\n'}, note...)
		}
		n, err := s.out.Write(note)
		if err != nil {
			s.cut = s.cut && n == 0 || n > 0 && note[n-1] != '\n'
			s.lose(text)
			return
		}
		s.missing, s.cut = 0, false
	}
	if len(text) == 0 {
		return
	}
	if n, err := s.out.Write(text); err != nil {
		n = min(max(n, 0), len(text))
		s.cut = n > 0 && text[n-1] != '\n'
		s.lose(text[n:])
	}
}

func (s *sender) lose(text []byte) {
	n := lines(text)
	s.missing += n
	s.lost.Add(n)
}

func lines(text []byte) int64 { return int64(bytes.Count(text, []byte{'\n'})) }
