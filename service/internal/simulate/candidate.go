package simulate

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/steps"
	"github.com/stint-go/stint/internal/waitqueue"
	"github.com/stint-go/stint/rules"
)

// A candidate is one at work: its rules, the states of its clients, the requests that wait, and
// what is counted. Candidates share nothing but the bound on memory. A limiter of package enforce finds the rules of a
// request, asks their limits, and has it wait, all in virtual time; the candidate is its store.
type candidate struct {
	stint.Store // none: of its methods a limiter needs those that the candidate has

	name    string
	limiter *enforce.Limiter
	store   *store
	rules   map[string]*tally // of all rules, by ID
	recent  [16]*tally        // those that were looked up last, by the ends of their IDs
	total   tally
	// logged has the log decide, not the rules.
	logged bool
	// plain says that no rule is in shadow or marks, or has ways or classes.
	plain bool
	// holds says that a rule has a concurrency limit, or counts by answers, and that requests say whether they hold.
	holds bool
	plot  timeline
	parts *parts
	wakes upcoming[wake]
	// arrived is how many waited or held.
	arrived uint64
	begun   stint.Instant // where the limiter's clock begins
	// block has those that are decided together.
	block [blockSize]*request
	// on is the request that is decided, at now, and verb what was asked last; answer is what the limits said, if known.
	on      *request
	now     stint.Instant
	matched stint.Instant // when the request came that was matched last
	verb    stint.Verb
	answer  stint.Decision
	known   bool
	shadows []claim
	verdict Verdict
	decided func(*Verdict) error
	// fault is the error of decided; nothing is decided after it.
	fault error
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

// hasWays reports whether the rule has classes or ways.
func (t *tally) hasWays() bool {
	return t.rule.Within != "" || t.rule.Otherwise != "" || t.rule.Classes.Has()
}

// way counts a request of a rule with classes or ways.
func (t *tally) way(class, via string, allowed bool) {
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

// tally is that of a rule, by its ID. Requests one after another mostly have the same few rules.
func (c *candidate) tally(id string) *tally {
	recent := &c.recent[id[len(id)-1]%16]
	if *recent == nil || (*recent).rule.ID != id {
		*recent = c.rules[id]
	}
	return *recent
}

// newCandidate makes a candidate whose clients have used nothing.
func newCandidate(c Candidate, config *Config, memory *memory) (*candidate, error) {
	made := &candidate{
		name: c.Name, decided: config.Decided, logged: c.Logged, parts: newParts(config.By), plain: true,
		store: newStore(config.MaxClients, memory), rules: map[string]*tally{},
	}
	list := c.Set.Rules()
	for i := range list {
		rule := &list[i]
		made.rules[rule.ID] = &tally{rule: rule}
		made.plain = made.plain && rule.OnExceed < rules.Shadow && rule.MarkAt == 0 && !made.rules[rule.ID].hasWays()
		made.holds = made.holds || !config.NoHolds && rule.NeedsReserve()
	}
	for i := range made.block {
		made.block[i] = new(request)
	}
	var err error
	made.limiter, err = enforce.New(enforce.Config{
		Store: made, Set: c.Set, DenyByDefault: config.DenyByDefault && !c.Logged,
		Now: func() time.Time { return made.matched.Time() },
	})
	return made, err
}

// A request is one on its way to a verdict. Its slices are used again for the next one.
type request struct {
	time    stint.Instant
	line    int64
	verdict enforce.Verdict
	claims  []claim // the verdict's
	hold    *Hold
	status  int  // that of its answer, for rules that count by it; 0 is not known
	charges bool // whether more than it holds will be charged at its end
	// part is its place in parts, -1 for the rest.
	part int
	// reason is why it is denied without a limit, "" if limits decide.
	reason string
	// denier is the rule that denies it so.
	denier *tally
	waiter steps.Waiter
	number uint64        // of its wait
	wakes  stint.Instant // when it is to be woken
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
		c.match(c.block[i], &events[i])
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

// match finds what is to be decided about an event, or why and by which rule it is denied without.
func (c *candidate) match(r *request, ev *Event) {
	c.matched = ev.Time
	r.time, r.line, r.hold, r.status, r.charges = ev.Time, ev.Line, ev.Hold, ev.Status, false
	r.reason, r.denier, r.part = "", nil, c.parts.of(ev)
	c.total.Requests++
	v, verb := &r.verdict, stint.VerbTake
	if ev.Hold != nil {
		verb = stint.VerbReserve
	} else if c.holds {
		c.requireHold(r, ev)
	}
	err := c.limiter.Steps().Prepare(&ev.Request, v, verb)
	claims := v.Claims()
	r.claims = sized(r.claims, len(claims))
	for i := range claims {
		of := &claims[i]
		rule := c.tally(of.Rule.ID)
		c.store.claim(&r.claims[i], rule, &of.Claim, 0)
		if ev.Hold == nil || err != nil {
			continue
		}
		if err = canHold(&of.Claim); err != nil {
			v.Rule, rule.refused = of.Rule, err
		}
	}
	for _, id := range v.Matched {
		c.tally(id).Requests++
	}
	switch {
	case c.logged && ev.Status == http.StatusTooManyRequests:
		r.reason = "logged"
	case c.logged || err == nil && v.Allowed:
	case err != nil:
		r.reason = "invalid"
	default:
		r.reason = string(v.Reason())
	}
	if r.reason != "" && v.Rule != nil {
		r.denier = c.tally(v.Rule.ID)
	}
}

// add decides a prepared event, or has it wait. Until the event's time all waiters and ends of holds that are due are
// worked off, so that everything happens in order.
func (c *candidate) add(at int) {
	r := c.block[at]
	c.advance(r.time)
	switch {
	case r.reason != "":
		for i := range r.claims { // whose clients asked, too
			cl := &r.claims[i]
			again := slices.ContainsFunc(r.claims[:i], func(earlier claim) bool {
				return earlier.table.policy.Name() == cl.table.policy.Name()
			})
			if r.verdict.Claims()[i].Via == "" && !again {
				if n := cl.table.find(&cl.key); n >= 0 {
					cl.table.ask(n, r.time, cl.permits)
				}
			}
		}
	case r.hold == nil && waits(r.verdict.Claims()):
		if !c.wait(r) {
			c.block[at] = new(request)
		}
		return
	default:
		c.take(r)
	}
	c.finish(r, r.time)
}

// waits reports whether a rule may have the request wait.
func waits(claims []enforce.Claimed) bool {
	return slices.ContainsFunc(claims, func(c enforce.Claimed) bool { return c.Rule.OnExceed == rules.Wait })
}

// ask asks the limits of a request.
func (c *candidate) ask(r *request, do waitqueue.Action, now stint.Instant) {
	c.on, c.now, c.verb = r, now, stint.VerbTake
	if do != waitqueue.Shadow {
		c.answer, c.known = stint.Decision{Allowed: true, At: now}, false
	}
	_ = c.limiter.Steps().Ask(context.Background(), &r.verdict, do) // its only error is of a client outside the sample
}

// Decide implements [stint.Store] for the candidate's limiter.
func (c *candidate) Decide(_ context.Context, op stint.Op) (stint.Decision, error) {
	if op.Each == nil {
		return c.decideShadow(&op)
	}
	r := c.on
	if op.Groups() != nil {
		for nth := range r.claims {
			_, r.claims[nth].way = op.NthClaim(nth)
		}
	}
	c.carry(op.Verb)
	for i := range op.Each {
		if len(c.store.ops) < len(op.Each) {
			op.Each[i] = stint.Outcome{Allowed: true} // of clients outside the sample
		}
	}
	for i := range c.store.ops {
		op.Each[c.store.ops[i].nth] = c.store.Outs[i]
	}
	return c.answer, nil
}

// carry carries out a verb on what the request claims, which makes the answer.
func (c *candidate) carry(verb stint.Verb) {
	c.verb = verb
	if c.answer, c.known = c.store.decide(verb, c.on.claims, c.now); !c.known {
		return
	}
	c.answer.Index = c.store.ops[c.answer.Index].nth
	if verb == stint.VerbTake || verb == stint.VerbTry && c.answer.Allowed {
		c.record(c.answer.Allowed)
	}
	if c.answer.Allowed && c.on.hold != nil {
		c.hold(c.on)
	}
}

// take takes what a request asks for that can't wait. Where the limiter would do no more than ask once, it is left out,
// which is faster by a tenth.
func (c *candidate) take(r *request) {
	if !c.plain {
		c.ask(r, waitqueue.Take, r.time)
		return
	}
	v := &r.verdict
	c.on, c.now = r, r.time
	c.carry(stint.VerbTake)
	if v.Allowed, v.Decision.Delay = c.answer.Allowed, c.answer.Delay; c.known && c.decided != nil {
		ops := c.store.ops
		op := ops[slices.IndexFunc(ops, func(op limitOp) bool { return op.nth == c.answer.Index })]
		first := ops[slices.IndexFunc(ops, func(other limitOp) bool { return other.claim == op.claim })]
		of := &v.Claims()[op.claim]
		v.Rule, v.Claim, v.Decision = of.Rule, of.Claim, c.answer
		v.Claim.Key, v.Decision.Index = of.Client, op.nth-first.nth
	}
}

// DecideAll implements [stint.Store].
func (c *candidate) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	for i := range ops {
		results[i].Decision, results[i].Err = c.Decide(ctx, ops[i])
	}
}

// decideShadow decides a rule in shadow, which is asked by itself, at the time when the request was let through.
func (c *candidate) decideShadow(op *stint.Op) (stint.Decision, error) {
	c.shadows = sized(c.shadows, op.Len())
	for nth := range c.shadows {
		of, way := op.NthClaim(nth)
		c.store.claim(&c.shadows[nth], nil, of, way)
	}
	d, known := c.store.decide(op.Verb, c.shadows, c.now)
	if !known {
		return d, stint.ErrUnavailable
	}
	c.recordRule(c.shadows, 0, len(c.store.ops), d.Allowed, true)
	return d, nil
}

// record tells the tables how the request ended that the limits decided last. A rule is counted as
// denying only if its own limits would have denied. What a rule alone would have done is asked of
// the outcomes, without another decision.
func (c *candidate) record(allowed bool) {
	claims := c.on.claims
	for from, to := 0, 0; from < len(c.store.ops); from = to { // a rule may have several claims
		rule := claims[c.store.ops[from].claim].rule
		for to = from + 1; to < len(c.store.ops) && claims[c.store.ops[to].claim].rule == rule; {
			to++
		}
		admits := allowed || to-from < len(c.store.ops) && c.store.combine(from, to, c.now).Allowed
		c.recordRule(claims, from, to, allowed, false)
		if !admits {
			rule.Denied++
		}
		if (allowed || !admits) && rule.hasWays() {
			via, of := "", c.on.verdict.Claims()
			for i := from; i < to && allowed && via == ""; i++ {
				if c.store.Charged(i) {
					via = of[c.store.ops[i].claim].Via
				}
			}
			rule.way(of[c.store.ops[from].claim].Class, via, allowed)
		}
	}
}

// recordRule tells the tables of one rule: those that are charged of a request that is allowed,
// else those that deny, or all. Several ways may have the same one. A table is asked once for each
// request, though two ways may lead to the same client in it. Where a rule has several, for limits of different costs
// or of denials, the first one counts its clients.
func (c *candidate) recordRule(claims []claim, from, to int, allowed, all bool) {
	for i := from; i < to; {
		p, first := &c.store.ops[i], i
		i += len(p.table.limits)
		if len(c.store.Ways) > 0 && (allowed && !c.store.Charged(first) || !allowed && c.hasTable(from, first)) {
			continue
		}
		permits := claims[p.claim].permits // of which limits with a cost of their own know nothing
		if c.isCounted(from, first) {
			if allowed {
				p.table.admit(p.client, c.now, permits)
			}
			continue
		}
		p.table.ask(p.client, c.on.time, permits)
		if allowed || all || c.denies(first, to) {
			p.table.record(p.client, c.now, allowed, permits)
		}
	}
}

// isBeside reports whether the limits of two operations are of one rule, and of one way if it has several, in tables
// that have the same clients.
func (c *candidate) isBeside(one, other int) bool {
	ways := c.store.Ways // none if no rule has several
	return (len(ways) == 0 || ways[one] == ways[other]) &&
		c.store.ops[one].table.policy.Name() == c.store.ops[other].table.policy.Name()
}

// isCounted reports whether an operation's client is counted by an earlier table of its rule.
func (c *candidate) isCounted(from, of int) bool {
	for i := from; i < of; i++ {
		if c.isBeside(i, of) {
			return true
		}
	}
	return false
}

// denies reports whether a table, whose limits begin at an operation, denies, or one that has the same clients.
func (c *candidate) denies(first, to int) bool {
	for i := first; i < to; i++ {
		if !c.store.Outs[i].Allowed && (i < first+len(c.store.ops[first].table.limits) || c.isBeside(first, i)) {
			return true
		}
	}
	return false
}

// hasTable reports whether a limit from one on is of the same client and table as another one.
func (c *candidate) hasTable(from, of int) bool {
	p := &c.store.ops[of]
	return slices.ContainsFunc(c.store.ops[from:of],
		func(op limitOp) bool { return op.table == p.table && op.client == p.client })
}

// finish counts a request that is decided, and tells its verdict.
func (c *candidate) finish(r *request, now stint.Instant) {
	v := &r.verdict
	allowed, waited := v.Allowed && r.reason == "", int64(now-r.time)
	var marked []string
	for i := range v.Exceeded {
		if id := v.Exceeded[i].Rule; i == 0 || id != v.Exceeded[i-1].Rule { // several limits of a rule are one mark
			c.tally(id).Marked++
			marked = append(marked, id)
		}
	}
	for i := range v.Shadows {
		e := &v.Shadows[i]
		if e.Marked {
			continue
		}
		rule := c.tally(e.Rule)
		if e.Claim.Policy != nil && rule.hasWays() {
			rule.way(e.Class, e.Via, e.Decision.Allowed)
		}
		if e.Decision.Allowed {
			rule.Admitted++
		} else {
			rule.Shadow++
		}
	}
	shadowed := len(v.Shadowed) > 0
	if shadowed {
		c.total.Shadow++
	}
	if len(marked) > 0 {
		c.total.Marked++
	}
	var last *tally
	for i := range r.claims {
		if rule := r.claims[i].rule; rule != last {
			rule.end(allowed, v.Decision.Delay.Microseconds(), waited)
			last = rule
		}
	}
	c.total.end(allowed, v.Decision.Delay.Microseconds(), waited)
	if !allowed {
		c.total.Denied++
		if r.denier != nil {
			r.denier.Denied++
		}
	}
	c.plot.add(r.time, allowed, shadowed)
	c.parts.add(r.part, r.time, allowed, shadowed)
	if c.decided != nil && c.fault == nil {
		c.tell(r, allowed, waited, marked)
	}
}

// end counts a request that all rules have decided.
func (t *tally) end(allowed bool, delay, waited int64) {
	if allowed {
		t.Admitted++
		t.Delayed += delay
		t.LongestDelay = max(t.LongestDelay, delay)
	}
	if waited > 0 {
		t.Held++
		t.Waited += waited
		t.LongestWait = max(t.LongestWait, waited)
	}
}

// tell hands the verdict to Config.Decided, whose error ends the simulation. The verdict is reused,
// which is why it must not be kept.
func (c *candidate) tell(r *request, allowed bool, waited int64, marked []string) {
	of, v := &r.verdict, &c.verdict
	*v = Verdict{
		Candidate: c.name, Line: r.line, Time: r.time, Allowed: allowed, Reason: r.reason,
		Waited: micros(waited), Shadowed: of.Shadowed, Exceeded: marked,
	}
	switch {
	case r.reason != "":
		v.Decision = stint.Decision{RetryAfter: stint.Never, At: r.time}
		if r.denier != nil {
			v.Rule = r.denier.rule.ID
		}
	default:
		if v.Decision = of.Decision; c.answer.Allowed == allowed {
			v.Decision = c.answer
		}
		if !allowed {
			v.Reason = string(cmp.Or(of.Reason(), stint.ReasonLimit))
		}
		if c.known {
			v.Rule, v.Key, v.Permits = of.Rule.ID, of.Claim.Key, of.Claim.Permits
		}
	}
	c.fault = c.decided(v)
}
