package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/bench/internal/redislimit"
)

// A session is one implementation under one load, from an empty Redis on.
type session struct {
	deployment *deployment
	load       *load
	contender  redislimit.Contender
	subject    *redislimit.Subject
	names      [][]string
	ledger     *ledger
	started    time.Time
}

// newSession empties Redis, connects the implementation for as many callers as there will
// be, and fills in the clients.
func newSession(
	ctx context.Context,
	deployment *deployment,
	l *load,
	c redislimit.Contender,
	names [][]string,
	callers []int,
) (*session, error) {
	if err := deployment.flush(ctx); err != nil {
		return nil, err
	}
	subject, err := c.Make(ctx, redislimit.Options{Addrs: deployment.addrs, Cluster: deployment.topology.primaries > 0, Callers: slices.Max(callers)}, l.quotas)
	if err != nil {
		return nil, err
	}
	s := &session{
		deployment: deployment,
		load:       l,
		contender:  c,
		subject:    subject,
		names:      names,
		ledger:     newLedger(names),
		started:    time.Now(),
	}
	s.ledger.timed = c.TellsTime && l.check == bound
	if l.filled {
		for quota := range names {
			if err := subject.Fill(ctx, quota, names[quota]); err != nil {
				return nil, errors.Join(err, subject.Close())
			}
			s.ledger.filled(quota)
		}
	}
	return s, nil
}

// ask returns the callers' question under a traffic.
func (s *session) ask(t *traffic) func(ctx context.Context, caller, turn int) loadgen.Answer {
	// Each caller keeps the strings of its question in a place of its own.
	keys := make([][]string, len(t.indexes))
	for caller := range keys {
		keys[caller] = make([]string, len(s.load.quotas), max(len(s.load.quotas), 8)) // a cache line each
	}
	return func(ctx context.Context, caller, turn int) loadgen.Answer {
		mine, indexes := keys[caller], t.indexes[caller]
		for quota := range mine {
			sequence := indexes[quota]
			mine[quota] = s.names[quota][sequence[turn%len(sequence)]]
		}
		a, err := s.subject.Take(ctx, mine)
		if err != nil {
			s.ledger.failed.Add(1)
			return loadgen.Failed
		}
		for quota, sequence := range indexes {
			s.ledger.note(quota, sequence[turn%len(sequence)], a)
		}
		if a.Allowed {
			return loadgen.Admitted
		}
		return loadgen.Denied
	}
}

// A measurement is one cell of the table, once.
type measurement struct {
	result   *loadgen.Result
	commands float64       // that Redis carried out per second
	cpu      time.Duration // that Redis took
	others   float64       // how much of a processor other programs used, in percent
	faults   []string
}

// tries is how often a cell is measured before a disturbance is accepted.
const tries = 3

// steady says that the load is about what goes on, and not about the start as well.
func (l *load) steady() bool { return l.check == books || l.check == none }

// measure lets so many callers ask, and again when other programs disturbed them; the
// least disturbed one counts. The faults of all tries are kept.
func (s *session) measure(ctx context.Context, t *traffic, o options) (measurement, error) {
	var best measurement
	var faults []string
	for try := range tries {
		m, err := s.once(ctx, t, o)
		if err != nil {
			return m, err
		}
		faults = append(faults, m.faults...)
		if try == 0 || m.others < best.others {
			best = m
		}
		if !s.load.steady() || o.ops > 0 || best.others <= o.calm {
			break
		}
	}
	best.faults = faults
	return best, nil
}

func (s *session) once(ctx context.Context, t *traffic, o options) (m measurement, err error) {
	plan := loadgen.Plan{Callers: len(t.indexes), Ask: s.ask(t)}
	if s.load.steady() && o.ops == 0 && o.warmUp > 0 {
		plan.Duration = o.warmUp
		if _, err := loadgen.Run(ctx, plan); err != nil {
			return m, err
		}
	}
	plan.Duration, plan.Questions = o.duration, o.ops
	before, err := s.deployment.commands(ctx)
	if err != nil {
		return m, err
	}
	m.cpu, m.others, err = s.deployment.watch(func() (err error) {
		m.result, err = loadgen.Run(ctx, plan)
		return err
	})
	if err != nil {
		return m, err
	}
	after, err := s.deployment.commands(ctx)
	if err != nil {
		return m, err
	}
	// The first look at their number is a command of each server.
	m.commands = float64(after-before-int64(len(s.deployment.nodes))) / m.result.Elapsed.Seconds()
	elapsed := time.Since(s.started)
	if s.load.check == bound {
		elapsed = m.result.Elapsed // nothing was asked before
	}
	m.faults, err = s.faults(ctx, o.ops, elapsed)
	return m, err
}
