package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// A ledger is what a process was answered, each time for one permit: a page for each
// client.
type ledger []page

// page is what was answered to one client. It is safe for concurrent use.
type page struct {
	mu         sync.Mutex
	decided    map[stint.Instant]*moment // by At
	recalled   map[stint.Instant]*span   // by Until
	admissions int64
	denials    int64
	hits       int64
	faults     []string
}

// A moment is what Redis decided about one client at one time.
type moment struct {
	At               stint.Instant
	Admitted, Denied int64
	Until            stint.Instant // when the denied may come again
}

// A span is the denials from memory that end at one time: when the first and the last
// of them were.
type span struct{ Until, First, Last stint.Instant }

func newLedger(keys int) ledger {
	l := make(ledger, keys)
	for i := range l {
		l[i].decided, l[i].recalled = map[stint.Instant]*moment{}, map[stint.Instant]*span{}
	}
	return l
}

// enter enters a decision about one permit.
func (p *page) enter(d *stint.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	until := d.At.Add(d.RetryAfter)
	if d.Source == stint.SourceDenialCache {
		p.hits++
		s := p.recalled[until]
		if s == nil {
			s = &span{Until: until, First: d.At, Last: d.At}
			p.recalled[until] = s
		}
		s.First, s.Last = min(s.First, d.At), max(s.Last, d.At)
		return
	}
	m := p.decided[d.At]
	if m == nil {
		m = &moment{At: d.At}
		p.decided[d.At] = m
	}
	if d.Allowed {
		p.admissions++
		m.Admitted++
		return
	}
	p.denials++
	m.Denied++
	if m.Until != 0 && m.Until != until {
		p.faults = append(p.faults, fmt.Sprintf("denied at %d until %d and until %d", m.At, m.Until, until))
	}
	m.Until = until
}

// A report is a ledger on its way to the parent.
type report struct {
	Elapsed time.Duration
	Clients []account
}

// An account is a page on its way to the parent, in the order of time.
type account struct {
	Decided                   []moment
	Recalled                  []span
	Admissions, Denials, Hits int64
	Faults                    []string
}

// report is made when nobody enters any more.
func (l ledger) report(elapsed time.Duration) *report {
	r := &report{Elapsed: elapsed, Clients: make([]account, len(l))}
	for i := range l {
		p := &l[i]
		a := account{Admissions: p.admissions, Denials: p.denials, Hits: p.hits, Faults: p.faults}
		for _, at := range slices.Sorted(maps.Keys(p.decided)) {
			a.Decided = append(a.Decided, *p.decided[at])
		}
		for _, until := range slices.Sorted(maps.Keys(p.recalled)) {
			a.Recalled = append(a.Recalled, *p.recalled[until])
		}
		r.Clients[i] = a
	}
	return r
}
