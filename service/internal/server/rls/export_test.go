package rls

import (
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/logsampler"
)

// SetClock has lines about bad requests sampled by another clock.
func (s *Service) SetClock(now func() stint.Instant) { s.lines = logsampler.New(1, time.Second, now) }

// Kept is how many limits and counters a domain keeps ready for requests that bring their own.
func (s *Service) Kept(domain string) (overrides, counters int) {
	k := s.tree.Load().domains[domain].kept
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.overrides), len(k.counters)
}
