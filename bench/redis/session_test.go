package redis

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/internal/load"
)

// A session is one implementation under one load, from an empty Redis on. It counts what each client asked for and was
// admitted.
type session struct {
	deployment *deployment
	load       *scenario
	contender  contender
	subject    *subject
	names      [][]string
	started    time.Time

	accounts [][]account // of each quota and client
	failed   atomic.Int64

	mu          sync.Mutex
	first, last stint.Instant // of all admissions, where their time is told and a bound is checked
}

type account struct{ asked, admitted atomic.Uint32 }

func newLedger(s *session) *session {
	for _, names := range s.names {
		s.accounts = append(s.accounts, make([]account, len(names)))
	}
	s.started = time.Now()
	return s
}

// newSession empties Redis, connects the implementation for as many callers as there will be, and fills in the clients.
func newSession(tb testing.TB, d *deployment, l *scenario, c contender, names [][]string, callers int) *session {
	tb.Helper()
	d.flush(tb)
	subject := c.Make(tb, options{Addrs: d.addrs, Cluster: d.cluster, Callers: callers}, l.quotas)
	s := newLedger(&session{deployment: d, load: l, contender: c, subject: subject, names: names})
	if l.filled {
		s.fill(tb)
	}
	runtime.GC() // the garbage of the contender before costs nothing here
	return s
}

// fill has every client take a permit.
func (s *session) fill(tb testing.TB) {
	tb.Helper()
	for quota := range s.names {
		if err := s.subject.Fill(tb.Context(), quota, s.names[quota]); err != nil {
			tb.Fatalf("%s: %v", s.contender.Name, err)
		}
		for client := range s.accounts[quota] {
			s.note(quota, uint32(client), answer{Allowed: true})
		}
	}
}

func (s *session) close(tb testing.TB) {
	if err := s.subject.Close(); err != nil {
		tb.Error(err)
	}
}

// note notes an answer for a client of one quota.
func (s *session) note(quota int, client uint32, a answer) {
	account := &s.accounts[quota][client]
	account.asked.Add(1)
	if !a.Allowed {
		return
	}
	account.admitted.Add(1)
	if a.At == 0 || s.load.check != bound {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == 0 || a.At < s.first {
		s.first = a.At
	}
	s.last = max(s.last, a.At)
}

// sum is what all clients of a quota asked for and were admitted.
func (s *session) sum(quota int) (asked, admitted int64) {
	for i := range s.accounts[quota] {
		asked += int64(s.accounts[quota][i].asked.Load())
		admitted += int64(s.accounts[quota][i].admitted.Load())
	}
	return asked, admitted
}

// timedEvery is how often a question is timed. Where an answer takes a tenth of a microsecond, looking at the clock for each
// would cost as much.
const timedEvery = 8

// The histograms are exact to 1 %. A time above longest counts as longest.
const (
	longest = 2 * time.Minute
	digits  = 2
)

// A measurement is what one run of a cell found.
type measurement struct {
	elapsed  time.Duration
	latency  *hdrhistogram.Histogram // of every timedEvery-th question of each caller, in nanoseconds
	admitted int64
	failed   int64
	commands int64         // that Redis carried out
	cpu      time.Duration // that Redis took
	others   float64       // how much of a processor other programs used, in percent
	faults   []string
}

// measure has the callers ask n questions, each in its own order, in a closed loop, and checks what was admitted. timed asks
// by the function that it is given: the rest is not the work.
func (s *session) measure(ctx context.Context, t *traffic, n int, timed func(ask func())) (m measurement) {
	m.latency = hdrhistogram.New(1, longest.Nanoseconds(), digits)
	var timing sync.Mutex
	failed := s.failed.Load()
	// Each caller keeps the strings of its question in a place of its own.
	keys := make([][]string, len(t.indexes))
	for caller := range keys {
		keys[caller] = make([]string, len(s.load.quotas), max(len(s.load.quotas), 8)) // a cache line each
	}
	ask := func(caller, turn int) {
		mine, indexes := keys[caller], t.indexes[caller]
		for quota := range mine {
			sequence := indexes[quota]
			mine[quota] = s.names[quota][sequence[turn%len(sequence)]]
		}
		a, err := s.subject.Take(ctx, mine)
		if err != nil {
			s.failed.Add(1)
			return
		}
		for quota, sequence := range indexes {
			s.note(quota, sequence[turn%len(sequence)], a)
		}
	}
	plan := load.Plan{Callers: len(t.indexes), Questions: n, Ask: func(caller, turn int, _ time.Time) {
		if turn%timedEvery != 0 {
			ask(caller, turn)
			return
		}
		asked := time.Now()
		ask(caller, turn)
		latency := min(max(time.Since(asked), 0), longest).Nanoseconds()
		timing.Lock()
		defer timing.Unlock()
		_ = m.latency.RecordValue(latency) // every value in the range is recorded
	}}
	_, before := s.sum(0)
	redis, commands := s.deployment.cpuTime(), s.deployment.commands()
	busy, all := proc.Busy(s.deployment.cpus...), proc.CPUTime(s.deployment.all...)
	start := time.Now()
	timed(func() { plan.Run(ctx) })
	m.elapsed = time.Since(start)
	busy, all = proc.Busy(s.deployment.cpus...)-busy, proc.CPUTime(s.deployment.all...)-all
	if len(s.deployment.cpus) > 0 {
		m.others = max(100*(busy-all).Seconds()/m.elapsed.Seconds(), 0)
	}
	// The first look at their number is a command of each server.
	m.commands = s.deployment.commands() - commands - int64(len(s.deployment.nodes))
	m.cpu = s.deployment.cpuTime() - redis
	_, after := s.sum(0)
	m.admitted, m.failed = after-before, s.failed.Load()-failed
	m.faults = s.faults(ctx, n, m.elapsed)
	return m
}

// atOnce asks, and times nothing.
func atOnce(ask func()) { ask() }
