// Package simulate shows what limits would do to traffic before they are in force: events and rules in, decisions out,
// in virtual time.
//
//	s, err := simulate.New(simulate.Config{Candidates: []simulate.Candidate{{Name: "a.yaml", Set: set}}})
//	...
//	err = source.Run(s.Add) // the requests of a log or of a Pattern, in order of time
//	report, err := s.Finish()
//
// Every candidate is a rule set, and decides all events by itself, by a limiter of package enforce in virtual time:
// that finds the rules of a request, and has requests wait. Decisions are made by the transitions of package
// algorithm on a table of its own, which evicts nothing.
//
// [Suggest] turns it around: it finds the least limit under which a given share of the clients is never denied, and
// proves it by a replay.
//
// No clock is read: the time is the events'.
package simulate

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// A Simulation decides events by candidates. It is not safe for concurrent use; make it with [New].
//
// Events come in blocks: what does not depend on a state (which rules match, which clients they
// count) is prepared for a block at once, so that the memory of many clients is loaded side by
// side; then each event is decided in its order.
type Simulation struct {
	candidates []*candidate
	memory     memory
	proceed    func() error
	block      []Event // up to blockSize that are not decided yet
	events     int64
	// whole counts events whose time is known to the second only.
	whole int64
	// late counts events earlier than one before; they are decided at the time of that one.
	late int64
	// limited counts events that were answered with 429 when they happened.
	limited     int64
	first, last stint.Instant
	by          string
}

// New makes a simulation, or reports what is wrong with the configuration.
func New(config Config) (*Simulation, error) {
	if len(config.Candidates) == 0 {
		return nil, stint.Invalid("candidates", 0, "at least one")
	}
	if config.MaxClients < 0 || config.MaxClients > MaxClients {
		return nil, stint.Invalid("max_clients", config.MaxClients, fmt.Sprintf("0 to %d", MaxClients))
	}
	if config.MaxClients == 0 {
		config.MaxClients = defaultMaxClients
	}
	s := &Simulation{by: config.By, memory: memory{most: config.MaxMemory}, proceed: config.Proceed}
	if s.proceed == nil {
		s.proceed = func() error { return nil }
	}
	for i, c := range config.Candidates {
		if c.Logged {
			c.Set = new(rules.Set)
		}
		if c.Set == nil {
			return nil, stint.Invalid(fmt.Sprintf("candidates[%d].set", i), "nil", "rules that rules.Compile made")
		}
		made, err := newCandidate(c, &config, &s.memory)
		if err != nil {
			return nil, err
		}
		s.candidates = append(s.candidates, made)
	}
	return s, nil
}

// blockSize is how many events are prepared together. It hides the latency of memory, which is most
// of what a decision takes; beyond 8 more gain nothing, and each of them keeps what its rules claim:
// with 8 candidates of 1,000 rules that match, 3 MiB.
const blockSize = 16

// Add has all candidates decide an event, now or with some of those that follow. Its strings and maps must not be
// changed until Finish has returned. The error is that of [Config.Decided] for an event up to this one, that of
// [Config.Proceed], or says that [Config.MaxMemory] is too little.
func (s *Simulation) Add(ev *Event) error {
	s.block = append(s.block, *ev)
	if len(s.block) < blockSize {
		return nil
	}
	return s.decide()
}

// decide decides the block. Virtual time never goes back: an event that is late is decided at the
// latest time so far.
func (s *Simulation) decide() error {
	if err := s.proceed(); err != nil {
		return err
	}
	for i := range s.block {
		ev := &s.block[i]
		if s.events == 0 {
			s.first, s.last = ev.Time, ev.Time
		}
		s.events++
		if ev.Time < s.last {
			s.late++
			ev.Time = s.last
		}
		s.last = ev.Time
		if ev.Whole {
			s.whole++
		}
		if ev.Status == http.StatusTooManyRequests {
			s.limited++
		}
	}
	for _, c := range s.candidates {
		c.begun = s.first
		c.prepare(s.block)
		if c.store.fault != nil {
			return c.store.fault
		}
	}
	for i := range s.block {
		for _, c := range s.candidates {
			c.add(i)
			if c.fault != nil {
				return c.fault
			}
		}
	}
	s.block = s.block[:0]
	return s.memory.fault(s.candidates)
}

// Finish decides what still waits, and reports. The simulation must not be used then.
func (s *Simulation) Finish() (*Report, error) {
	if err := s.decide(); err != nil {
		return nil, err
	}
	for _, c := range s.candidates {
		for len(c.wakes) > 0 {
			c.advance(c.wakes[0].at) // and not all at once, so that it can be ended
			if err := cmp.Or(c.fault, s.proceed()); err != nil {
				return nil, err
			}
		}
	}
	return s.report(), s.memory.fault(s.candidates)
}
