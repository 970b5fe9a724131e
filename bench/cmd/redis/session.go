package main

import (
	"context"
	"time"

	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/bench/internal/redislimit"
)

// A session is one implementation under one load, from an empty Redis on.
type session struct {
	load      *load
	contender redislimit.Contender
	subject   *redislimit.Subject
	names     [][]string
	ledger    *ledger
	started   time.Time
}

// open empties Redis, connects the implementation and fills in the clients.
func open(ctx context.Context, server *server, l *load, c redislimit.Contender, names [][]string, callers int) (*session, error) {
	if err := server.flush(ctx); err != nil {
		return nil, err
	}
	subject, err := c.Make(ctx, redislimit.Options{Addrs: []string{server.addr}, Callers: callers}, l.quotas)
	if err != nil {
		return nil, err
	}
	s := &session{load: l, contender: c, subject: subject, names: names, ledger: newLedger(names), started: time.Now()}
	s.ledger.timed = c.TellsTime && l.check == bound
	if l.filled {
		for quota := range names {
			if err := subject.Fill(ctx, quota, names[quota]); err != nil {
				_ = subject.Close()
				return nil, err
			}
			s.ledger.filled(quota)
		}
	}
	return s, nil
}

func (s *session) close() error { return s.subject.Close() }

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
	commands float64 // that Redis carried out per second
	others   float64 // how much of a processor other programs used, in percent
	faults   []string
}

// tries is how often a cell is measured before a disturbance is accepted.
const tries = 3

// measure lets so many callers ask, and again when other programs disturbed them; the
// least disturbed counts. What was wrong in any try is.
func (s *session) measure(ctx context.Context, server *server, t *traffic, o options) (measurement, error) {
	var best measurement
	var faults []string
	for try := range tries {
		m, err := s.once(ctx, server, t, o)
		if err != nil {
			return m, err
		}
		faults = append(faults, m.faults...)
		if try == 0 || m.others < best.others {
			best = m
		}
		// The other checks know of one run only.
		again := s.load.check == books || s.load.check == none
		if !again || o.ops > 0 || best.others <= o.calm {
			break
		}
	}
	best.faults = faults
	return best, nil
}

func (s *session) once(ctx context.Context, server *server, t *traffic, o options) (measurement, error) {
	plan := loadgen.Plan{Callers: len(t.indexes), Ask: s.ask(t)}
	warm := s.load.check == books || s.load.check == none // the others are about the start as well
	if warm && o.ops == 0 && o.warmUp > 0 {
		plan.Duration = o.warmUp
		if _, err := loadgen.Run(ctx, plan); err != nil {
			return measurement{}, err
		}
	}
	plan.Duration = o.duration
	plan.Questions = o.ops
	before, err := server.commands(ctx)
	if err != nil {
		return measurement{}, err
	}
	var result *loadgen.Result
	others, err := o.watch.others(func() (err error) {
		result, err = loadgen.Run(ctx, plan)
		return err
	})
	if err != nil {
		return measurement{}, err
	}
	after, err := server.commands(ctx)
	if err != nil {
		return measurement{}, err
	}
	elapsed := time.Since(s.started)
	if s.load.check == bound {
		elapsed = result.Elapsed // nothing was asked before
	}
	faults, err := s.faults(ctx, o.ops, elapsed)
	// One of the commands is the first look at their number.
	commands := float64(after-before-1) / result.Elapsed.Seconds()
	return measurement{result: result, commands: commands, others: others, faults: faults}, err
}
