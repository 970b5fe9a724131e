// Package enforce decides requests by all the rules that match them, at once.
//
//	limiter, err := enforce.New(enforce.Config{Store: store, Set: set})
//	...
//	err = limiter.Decide(ctx, &request, &verdict)
//
// The limits of all rules that reject or wait are one operation of the store: the request is
// admitted when all admit, and nothing is taken when one does not. A rule that bans the request,
// or denies it for what it lacks, decides before the store is asked. Rules in shadow are decided in the
// same call of the store, each by itself; what they say changes nothing for the
// request, and a request that was banned is not shown to them.
//
// A rule that waits holds a denied request while all rules that deny it are rules that wait, and as
// long as the wait can end in time, before the context's deadline too. The request is in a wait queue of this
// process for each rule that denies it and the client that the rule counts, until the rule would
// admit it:
//   - A later request that has a rule with a queue is behind the requests in it.
//   - A request whose rules have no queue is neither held nor denied because others wait.
//   - All queues are in the order of arrival, so that requests never wait in a circle.
//   - A request that waits for several rules may be passed by requests whose rules all admit them.
//   - A request that finds a queue full, or gives up in it, is not admitted before those ahead of it.
//
// Limits that count denied requests record a request that gives up, and not its attempts.
package enforce

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/rules"
)

// A Config says how a [Limiter] is made. Store has no default. The rules themselves are swapped
// while it runs; what stands here does not change.
type Config struct {
	// Store decides. It must not be nil, and must not touch an operation's slices once it has
	// returned.
	Store stint.Store
	// Set are the rules to begin with. Default: nil, none.
	Set *rules.Set
	// MaxWait bounds how long any request is held, whatever its rules say: one that would have to wait
	// longer is denied at once. Default: 0, no bound but the rules'. A server sets it to what its own
	// time for an answer leaves.
	MaxWait time.Duration
	// RejectAmbiguousPaths refuses a request whose path programs take apart in different ways, as
	// rules.Set.MatchUnambiguous says, with an error that wraps stint.ErrInvalid. Default: false, the rules of all its
	// variants hold for it. Set it where no application needs such paths.
	RejectAmbiguousPaths bool
	// DenyByDefault denies requests for which no rule holds, of which those in shadow do not count.
	// Default: false, they are admitted. True finds requests that no rule was made for, at the price
	// that a rule which is forgotten denies.
	DenyByDefault bool
	// Now tells the time by which overrides end. Default: time.Now.
	Now func() time.Time
}

// A Decider decides requests by rules: a [Limiter] by those of this process, or Rules of package client by
// those of a service. It must be safe for concurrent use.
type Decider interface {
	// Decide decides a request and takes what it costs, as [Limiter.Decide] says.
	Decide(ctx context.Context, r *rules.Request, v *Verdict) error
	// DecideNow is Decide without waiting: a request that rules would hold is denied.
	DecideNow(ctx context.Context, r *rules.Request, v *Verdict) error
}

// A Limiter decides requests by rules. It is safe for concurrent use; make it with [New]. Its state
// is in the store, but for the queues of requests that wait, which are this process's.
type Limiter struct {
	store   stint.Store
	maxWait time.Duration
	set     atomic.Pointer[rules.Set]
	waiting waitQueues
	// begun is from when the queues' time counts, so that a step of the wall clock moves nothing.
	begun time.Time

	wall func() time.Time // by which overrides end

	rejectAmbiguous bool // whether ambiguous paths are refused
	denyByDefault   bool // whether requests without a rule are denied
}

// New makes a limiter, or reports what is wrong with the configuration.
func New(config Config) (*Limiter, error) {
	if config.Store == nil {
		return nil, stint.Invalid("Store", "nil", "a store such as memstore.New makes")
	}
	if config.MaxWait < 0 {
		return nil, stint.Invalid("MaxWait", config.MaxWait, "0 or more")
	}
	l := &Limiter{
		store:           config.Store,
		maxWait:         config.MaxWait,
		rejectAmbiguous: config.RejectAmbiguousPaths,
		wall:            config.Now,
		denyByDefault:   config.DenyByDefault,
		begun:           time.Now(),
	}
	if l.wall == nil {
		l.wall = time.Now
	}
	if config.Set == nil {
		config.Set = new(rules.Set)
	}
	l.set.Store(config.Set)
	return l, nil
}

// Set returns the rules that decide now.
func (l *Limiter) Set() *rules.Set { return l.set.Load() }

// Swap puts rules in force. Every request is decided by one set as a whole: what has begun
// goes on with the one that it began with.
func (l *Limiter) Swap(set *rules.Set) (old *rules.Set) {
	if set == nil {
		set = new(rules.Set)
	}
	return l.set.Swap(set)
}

// A Claimed is a rule that holds for a request, with what it asks of the store. A rule whose limits
// have costs of their own is claimed several times, one after another. The rule must not be
// changed.
type Claimed struct {
	Rule  *rules.Rule
	Claim stint.Claim
	// Via is what a request that takes of the claim is charged by, as rules.Matched says; "" are the
	// rule's limits.
	Via string
	// Asked says, after a Reserve, that the claim's cost is what a commit says.
	Asked bool
	// Class is the request's, if the rule has classes; "" otherwise.
	Class string
	// Client is the rule's, by which verdicts name it: the claim's key may be of a limit that several
	// rules share.
	Client string

	// named says that a request may name the cost.
	named bool
	// way is which of several ways of its rule the claim is of, from 0; all is of a claim that has to admit.
	way int8
}

// A Remote is what a service says of a request that it decided by its own rules.
type Remote struct {
	Reason stint.Reason // why it was denied; "" if it was not
	// the deciding limit's name, algorithm and capacity; the zero Limit when no limit was asked
	Limit stint.Limit
	// what the request lacks, with [stint.ReasonMissing]
	Missing []string
	Header  http.Header       // of the answer, with the rate limit fields
	Vias    map[string]string // what [Verdict.Vias] says
	// what [Verdict.Available] says; nil without ways
	Available *int64

	Unauthenticated bool // as of the verdict
}

// A shadow is a rule in shadow, which is decided by itself. Its decision is kept apart from the
// verdict's, and only named in it.
type shadow struct {
	rule   *rules.Rule
	claims []Claimed
	built  built

	// charged says that it would have admitted, and way by which.
	charged bool
	way     uint8
}

// op is what the rule asks of the store.
func (s *shadow) op(verb stint.Verb) stint.Op {
	op := s.built.op(s.claims)
	op.Verb = verb
	return op
}

// A Verdict is what the rules say of a request. The zero value is ready to use, and one that is
// used again saves its allocations. It is not safe for concurrent use.
type Verdict struct {
	// Allowed says whether the request is admitted.
	Allowed bool
	// Matched are the IDs of the rules that hold for the request, by priority and ID.
	Matched []string
	// Rule is the rule that decided: on denial the one with the longest wait, on
	// admission the one with the fewest permits left. It is nil when no limit was asked, and of a request that is
	// denied since no rule holds for it. It must not be changed.
	Rule *rules.Rule
	// Outcome is Banned or Lacking when the rule denied without its limits, Limited otherwise.
	Outcome rules.Outcome
	// Claim is what was decided by the deciding rule's limits. Its policy is nil when no limit was
	// asked. Its key is the client that the rule counts, even if a limit decided that the rule shares
	// with others.
	Claim stint.Claim
	// Decision is the decision, whose Index counts the limits of Claim.Policy. Of a rule that
	// denied without its limits it says that no wait will do.
	Decision stint.Decision
	// Via is what the deciding rule charged the request by, or would have: rules.ViaGuaranteed, say. "" are
	// its own limits, or nothing was charged.
	Via string
	// Class is the request's class, if the deciding rule has classes.
	Class string
	// Each are the outcomes of the limits of Claim.Policy.
	Each []stint.Outcome
	// Shadowed are the IDs of rules in shadow that would have denied.
	Shadowed []string
	// Shadows are what the rules in shadow would have decided, those of them whose limits were asked
	// and those that deny without: their Rule, Class, Via, Claim, Decision and Reason. Default: none,
	// decided by a service.
	Shadows []stint.Event
	// Exceeded are the limits that mark an admitted request. Default: none, also where a failure policy decided.
	Exceeded []Exceeded
	// Hold is what became of the hold of a Reserve: after a denial too, whether it had been lost, or the
	// client has too many.
	Hold stint.HoldOp
	// Held is how long the request was held by rules that wait.
	Held time.Duration
	// OnHold, if not nil, is called whenever the request begins to be held, so that a server
	// need not count it among its work meanwhile. It is the caller's, and kept from request to request.
	OnHold func()
	// Turn is how far off the turn of a leaky bucket is for which the request was denied, as it comes
	// too late. It is 0 of all other verdicts.
	Turn time.Duration

	// Remote is what a service said, if it decided in the place of a [Limiter]: its Rule has only an ID,
	// Claim no policy, and Each is empty. Default: nil, decided here.
	Remote *Remote

	// byDefault says that it is denied since no rule holds for it.
	byDefault bool
	// marks says that a rule that decides may mark.
	marks bool

	matches rules.Matches
	// claims are those of the rules that decide, in the order of their rules. The slices below are
	// kept from request to request.
	claims  []Claimed
	shadows []shadow
	built   built
	each    []stint.Outcome
	ops     []stint.Op
	results []stint.Result
	ways    []uint16 // of decisionOf
}

// reset makes it the verdict of a request that nothing was asked about yet: admitted.
func (v *Verdict) reset() {
	v.byDefault, v.marks, v.Remote, v.Hold = false, false, nil, stint.HoldOp{}
	v.Allowed, v.Rule, v.Outcome, v.Claim = true, nil, rules.Limited, stint.Claim{}
	v.Decision, v.Each, v.Held, v.Turn = stint.Decision{Allowed: true}, nil, 0, 0
	v.Matched, v.Shadowed, v.Shadows = v.Matched[:0], v.Shadowed[:0], v.Shadows[:0]
	v.claims, v.shadows, v.Exceeded = v.claims[:0], v.shadows[:0], v.Exceeded[:0]
	v.Via, v.Class = "", ""
}

// Decide decides a request and takes what it costs. An error wraps stint.ErrInvalid when the request is at fault
// (nothing was consumed), stint.ErrUnavailable when the store could not decide, stint.ErrOverloaded when this process
// was too busy to have it decide in time, or is the context's; the verdict then tells only what matched, and what was
// to decide. A request that waits already for rules tries again until they would hold it no longer.
//
// Where rules don't wait, an admitted request is the caller's to hold for Decision.Delay, the turn
// of a leaky bucket. One whose turn comes after the context's deadline is denied, and takes no
// turn: it is looked for first, by a call of the store more, which there is neither without a
// deadline nor without a leaky bucket. When others take turns between that look and the taking, a
// request may be denied for a turn that it has taken, and that stays taken.
func (l *Limiter) Decide(ctx context.Context, r *rules.Request, v *Verdict) error {
	longest := bounds.MaxWaitLimit
	if l.maxWait > 0 {
		longest = min(longest, l.maxWait)
	}
	return v.clearOnError(l.take(ctx, r, v, longest))
}

// DecideNow is Decide where nothing can be held: a request for which rules would wait is denied at
// once, that of one who would have to wait behind others too. What a leaky bucket of a rule that
// does not wait says, to hold the request until its turn, is the caller's to do, as with Decide.
func (l *Limiter) DecideNow(ctx context.Context, r *rules.Request, v *Verdict) error {
	return v.clearOnError(l.take(ctx, r, v, 0))
}

// take decides, and has rules hold the request for so long at most.
func (l *Limiter) take(ctx context.Context, r *rules.Request, v *Verdict, longest time.Duration) error {
	if err := l.Steps().Prepare(r, v, stint.VerbTake); err != nil || !v.Allowed {
		return err
	}
	if v.waits() {
		return l.wait(ctx, v, longest)
	}
	return l.takeNow(ctx, v)
}

// clearOnError leaves only what matched and what was to decide, if there is an error, which it
// returns.
func (v *Verdict) clearOnError(err error) error {
	if err != nil {
		v.byDefault = false
		v.Allowed, v.Rule, v.Claim, v.Decision, v.Each = false, nil, stint.Claim{}, stint.Decision{}, nil
		v.Turn, v.Via, v.Class = 0, "", ""
		v.Shadowed, v.Shadows, v.Exceeded = v.Shadowed[:0], v.Shadows[:0], v.Exceeded[:0]
	}
	return err
}

// appendClaims appends the claims of a rule to a list.
func appendClaims(list []Claimed, matched *rules.Matched) []Claimed {
	for i := range 1 + len(matched.And) {
		list = append(list, Claimed{})
		c := &list[len(list)-1]
		c.Rule, c.Class, c.Client, c.named, c.way = matched.Rule, matched.Class, matched.Client, i < matched.Named, all
		if c.Claim = matched.Claim; i > 0 {
			c.Claim = matched.And[i-1]
		}
		if i < len(matched.Vias) {
			c.Via = matched.Vias[i]
		}
		if i < len(matched.Ways) {
			c.way = int8(matched.Ways[i]) // #nosec G115 -- at most MaxWays
		}
	}
	return list
}

// addShadow adds a rule in shadow, in memory of one of an earlier request if there is any.
func (v *Verdict) addShadow(matched *rules.Matched) {
	if n := len(v.shadows); n < cap(v.shadows) {
		v.shadows = v.shadows[:n+1]
	} else {
		v.shadows = append(v.shadows, shadow{})
	}
	s := &v.shadows[len(v.shadows)-1]
	s.rule, s.claims, s.charged, s.way = matched.Rule, appendClaims(s.claims[:0], matched), false, 0
}

// decide carries out the verdict's claims in one step, and those of the rules in shadow each by
// itself.
func (l *Limiter) decide(ctx context.Context, v *Verdict, verb stint.Verb, shadows bool) error {
	if !shadows || len(v.shadows) == 0 {
		if len(v.claims) == 0 {
			return nil
		}
		op := v.op(verb)
		d, err := l.store.Decide(ctx, op)
		return v.note(d, err)
	}
	v.ops = v.ops[:0]
	if len(v.claims) > 0 {
		v.ops = append(v.ops, v.op(verb))
	}
	for i := range v.shadows {
		v.ops = append(v.ops, v.shadows[i].op(verb))
	}
	for len(v.results) < len(v.ops) {
		v.results = append(v.results, stint.Result{})
	}
	results := v.results[:len(v.ops)]
	l.store.DecideAll(ctx, v.ops, results)
	for i, result := range results[len(v.ops)-len(v.shadows):] {
		v.noteShadow(i, result.Decision, result.Err)
	}
	if len(v.claims) == 0 {
		return contextOf(ctx, results[0].Err)
	}
	return v.note(results[0].Decision, results[0].Err)
}

// noteShadow notes what the store said to a rule in shadow. An error of the store is ignored.
func (v *Verdict) noteShadow(i int, d stint.Decision, err error) {
	if err != nil {
		return
	}
	s := &v.shadows[i]
	s.charged, s.way = d.Allowed && !d.Degraded, d.Via
	at, index := locate(s.claims, int(d.Index))
	c := &s.claims[at]
	claim := c.Claim
	d.Index, claim.Key = int16(index), c.Client
	v.shadow(&stint.Event{
		Rule: s.rule.ID, Set: s.rule.Set, Class: c.Class, Via: s.via(&d), Claim: claim, Decision: d,
		Reason: stint.ReasonOf(claim.Policy.Limit(index), &d, claim.Permits),
	})
}

// shadow notes what a rule in shadow would have decided.
func (v *Verdict) shadow(e *stint.Event) {
	e.Shadow = true
	v.Shadows = append(v.Shadows, *e)
	if !e.Decision.Allowed {
		v.Shadowed = append(v.Shadowed, e.Rule)
	}
}

// via is by what the rule would have charged a request.
func (s *shadow) via(d *stint.Decision) string {
	for i := range s.claims {
		if c := &s.claims[i]; d.Allowed && (c.way == all || c.way == int8(d.Via)) { // #nosec G115 -- at most MaxWays
			return c.Via
		}
	}
	return ""
}

// contextOf returns an error of rules in shadow only if it is the context's.
func contextOf(ctx context.Context, err error) error {
	if err != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	return nil
}

// outcomes has room for so many outcomes.
func (v *Verdict) outcomes(n int) []stint.Outcome {
	for len(v.each) < n {
		v.each = append(v.each, stint.Outcome{})
	}
	return v.each[:n]
}

// note makes the store's answer the verdict.
func (v *Verdict) note(d stint.Decision, err error) error {
	if err != nil {
		return err
	}
	v.Allowed, v.Decision = d.Allowed, d
	if v.marks && d.Allowed {
		v.mark()
		if v.claims[0].marks() { // all do, and none decides
			v.Decision = stint.Decision{Allowed: true, At: d.At, Source: d.Source, Degraded: d.Degraded}
			return nil
		}
	}
	v.decideBy(d.Index)
	return nil
}

// decideBy makes the rule of a limit the deciding one; limits are counted over all claims.
func (v *Verdict) decideBy(index int16) {
	i, at := locate(v.claims, int(index))
	c := &v.claims[i]
	v.Decision.Index = int16(at) // #nosec G115 -- MaxLimits
	v.Rule, v.Claim, v.Class = c.Rule, c.Claim, c.Class
	v.Claim.Key = c.Client
	first := int(index) - at
	v.Each = v.each[first : first+c.Claim.Policy.Len()]
	v.noteVia(i)
}

// locate finds the claim of a limit, counted over all claims, and its place in that.
func locate(claims []Claimed, limit int) (claim, at int) {
	for at = limit; at >= claims[claim].Claim.Policy.Len(); claim++ {
		at -= claims[claim].Claim.Policy.Len()
	}
	return claim, at
}

// noteVia notes by which way the deciding rule was charged, or would be.
func (v *Verdict) noteVia(decider int) {
	via := v.Decision.Via
	v.Via, v.Decision.Via = "", 0
	if !v.Allowed {
		return
	}
	c := &v.claims[decider]
	if v.Via = c.Via; c.way != all && !c.marks() {
		v.noteWay(via)
	}
}

// noteWay notes which way of the deciding rule was charged, of which the store's answer says a number.
func (v *Verdict) noteWay(via uint8) {
	grouped := false
	for r := range v.byRule() {
		if r.claims[0].Rule != v.Rule {
			grouped = grouped || r.claims[0].way != all
			continue
		}
		if grouped { // another group is the first, which the store's answer is of
			via = v.decisionOf(r).Via
		}
		v.Decision.Via = via
		of := slices.IndexFunc(r.claims, func(c Claimed) bool { return c.way == int8(via) }) // #nosec G115 -- at most MaxWays
		v.Via = r.claims[of].Via
		return
	}
}

// ruled are the claims of a rule that decides, and the place of their limits among those of all claims.
type ruled struct {
	claims []Claimed
	first  int
	limits int
}

// byRule are the claims of each rule that decides, in their order.
func (v *Verdict) byRule() iter.Seq[ruled] {
	return func(yield func(ruled) bool) {
		for from, r := 0, (ruled{}); from < len(v.claims); from += len(r.claims) {
			r.first, r.limits = r.first+r.limits, 0
			to := from
			for ; to < len(v.claims) && v.claims[to].Rule == v.claims[from].Rule; to++ {
				r.limits += v.claims[to].Claim.Policy.Len()
			}
			if r.claims = v.claims[from:to]; !yield(r) {
				return
			}
		}
	}
}

// outcomesOf are those of the limits of a rule.
func (v *Verdict) outcomesOf(r ruled) []stint.Outcome { return v.each[r.first : r.first+r.limits] }

// decisionOf is what the claims of a rule say of their limits' outcomes.
func (v *Verdict) decisionOf(r ruled) stint.Decision {
	outcomes := v.outcomesOf(r)
	if r.claims[0].way == all {
		return decide.Combine(outcomes, nil, v.Decision.At)
	}
	v.ways = v.ways[:0]
	for _, c := range r.claims {
		for range c.Claim.Policy.Len() {
			number := decide.PerGroup + uint16(c.way) // #nosec G115 -- not all
			if c.marks() {
				number += bounds.MaxWays
			}
			v.ways = append(v.ways, number)
		}
	}
	return decide.Combine(outcomes, v.ways, v.Decision.At)
}

// Reset clears the states that decide a request, those of rules in shadow too.
func (l *Limiter) Reset(ctx context.Context, r *rules.Request, v *Verdict) error {
	return l.adjust(ctx, v, l.Steps().Prepare(r, v, stint.VerbReset), stint.VerbReset, 0)
}

// ResetClient clears the states of a client of one rule, as overrides name it, under the rule's
// limits and under its override's. A degraded answer is an error: nothing was cleared.
func (l *Limiter) ResetClient(ctx context.Context, rule, client string) error {
	claims, err := l.set.Load().ClientClaims(rule, client)
	if err != nil || len(claims) == 0 {
		return err
	}
	d, err := l.store.Decide(ctx, stint.Op{Verb: stint.VerbReset, Claim: claims[0], And: claims[1:]})
	if err == nil && d.Degraded {
		err = stint.ErrUnavailable
	}
	return err
}
