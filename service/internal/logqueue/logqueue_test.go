package logqueue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/service/internal/logqueue"
)

// A sink is a writer that can block, fail, and take only a part.
type sink struct {
	mu     sync.Mutex
	text   bytes.Buffer
	err    error
	takes  int           // how much of a failing write is taken
	enter  chan struct{} // told of each write, when set
	resume chan struct{} // awaited by each write, when set
}

func (s *sink) Write(p []byte) (int, error) {
	if s.enter != nil {
		s.enter <- struct{}{}
		<-s.resume
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		n := min(s.takes, len(p))
		s.text.Write(p[:n])
		return n, s.err
	}
	return s.text.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// fail makes writes fail after taking a part; nil mends the sink.
func (s *sink) fail(err error, takes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.takes = err, takes
}

func note(lost int64) []byte { return fmt.Appendf(nil, "%d lost\n", lost) }

func write(t *testing.T, q *logqueue.Queue, text string) {
	t.Helper()
	if n, err := q.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatalf("Write = %d, %v", n, err)
	}
}

func closing(t *testing.T, q *logqueue.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := q.Close(ctx); err != nil {
		t.Fatalf("Close = %v", err)
	}
}

// until waits for a condition that another goroutine brings about.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come about within 30 seconds")
		}
	}
}

func TestOrderAndFlush(t *testing.T) {
	var out sink
	q := logqueue.New(&out, note)
	var want strings.Builder
	for i := range 10_000 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		write(t, q, line)
	}
	closing(t, q)
	if out.String() != want.String() || q.Lost() != 0 {
		t.Errorf("%d bytes of %d, %d lost", len(out.String()), want.Len(), q.Lost())
	}
	if _, err := q.Write([]byte("late\n")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after Close = %v", err)
	}
	closing(t, q)
}

// While nobody reads, writing goes on; what finds no room is dropped and counted, and
// its place is marked.
func TestBlocked(t *testing.T) {
	out := sink{enter: make(chan struct{}), resume: make(chan struct{})}
	q := logqueue.New(&out, note)
	write(t, q, "first\n")
	<-out.enter
	line := strings.Repeat("x", 1023) + "\n"
	const more = 5
	for range logqueue.MaxBytes/len(line) + more {
		write(t, q, line)
	}
	write(t, q, "short, but after those that were dropped\nand another\n")
	if q.Lost() != more+2 {
		t.Errorf("%d lines are lost, want %d", q.Lost(), more+2)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close of a blocked log = %v", err)
	}
	go func() {
		for range out.enter { // nothing: each is let through
		}
	}()
	close(out.resume)
	closing(t, q)
	close(out.enter)
	if want := "first\n" + strings.Repeat(line, logqueue.MaxBytes/len(line)) + "7 lost\n"; out.String() != want {
		t.Errorf("%d bytes, want %d:\n...%q", len(out.String()), len(want), out.String()[max(0, len(out.String())-60):])
	}
}

// What can't be written is counted, and told once writing works again, even when a
// line was cut.
func TestFailing(t *testing.T) {
	for name, test := range map[string]struct {
		takes int
		want  string
	}{
		"nothing taken":    {0, "before\n2 lost\nafter\n"},
		"a line and a bit": {6, "before\none\ntw\n1 lost\nafter\n"},
		"a line":           {4, "before\none\n1 lost\nafter\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out := sink{enter: make(chan struct{}), resume: make(chan struct{})}
			q := logqueue.New(&out, note)
			let := func() { <-out.enter; out.resume <- struct{}{} }
			write(t, q, "before\n")
			let()
			until(t, func() bool { return out.String() != "" })
			out.fail(syscall.ENOSPC, test.takes)
			write(t, q, "one\ntwo\n")
			let()
			lost := int64(strings.Count("one\ntwo\n"[test.takes:], "\n"))
			until(t, func() bool { return q.Lost() == lost })
			out.fail(nil, 0)
			write(t, q, "after\n")
			let()
			let()
			closing(t, q)
			if out.String() != test.want || q.Lost() != lost {
				t.Errorf("%q, want %q; %d lost", out.String(), test.want, q.Lost())
			}
		})
	}
}
