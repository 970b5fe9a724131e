package exact

import (
	"fmt"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// A report is what a process was answered, each time for one permit.
type report struct {
	Elapsed time.Duration
	Clients []*account
}

// An account is what was answered to one client. enter is safe for concurrent use.
type account struct {
	mu       sync.Mutex
	Decided  map[stint.Instant]*moment // by At
	Recalled map[stint.Instant]*span   // by Until
	Faults   []string
}

// A moment is what Redis decided about one client at one time.
type moment struct {
	At               stint.Instant
	Admitted, Denied int64
	Until            stint.Instant // when the denied may come again
}

// A span is the denials from memory that end at one time: when the first and the last
// of them were, and how many.
type span struct {
	First, Last stint.Instant
	Hits        int64
}

func newReport(keys int) *report {
	r := &report{Clients: make([]*account, keys)}
	for i := range r.Clients {
		r.Clients[i] = &account{Decided: map[stint.Instant]*moment{}, Recalled: map[stint.Instant]*span{}}
	}
	return r
}

// enter enters a decision about one permit.
func (a *account) enter(d *stint.Decision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	until := d.At.Add(d.RetryAfter)
	if d.Source == stint.SourceDenialCache {
		s := a.Recalled[until]
		if s == nil {
			s = &span{First: d.At}
			a.Recalled[until] = s
		}
		s.First, s.Last = min(s.First, d.At), max(s.Last, d.At)
		s.Hits++
		return
	}
	m := a.Decided[d.At]
	if m == nil {
		m = &moment{At: d.At}
		a.Decided[d.At] = m
	}
	if d.Allowed {
		m.Admitted++
		return
	}
	m.Denied++
	if m.Until != 0 && m.Until != until {
		a.Faults = append(a.Faults, fmt.Sprintf("denied at %d until %d and until %d", m.At, m.Until, until))
	}
	m.Until = until
}
