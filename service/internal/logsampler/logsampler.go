// Package logsampler bounds lines of the log of which clients can cause as many as they like.
//
// A [Sampler] stands before each kind of line that strangers can cause, such as refused requests or
// failed handshakes: a few of them are written at once, then one from time to time, with the number
// of those that were left out. So a log stays readable, and a flood of requests does not become a
// flood of lines.
package logsampler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// A Sampler decides which lines of one kind are written: a number of them at once, then at a steady
// rate. It is safe for concurrent use; make it with [New]. It is a token bucket of the library
// itself.
type Sampler struct {
	bucket algorithm.Machine
	now    func() stint.Instant

	mu      sync.Mutex
	state   algorithm.State
	skipped int64 // since the last line
}

// New makes a sampler that writes so many lines at once, 1 or more, then one per interval. now is the
// time; nil is the process's clock.
func New(burst int64, interval time.Duration, now func() stint.Instant) *Sampler {
	if now == nil {
		now = clock
	}
	return &Sampler{bucket: algorithm.NewMachine(stint.TokenBucket(burst, stint.Every(interval))), now: now}
}

// Admit reports whether a line is to be written, and how many were skipped since the last one.
func (s *Sampler) Admit() (skipped int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out stint.Outcome
	if s.bucket.Apply(algorithm.Take, &s.state, s.now(), 1, 0, &out); !out.Allowed {
		s.skipped++
		return 0, false
	}
	skipped, s.skipped = s.skipped, 0
	return skipped, true
}

// Warn is Log of a warning.
func (s *Sampler) Warn(logger *slog.Logger, message string, attributes ...any) {
	s.Log(logger, slog.LevelWarn, message, attributes...)
}

// Log writes a line if it is to be written, with the number of lines that were skipped before it, and reports whether
// it was.
func (s *Sampler) Log(logger *slog.Logger, level slog.Level, message string, attributes ...any) bool {
	skipped, ok := s.Admit()
	if ok && skipped > 0 {
		attributes = append(attributes, "skipped", skipped)
	}
	if ok {
		logger.Log(context.Background(), level, message, attributes...)
	}
	return ok
}

func clock() stint.Instant { return stint.Instant(time.Now().UnixMicro()) }
