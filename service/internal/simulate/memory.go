package simulate

import (
	"fmt"

	"github.com/stint-go/stint"
)

// A memory counts what tables take, before they take it.
type memory struct {
	used, most int64 // bytes; most 0: no bound
	holds      int64 // that have not ended
	exceeded   bool  // whether something that can't be left out did not fit
}

const (
	limitBytes = 512 // of a limit, with its states and its window, beside its clients
	// leastSample is how many clients a sample has before half of them are left out for want of
	// memory.
	leastSample = 1 << 10
)

// fits reports whether so many bytes more are within the bound.
func (m *memory) fits(bytes int64) bool { return m.most == 0 || m.used+bytes <= m.most }

// take counts bytes, those that were given back if it is negative.
func (m *memory) take(bytes int64) {
	m.exceeded = m.exceeded || bytes > 0 && !m.fits(bytes)
	m.used += bytes
}

// fault says what did not fit, of so many candidates, nil if all did.
func (m *memory) fault(candidates []*candidate) error {
	if !m.exceeded {
		return nil
	}
	var limits, states int64
	for _, c := range candidates {
		for _, t := range c.store.tables {
			limits += int64(len(t.limits))
			states += int64(len(t.limits)) * int64(t.clients.used)
		}
	}
	came := fmt.Sprintf(
		"%d candidates with %d limits in use and the states of %d clients of a limit", len(candidates), limits, states,
	)
	if m.holds > 0 {
		came += fmt.Sprintf(", and %d requests that hold", m.holds)
	}
	return stint.Invalid(
		"candidates", came, fmt.Sprintf("what fits in %d MiB: fewer candidates, rules, limits or clients", m.most>>20),
	)
}
