package simulate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/waitqueue"
	"github.com/stint-go/stint/rules"
)

// A Source hands events on, in order of time, the same ones whenever it is called.
type Source func(add func(*Event) error) error

// A Goal says what [Suggest] looks for.
type Goal struct {
	// Share is which part of the clients is to be untouched: above 0, up to 1. A client is untouched if all of its
	// requests are admitted, whatever their delay.
	Share float64
	// Rate looks for the least rate of a bucket, its permits per period, at the capacity that it has.
	// The rule must have one limit then. Default: false, the least capacity of a bucket at the rate
	// that it has, the least limit of a window.
	Rate bool
	// MaxClients bounds the clients of the rule, up to [MaxClients]; more are an error that wraps stint.ErrInvalid.
	// Default: 0, which is MaxClients.
	MaxClients int
	// MaxMemory and Proceed are those of each simulation, as of [Config]. Default: no bound, and nil.
	MaxMemory int64
	Proceed   func() error
}

// Suits reports whether a rule is enabled and has limits for which the goal is defined.
func (g Goal) Suits(rule *rules.Rule) bool {
	return !rule.Disabled && len(rule.Limits) > 0 && (!g.Rate || len(rule.Limits) == 1 && rule.Limits[0].IsBucket())
}

// A Suggestion is what suits the clients of a rule. Its fit is on the first three quarters of the
// time.
type Suggestion struct {
	Rule string `json:"rule"`
	// Goal is the share that was asked for.
	Goal float64 `json:"goal"`
	// Limits are the rule's with the values that were found, Values, in order; none if no request has a client of the
	// rule.
	Limits []stint.Limit `json:"-"`
	Texts  []string      `json:"limits"`
	Values []int64       `json:"values"`
	// Clients asked in the time of the fit, without those that no value suits: TooClose break min_interval, and
	// BeyondRange ask for more than the largest value that a limit may have.
	Clients     int64 `json:"clients"`
	TooClose    int64 `json:"tooClose"`
	BeyondRange int64 `json:"beyondRange"`
	// Untouched clients were counted by a replay with Values, UntouchedBelow by replays with one value less for each
	// limit; -1 where it is 1 already.
	Untouched      int64   `json:"untouched"`
	UntouchedBelow []int64 `json:"untouchedBelow"`
	// Curves say for each limit how many clients other values of it leave untouched, in the order of
	// values, by what the clients need; for a rate, by the replays that looked for it. What was found
	// is among them.
	Curves [][]CurvePoint `json:"curves"`
	// Maximum says that there are too few clients for the share: all of them are to be untouched.
	Maximum bool `json:"maximum"`
	// RestClients asked in the last quarter of the time, and RestUntouched of them are untouched by a
	// replay of all of it.
	RestClients   int64 `json:"restClients"`
	RestUntouched int64 `json:"restUntouched"`
}

// A CurvePoint is how many clients a value leaves untouched.
type CurvePoint struct {
	Value     int64 `json:"value"`
	Untouched int64 `json:"untouched"`
}

// Suggest finds the least values of a rule's limits under which a share of its clients is
// untouched, and proves it by a replay. Several limits are reduced in their order, each to the
// least at which all hold together. The rule is taken by itself, rejects, and does not count
// clients with overrides. The source is read four times, more often for a rate, or where clients
// have more instants in a log's window than are kept.
//
// Until a client's first denial its state does not depend on the limit: what it needs is the most that was used at any
// time under the largest limit.
//
// So for a client and a limit, need = max over its requests of (limit - remaining) under the
// largest limit, and the least value for a share of the clients is a quantile of the needs. A rate
// has no such need, and a log only between two bounds once it has more than maxInstants; there
// replays bisect.
func Suggest(source Source, rule rules.Rule, options rules.Options, goal Goal) (*Suggestion, error) {
	if !(goal.Share > 0 && goal.Share <= 1) {
		return nil, stint.Invalid("share", goal.Share, "above 0, up to 1")
	}
	if len(rule.Limits) == 0 {
		return nil, stint.Invalid("rule "+rule.ID, "no limits", "a rule with limits")
	}
	if goal.MaxClients = cmp.Or(goal.MaxClients, MaxClients); goal.MaxClients < 0 || goal.MaxClients > MaxClients {
		return nil, stint.Invalid("max_clients", goal.MaxClients, fmt.Sprintf("0 to %d", MaxClients))
	}
	if goal.Rate && (len(rule.Limits) > 1 || !rule.Limits[0].IsBucket()) {
		return nil, stint.Invalid(
			"rule "+rule.ID, "limits of which the least rate is not defined", "one token bucket or leaky bucket",
		)
	}
	rule = rule.Clone()
	rule.OnExceed, rule.MaxWait, rule.MaxWaiters = rules.Reject, 0, 0
	rule.Block, rule.Otherwise = rules.Block{}, "" // who is never denied is never blocked, nor admitted otherwise
	for i := range rule.Overrides {
		rule.Overrides[i] = rules.Override{Key: rule.Overrides[i].Key, Unlimited: true}
	}
	s := &suggestor{source: source, rule: rule, options: options, goal: goal}
	if err := s.measure(); err != nil {
		return nil, err
	}
	if len(s.told) == 0 {
		return &Suggestion{Rule: rule.ID, Goal: goal.Share}, nil
	}
	values, err := s.search()
	if err != nil {
		return nil, err
	}
	return s.prove(values)
}

// A suggestor looks for the values of one rule. The fields are filled by measure, then search and
// prove read them.
type suggestor struct {
	source  Source
	rule    rules.Rule
	options rules.Options
	goal    Goal
	// split is the end of the fit: three quarters of the time.
	split stint.Instant
	// most are the largest values that are valid.
	most []int64
	// needs has what each client needs of each limit: client x limits + limit.
	needs []int64
	// lows has, by the same places, what needs are at least where they are brackets.
	lows map[int]int64
	// told says of each client whether a value suits it.
	told []misfit
	// asked counts clients with a value to be found, wanted how many of them are to be untouched.
	asked int64
	// wanted is share x asked, rounded up.
	wanted int64
	// probes are of replays that looked for a value; they are points of the curve.
	probes []CurvePoint
}

// misfit says why no value suits a client.
type misfit uint8

// The reasons for which no value suits a client: it breaks min_interval, or asks for more than the
// largest value.
const (
	suited misfit = iota
	tooClose
	beyondRange
)

// with is the rule with values.
func (s *suggestor) with(values []int64) rules.Rule {
	rule := s.rule.Clone()
	for i := range rule.Limits {
		s.set(&rule.Limits[i], values[i])
	}
	return rule
}

// set gives a limit a value: its capacity, or its rate. A lease depends on the capacity, and is
// left out.
func (s *suggestor) set(l *stint.Limit, value int64) {
	if s.goal.Rate {
		l.Rate.Permits = value
	} else {
		l.Capacity, l.Lease = value, 0
	}
}

// valid reports whether a limit may have a value.
func (s *suggestor) valid(l stint.Limit, value int64) bool {
	s.set(&l, value)
	return l.Validate() == nil
}

// measure finds the end of the fit, and what clients need. The source is read twice: for its first
// and last instant, and through the rule with its largest limits.
func (s *suggestor) measure() error {
	first, last := stint.Instant(math.MaxInt64), stint.Instant(0)
	err := s.source(func(ev *Event) error {
		first, last = min(first, ev.Time), max(last, ev.Time)
		return nil
	})
	if err != nil {
		return err
	}
	if first > last {
		return stint.Invalid("input", "no requests", "some")
	}
	s.split, s.lows = first+(last-first)/4*3+1, map[int]int64{}
	for _, l := range s.rule.Limits {
		s.most = append(s.most, int64(sort.Search(bounds.MaxPermits, func(n int) bool { return !s.valid(l, int64(n)+1) })))
		if s.goal.Rate {
			s.most[0] = bounds.MaxPermits
		}
	}
	set, err := rules.Compile([]rules.Rule{s.with(s.most)}, s.options)
	if err != nil {
		return err
	}
	memory := &memory{most: s.goal.MaxMemory}
	c, err := newCandidate(Candidate{Set: set}, &Config{MaxClients: s.goal.MaxClients}, memory)
	if err != nil {
		return err
	}
	now := stint.Instant(0)
	err = s.source(func(ev *Event) error {
		if now = max(now, ev.Time); now >= s.split {
			return nil
		}
		c.advance(now)
		r := c.block[0]
		c.match(r, ev)
		if r.denier != nil && r.denier.refused != nil {
			return r.denier.refused
		}
		if r.reason != "" || len(r.claims) == 0 || c.store.fault != nil {
			return c.store.fault
		}
		c.ask(r, waitqueue.Take, now)
		if err := memory.fault([]*candidate{c}); err != nil {
			return err
		}
		if slices.ContainsFunc(r.claims, func(cl claim) bool { return cl.table.level > 0 }) {
			return stint.Invalid("rule "+s.rule.ID, "one with more clients", fmt.Sprintf("up to %d", s.goal.MaxClients))
		}
		s.need(c.store, r.verdict.Allowed)
		if r.charges {
			return stint.Invalid("actual", r.hold.Actual,
				fmt.Sprintf("what line %d holds, or less, where limits are suggested", ev.Line))
		}
		return nil
	})
	for _, told := range s.told {
		if told == suited {
			s.asked++
		}
	}
	s.wanted = int64(math.Ceil(s.goal.Share*float64(s.asked) - 1e-9))
	return err
}

// maxInstants bounds the instants of a client that are kept exactly in a log: 1 MiB.
const maxInstants = 1 << 16

// need notes what a client needs by now.
func (s *suggestor) need(l *store, allowed bool) {
	n, limits := int(l.ops[0].client), len(s.rule.Limits)
	for n >= len(s.told) {
		s.told, s.needs = append(s.told, suited), append(s.needs, make([]int64, limits)...)
	}
	if s.told[n] != suited {
		return
	}
	for i, out := range l.Outs {
		p := &l.ops[i]
		at := n*limits + slices.IndexFunc(
			s.rule.Limits,
			func(k stint.Limit) bool { return k.Name == p.limit.Name && k.Algorithm == p.limit.Algorithm },
		)
		switch {
		case allowed:
			s.needs[at] = max(s.needs[at], out.Limit-out.Remaining)
			s.coarsen(p, at)
		case !out.Allowed && p.permits <= out.Remaining:
			s.told[n] = tooClose
		case !out.Allowed && s.told[n] == suited:
			s.told[n] = beyondRange
		}
	}
}

// coarsen bounds a log: what its client needs is known to lie between two values then.
func (s *suggestor) coarsen(p *limitOp, at int) {
	logs, ok := p.limit.state.(*statesOf[algorithm.Log])
	if !ok || logs.at(p.client).Records() <= maxInstants {
		return
	}
	if _, known := s.lows[at]; !known {
		s.lows[at] = s.needs[at]
	}
	logs.at(p.client).Coarsen()
}

// untouched is how many clients need no more than values, at most or, of those in brackets, at
// least.
func (s *suggestor) untouched(values []int64, least bool) (n int64) {
	for client, told := range s.told {
		suits := told == suited
		for i, value := range values {
			at := client*len(values) + i
			need := s.needs[at]
			if low, bracket := s.lows[at]; bracket && least {
				need = low
			}
			suits = suits && need <= value
		}
		if suits {
			n++
		}
	}
	return n
}

// search finds the values. The first limit is reduced as far as the others at their largest allow,
// then the second, and so on.
func (s *suggestor) search() (values []int64, err error) {
	values = slices.Clone(s.most)
	if s.goal.Rate {
		least := int64(1 + sort.Search(bounds.MaxPermits, func(n int) bool { return s.valid(s.rule.Limits[0], int64(n)+1) }))
		values[0], err = s.bisect(values, 0, least, s.most[0])
		return values, err
	}
	for i := range values {
		low, high := s.least(values, i, true), s.least(values, i, false)
		if values[i] = high; low < high {
			if values[i], err = s.bisect(values, i, low, high); err != nil {
				return nil, err
			}
		}
	}
	return values, nil
}

// least is the least of one of the values, by what clients need.
func (s *suggestor) least(values []int64, i int, low bool) int64 {
	values = slices.Clone(values)
	return int64(1 + sort.Search(int(s.most[i])-1, func(n int) bool {
		values[i] = int64(n) + 1
		return s.untouched(values, low) >= s.wanted
	}))
}

// bisect finds the least of one of the values by replays, between two. The count of untouched
// clients grows with the value, so that halving finds the least.
func (s *suggestor) bisect(values []int64, i int, low, high int64) (int64, error) {
	values = slices.Clone(values)
	for low < high {
		values[i] = low + (high-low)/2
		counts, err := s.replay(values)
		if err != nil {
			return 0, err
		}
		s.probes = append(s.probes, CurvePoint{values[i], counts[0]})
		if counts[0] >= s.wanted {
			high = values[i]
		} else {
			low = values[i] + 1
		}
	}
	return low, nil
}

// replay counts the clients that several lists of values leave untouched in the time of the fit.
// All lists are candidates of one simulation, so that the source is read once.
func (s *suggestor) replay(lists ...[]int64) (counts []int64, err error) {
	sim, err := s.simulation(lists...)
	if err != nil {
		return nil, err
	}
	now := stint.Instant(0)
	err = s.source(func(ev *Event) error {
		if now = max(now, ev.Time); now >= s.split {
			return nil
		}
		return sim.Add(ev)
	})
	err = cmp.Or(err, sim.decide())
	for _, c := range sim.candidates {
		n, _ := c.untouched(s.rule.ID)
		counts = append(counts, n)
	}
	return counts, err
}

// simulation makes a simulation of the rule with several lists of values.
func (s *suggestor) simulation(lists ...[]int64) (*Simulation, error) {
	config := Config{MaxClients: s.goal.MaxClients, MaxMemory: s.goal.MaxMemory, Proceed: s.goal.Proceed}
	for _, values := range lists {
		set, err := rules.Compile([]rules.Rule{s.with(values)}, s.options)
		if err != nil {
			return nil, err
		}
		config.Candidates = append(config.Candidates, Candidate{Set: set})
	}
	return New(config)
}

// untouched is how many clients of a rule asked, and how many of them were never denied. All tables of a rule without
// overrides number clients alike.
func (c *candidate) untouched(rule string) (untouched, asked int64) {
	tables := c.tables()[rule]
	if len(tables) == 0 {
		return 0, 0
	}
	for n := range tables[0].clients.used {
		seen, denied := false, false
		for _, t := range tables {
			seen = seen || t.clients.at(n).asked()
			denied = denied || t.clients.at(n).denied > 0
		}
		if seen {
			asked++
		}
		if seen && !denied {
			untouched++
		}
	}
	return untouched, asked
}

// prove replays the values, one less of each, and what came after the fit. What was found must
// hold, and one less of each must not; otherwise the search is wrong, and says so instead of
// suggesting.
func (s *suggestor) prove(values []int64) (*Suggestion, error) {
	r := &Suggestion{
		Rule:    s.rule.ID,
		Goal:    s.goal.Share,
		Values:  values,
		Limits:  s.with(values).Limits,
		Clients: s.asked,
		Maximum: s.wanted == s.asked,
	}
	for _, told := range s.told {
		switch told {
		case tooClose:
			r.TooClose++
		case beyondRange:
			r.BeyondRange++
		case suited:
		}
	}
	lists := [][]int64{values}
	for i, l := range r.Limits {
		r.Texts = append(r.Texts, describe(l))
		r.UntouchedBelow = append(r.UntouchedBelow, -1)
		if values[i] > 1 && s.valid(l, values[i]-1) {
			less := slices.Clone(values)
			less[i]--
			lists = append(lists, less)
		}
	}
	counts, err := s.replay(lists...)
	if err != nil {
		return nil, err
	}
	r.Untouched = counts[0]
	for i, next := 0, 1; next < len(lists); i++ {
		if lists[next][i] != values[i] {
			r.UntouchedBelow[i] = counts[next]
			next++
		}
	}
	for _, below := range r.UntouchedBelow {
		if r.Untouched < s.wanted || below >= s.wanted {
			return nil, fmt.Errorf("stint: the replay does not prove what was found: %+v", r)
		}
	}
	r.Curves = s.curves(r)
	r.RestUntouched, r.RestClients, err = s.rest(values)
	return r, err
}

// curvePoints is how many values a curve has up to the one that was found, and as many beyond it.
const curvePoints = 20

// curves are those of a suggestion.
func (s *suggestor) curves(r *Suggestion) (curves [][]CurvePoint) {
	for i, found := range r.Values {
		curve := []CurvePoint{{found, r.Untouched}}
		if r.UntouchedBelow[i] >= 0 {
			curve = append(curve, CurvePoint{found - 1, r.UntouchedBelow[i]})
		}
		if s.goal.Rate {
			for _, p := range s.probes {
				if p.Value <= 2*found {
					curve = append(curve, p)
				}
			}
		} else {
			values := slices.Clone(r.Values)
			for n := int64(1); n <= 2*curvePoints; n++ {
				if values[i] = found * n / curvePoints; values[i] > 0 && values[i] <= s.most[i] && values[i] != found &&
					values[i] != found-1 {
					curve = append(curve, CurvePoint{values[i], s.untouched(values, false)})
				}
			}
		}
		slices.SortStableFunc(curve, func(a, b CurvePoint) int { return cmp.Compare(a.Value, b.Value) })
		curves = append(curves, slices.CompactFunc(curve, func(a, b CurvePoint) bool { return a.Value == b.Value }))
	}
	return curves
}

// rest replays all of the time, and counts in its last quarter. A limit that fits the past may not
// fit the future: the last quarter was not looked at when it was found.
func (s *suggestor) rest(values []int64) (untouched, asked int64, err error) {
	sim, err := s.simulation(values)
	if err != nil {
		return 0, 0, err
	}
	c, fitted := sim.candidates[0], false
	err = s.source(func(ev *Event) error {
		if !fitted && ev.Time >= s.split {
			fitted = true
			if err := sim.decide(); err != nil {
				return err
			}
			for _, t := range c.tables()[s.rule.ID] {
				for n := range t.clients.used {
					t.clients.at(n).admitted, t.clients.at(n).denied = 0, 0
				}
			}
		}
		return sim.Add(ev)
	})
	err = cmp.Or(err, sim.decide())
	untouched, asked = c.untouched(s.rule.ID)
	return untouched, asked, err
}
