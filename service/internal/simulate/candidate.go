package simulate

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// A candidate is one at work: its rules, the states of its clients, the requests that wait, and
// what is counted. Candidates share nothing but the bound on memory. It decides as package enforce
// does, with tables in place of a store, and virtual time: what differs would be an error of the
// simulation, and tests compare both.
type candidate struct {
	name string
	set  *rules.Set
	// denies is whether requests without a rule are denied.
	denies bool
	store  *store
	rules  map[*rules.Rule]*tally
	total  tally
	// logged has the log decide, not the rules.
	logged  bool
	plot    timeline
	parts   *parts
	waiting waitQueues
	matches rules.Matches
	// block has those that are decided together; those that wait are copied out of it.
	block   [blockSize]request
	verdict Verdict
	outcome outcome
	decided func(*Verdict) error
	// fault is the error of decided; nothing is decided after it.
	fault   error
	noHolds bool         // as of Config
	asked   stint.HoldOp // with which a Reserve is checked
	// loaded is a sum of what prefetch read, which the compiler would leave out otherwise.
	loaded int64
}

// A tally counts what a rule did, or all of a candidate's together. Requests that a rule denies
// without its limits (a ban, a missing part) count as denied by it, too.
type tally struct {
	Counts

	rule *rules.Rule
	// refused is why the first of its requests can't hold.
	refused error
	ways    map[wayOf]*WayReport
}

// A wayOf is what requests of a rule are counted by: their class, and by what they were charged.
type wayOf struct{ class, via string }

// way counts a request of a rule with classes or ways.
func (t *tally) way(class, via string, allowed bool) {
	if t.rule.Within == "" && t.rule.Otherwise == "" && !t.rule.Classes.Has() {
		return
	}
	of := wayOf{class, via}
	w := t.ways[of]
	if w == nil {
		if t.ways == nil {
			t.ways = map[wayOf]*WayReport{}
		}
		w = &WayReport{Class: class, Via: via}
		t.ways[of] = w
	}
	if allowed {
		w.Admitted++
	} else {
		w.Denied++
	}
}

// newCandidate makes a candidate whose clients have used nothing.
func newCandidate(c Candidate, config *Config, memory *memory) *candidate {
	made := &candidate{
		name: c.Name, set: c.Set, denies: config.DenyByDefault, decided: config.Decided, noHolds: config.NoHolds,
		logged: c.Logged, parts: newParts(config.By),
		asked: stint.HoldOp{Hold: stint.Hold{ID: "simulated"}},
		store: newStore(config.MaxClients, memory), rules: map[*rules.Rule]*tally{},
	}
	return made
}

// A request is one on its way to a verdict. Its slices are the block's, and used again for the next
// one.
type request struct {
	time   stint.Instant
	line   int64
	claims []claim
	// shadows are the claims of rules in shadow, each rule decided by itself.
	shadows  []claim
	shadowed []string
	// waits says that a rule may have it wait.
	waits bool
	hold  *Hold
	// part is its place in parts, -1 for the rest.
	part int
	// reason is why it is denied without a limit, "" if limits decide.
	reason string
	// denier is the rule that denies it so.
	denier *tally
}

// tally is that of a rule.
func (c *candidate) tally(rule *rules.Rule) *tally {
	t := c.rules[rule]
	if t == nil {
		t = &tally{rule: rule}
		c.rules[rule] = t
	}
	return t
}

// prepare finds what is to be decided about events, which depends on no state, and loads the
// clients' keys and states, many at once. Three passes, each over the whole block: the requests'
// texts, the rules and keys, the places of clients in their tables. Each pass asks memory for what
// the next one needs. A client's data are scattered over memory, so that each lookup would wait for
// memory; many at once wait together.
func (c *candidate) prepare(events []Event) {
	for i := range events {
		if address := events[i].Request.Address; address != "" {
			c.loaded += int64(address[0])
		}
	}
	for i := range events {
		c.block[i].match(c, &events[i])
	}
	for i := range events {
		for j := range c.block[i].claims {
			cl := &c.block[i].claims[j]
			cl.guess = cl.table.guess(cl.key.hash)
		}
	}
	for i := range events {
		for j := range c.block[i].claims {
			cl := &c.block[i].claims[j]
			c.loaded += cl.table.prefetch(cl.guess)
		}
	}
}

// add decides a prepared event, or has it wait. Requests that wait and whose time has come by then
// are decided first. Until the event's time all waiters and ends of holds that are due are worked
// off, so that everything happens in order.
func (c *candidate) add(r *request) {
	c.advance(r.time)
	switch {
	case r.reason != "":
		for i := range r.claims { // whose clients asked, too
			if cl := &r.claims[i]; cl.way == 0 {
				if n := cl.table.find(&cl.key); n >= 0 {
					cl.table.ask(n, r.time, cl.Permits)
				}
			}
		}
		c.finish(r, &outcome{reason: r.reason, rule: r.denier, decision: stint.Decision{RetryAfter: stint.Never, At: r.time}})
	case r.waits:
		waiting := *r
		waiting.claims, waiting.shadows, waiting.shadowed = slices.Clone(r.claims), slices.Clone(r.shadows),
			slices.Clone(r.shadowed)
		c.wait(&waiting)
	case r.hold != nil:
		o := c.decide(r, stint.VerbTake, r.time)
		if o.decision.Allowed {
			c.hold(r)
		}
		c.finish(r, o)
	default:
		c.finish(r, c.decide(r, stint.VerbTake, r.time))
	}
}

// match finds what is to be decided about an event, or why and by which rule it is denied without.
// It follows package enforce: a rule that bans or denies for what is missing decides before any
// limit, and rules in shadow change nothing.
func (r *request) match(c *candidate, ev *Event) {
	r.time, r.line, r.claims, r.shadows, r.shadowed = ev.Time, ev.Line, r.claims[:0], r.shadows[:0], r.shadowed[:0]
	r.waits, r.reason, r.denier, r.hold = false, "", nil, ev.Hold
	r.part = c.parts.of(ev)
	c.total.Requests++
	if c.logged {
		if ev.Status == http.StatusTooManyRequests {
			r.reason = "logged"
		}
		return
	}
	if err := c.set.Match(&ev.Request, &c.matches); err != nil {
		r.reason = "invalid"
		return
	}
	none := c.denies
	for i := range c.matches.Len() {
		held, err := c.matches.At(i)
		if err == nil && held.Outcome == rules.Skipped {
			continue
		}
		inShadow := held.Rule.OnExceed == rules.Shadow
		if err == nil && held.NeedsReserve() {
			if inShadow || r.hold == nil && c.noHolds {
				continue
			}
			c.requireHold(ev, held.Rule)
		}
		rule := c.tally(held.Rule)
		rule.Requests++
		none = none && inShadow
		if err == nil && held.Outcome == rules.Limited && r.hold != nil && !inShadow {
			err = reserveOf(&held, &c.asked).Validate()
			rule.refused = cmp.Or(rule.refused, err)
		}
		why := ""
		switch {
		case err != nil:
			why = "invalid"
		case held.Outcome == rules.Banned:
			why = "banned"
		case held.Outcome == rules.Lacking:
			why = "missing"
		case held.Outcome == rules.Limited && inShadow:
			r.shadows = c.store.claims(r.shadows, rule, &held)
		case held.Outcome == rules.Limited:
			r.waits = r.waits || held.Rule.OnExceed == rules.Wait && r.hold == nil
			r.claims = c.store.claims(r.claims, rule, &held)
		}
		switch {
		case why == "":
		case inShadow && why != "invalid":
			rule.Shadow++
			r.shadowed = append(r.shadowed, held.Rule.ID)
		// the first reason counts, but any counts before invalid
		case !inShadow && (r.reason == "" || r.reason == "invalid" && why != "invalid"):
			r.denier, r.reason = rule, why
		}
	}
	slices.SortStableFunc(r.claims, func(a, b claim) int { return cmp.Compare(min(a.way, 1), min(b.way, 1)) })
	if r.reason == "" && none {
		r.reason = "default"
	}
}

// reserveOf is the operation by which a service would reserve what a rule claims.
func reserveOf(m *rules.Matched, hold *stint.HoldOp) *stint.Op {
	op := m.Op(stint.VerbReserve)
	if op.Extra == nil {
		op.Extra = new(stint.Extra)
	}
	op.Extra.Hold = hold
	return &op
}

// An outcome is how a request ended. The deciding limit is that of the decision's Index, counted
// over all claims.
type outcome struct {
	decision stint.Decision
	reason   string // "": the limits decided
	// rule is the one that decided.
	rule    *tally
	key     string
	permits int64
	waited  int64
}

// decide asks the limits.
func (c *candidate) decide(r *request, verb stint.Verb, now stint.Instant) *outcome {
	o, known := &c.outcome, false
	*o = outcome{}
	o.decision, known = c.store.decide(verb, r.claims, now)
	if !known {
		return o
	}
	decider := &c.store.ops[o.decision.Index]
	o.permits, o.rule = decider.permits, r.claims[decider.claim].rule
	o.key = r.claims[decider.claim].of
	if verb == stint.VerbTake || verb == stint.VerbTry && o.decision.Allowed {
		c.record(r, o.decision.Allowed, now)
	}
	return o
}

// record tells the tables how the request ended that the limits decided last. A rule is counted as
// denying only if its own limits would have denied. What a rule alone would have done is asked of
// the outcomes, without another decision.
func (c *candidate) record(r *request, allowed bool, now stint.Instant) {
	for from, to := 0, 0; from < len(c.store.ops); from = to { // a rule may have several claims
		to = c.ofRule(r.claims, from)
		admits := allowed || c.store.combine(from, to, now).Allowed
		c.recordRule(r, from, to, allowed, false, now)
		cl := &r.claims[c.store.ops[from].claim]
		if !admits {
			cl.rule.Denied++
		}
		if allowed || !admits {
			cl.rule.way(cl.class, c.via(r.claims, from, to, allowed), allowed)
		}
	}
}

// ofRule is where the limits end of the rule that one is of.
func (c *candidate) ofRule(claims []claim, from int) (to int) {
	for to = from + 1; to < len(c.store.ops) &&
		claims[c.store.ops[to].claim].rule == claims[c.store.ops[from].claim].rule; to++ {
	}
	return to
}

// via is by what a rule charges a request that is allowed.
func (c *candidate) via(claims []claim, from, to int, allowed bool) string {
	for i := from; i < to && allowed; i++ {
		if c.store.Charged(i) {
			return claims[c.store.ops[i].claim].via
		}
	}
	return ""
}

// recordRule tells the tables of one rule: those that are charged of a request that is allowed,
// else those that deny, or all. Several ways may have the same one. A table is asked once for each
// request, though two ways may lead to the same client in it.
func (c *candidate) recordRule(r *request, from, to int, allowed, all bool, now stint.Instant) {
	for i := from; i < to; {
		p, first := &c.store.ops[i], i
		admits := true
		for range p.table.limits {
			admits = admits && c.store.Outs[i].Allowed
			i++
		}
		if len(c.store.Ways) > 0 && (allowed && !c.store.Charged(first) || !allowed && c.hasTable(from, first)) {
			continue
		}
		p.table.ask(p.client, r.time, p.permits)
		if allowed || !admits || all {
			p.table.record(p.client, now, allowed, p.permits)
		}
	}
}

// hasTable reports whether a limit from one on is of the same client and table as another one.
func (c *candidate) hasTable(from, of int) bool {
	p := &c.store.ops[of]
	return slices.ContainsFunc(c.store.ops[from:of],
		func(op limitOp) bool { return op.table == p.table && op.client == p.client })
}

// finish decides the rules in shadow, counts the request, and tells its verdict. Rules in shadow
// are asked last, at the time when the request was let through. Shadows come last, so that they see
// the time at which the request was let through.
func (c *candidate) finish(r *request, o *outcome) {
	allowed := o.decision.Allowed
	if o.reason == "" {
		for first := 0; first < len(r.shadows); {
			end := first + 1
			for end < len(r.shadows) && r.shadows[end].rule == r.shadows[first].rule {
				end++
			}
			c.decideShadow(r, r.shadows[first:end], r.time+stint.Instant(o.waited))
			first = end
		}
	}
	if len(r.shadowed) > 0 {
		c.total.Shadow++
	}
	var last *tally
	for i := range r.claims {
		if rule := r.claims[i].rule; rule != last {
			rule.end(allowed, o)
			last = rule
		}
	}
	c.total.end(allowed, o)
	if !allowed {
		c.total.Denied++
		if o.reason != "" && o.rule != nil {
			o.rule.Denied++
		}
	}
	c.plot.add(r.time, allowed, len(r.shadowed) > 0)
	c.parts.add(r.part, r.time, allowed, len(r.shadowed) > 0)
	if c.decided != nil && c.fault == nil {
		c.tell(r, o)
	}
}

// decideShadow decides a rule in shadow, which is asked by itself.
func (c *candidate) decideShadow(r *request, claims []claim, now stint.Instant) {
	d, known := c.store.decide(stint.VerbTake, claims, now)
	if !known {
		return
	}
	c.recordRule(r, 0, len(c.store.ops), d.Allowed, true, now)
	claims[0].rule.way(claims[0].class, c.via(claims, 0, len(c.store.ops), d.Allowed), d.Allowed)
	if rule := claims[0].rule; d.Allowed {
		rule.Admitted++
	} else {
		rule.Shadow++
		r.shadowed = append(r.shadowed, rule.rule.ID)
	}
}

// end counts a request that all rules have decided.
func (t *tally) end(allowed bool, o *outcome) {
	if allowed {
		t.Admitted++
		delay := o.decision.Delay.Microseconds()
		t.Delayed += delay
		t.LongestDelay = max(t.LongestDelay, delay)
	}
	if o.waited > 0 {
		t.Held++
		t.Waited += o.waited
		t.LongestWait = max(t.LongestWait, o.waited)
	}
}

// tell hands the verdict to Config.Decided, whose error ends the simulation. The verdict is reused,
// which is why it must not be kept.
func (c *candidate) tell(r *request, o *outcome) {
	v := &c.verdict
	*v = Verdict{
		Candidate: c.name, Line: r.line, Time: r.time, Allowed: o.decision.Allowed, Reason: o.reason,
		Key: o.key, Permits: o.permits, Decision: o.decision, Waited: micros(o.waited), Shadowed: r.shadowed,
	}
	if o.rule != nil {
		v.Rule = o.rule.rule.ID
	}
	if !v.Allowed && v.Reason == "" {
		v.Reason = "limit"
	}
	c.fault = c.decided(v)
}
