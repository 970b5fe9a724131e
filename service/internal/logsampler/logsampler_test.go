package logsampler_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/logsampler"
)

func TestSampler(t *testing.T) {
	now := stint.Instant(1_790_000_000_000_000)
	s := logsampler.New(3, 2*time.Second, func() stint.Instant { return now })
	count := func(lines int) (written int, skipped int64) {
		for range lines {
			if n, ok := s.Admit(); ok {
				written++
				skipped += n
			}
		}
		return written, skipped
	}
	for _, step := range []struct {
		after   time.Duration
		written int
		skipped int64
	}{{0, 3, 0}, {1999 * time.Millisecond, 0, 0}, {time.Millisecond, 1, 17}, {time.Hour, 3, 9}} {
		now += stint.Instant(step.after.Microseconds())
		if written, skipped := count(10); written != step.written || skipped != step.skipped {
			t.Errorf("after %v: %d lines, %d skipped, want %d and %d", step.after, written, skipped, step.written, step.skipped)
		}
	}
}

// Without a clock of its own it has the process's.
func TestClock(t *testing.T) {
	s := logsampler.New(1, time.Hour, nil)
	if _, ok := s.Admit(); !ok {
		t.Error("the first line is skipped")
	}
	if _, ok := s.Admit(); ok {
		t.Error("the second line is written")
	}
}
