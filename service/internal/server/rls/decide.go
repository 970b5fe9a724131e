package rls

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/decide"
)

// A check is one descriptor of a request, with its limit, what the store said of it, and what
// becomes of it. It passes through three stages: matched (limit, key, hits), decided (over,
// remaining, after), told (wait, reset).
type check struct {
	// limit is nil if none holds, or another one replaces it.
	limit     *limit
	unlimited bool
	key       string
	// hits is the cost; 0 is a look, and below 0 they are given back.
	hits     int64
	counters *counters
	// look leaves its hits uncounted, since the request is denied by another one (KeepDenied).
	look bool
	// held has the request's hold decide it.
	held bool
	// full says that it is denied since the client has as many holds as the store allows.
	full bool
	// claim is its place among the claims of the operation that decides it.
	claim int

	// over says that the limit is exceeded, whether or not that denies the request.
	over      bool
	remaining int64
	// after is how many hits are counted now, as far as they are known.
	after    int64
	wait     time.Duration
	reset    time.Duration
	at       stint.Instant
	degraded bool
	source   stint.Source
}

// asks reports whether a store is asked about the check.
func (k *check) asks() bool {
	return k.limit != nil && (k.limit.policy != nil || k.limit.counter != nil)
}

// counted reports whether a counter of the reference accounting decides the check.
func (k *check) counted() bool { return k.limit != nil && k.limit.counter != nil }

// A decision is what deciding one request needs for a moment. One that is used again saves its
// allocations.
type decision struct {
	service *Service
	request *pb.RateLimitRequest
	// looks takes nothing: an explanation.
	looks  bool
	hold   hold
	checks []check
	lookup lookup
	key    []byte

	ops     []stint.Op
	results []stint.Result
	each    []stint.Outcome
	and     []stint.Claim
	// parts has for each operation the places of its checks, in the order of its claims.
	parts  [][]int
	places []int
	event  stint.Event
}

// clear forgets the request.
func (d *decision) clear() {
	clear(d.checks)
	clear(d.ops)
	clear(d.and)
	d.request, d.event, d.hold, d.checks = nil, stint.Event{}, hold{}, d.checks[:0]
	d.begin()
}

// begin forgets operations.
func (d *decision) begin() {
	d.unqueue()
	d.places = d.places[:0]
}

// unqueue forgets those that are queued; the places of checks stay.
func (d *decision) unqueue() {
	d.ops, d.and, d.each, d.parts = d.ops[:0], d.and[:0], d.each[:0], d.parts[:0]
}

// match finds the limit of each descriptor. Limits that another one replaces are known only when
// all are found.
func (d *decision) match(t *tree) error {
	r := d.request
	of := t.domains[r.Domain]
	if of == nil {
		d.service.stats.domainUnknown(r.Domain)
	}
	replaced := false
	for i, given := range r.Descriptors {
		k := check{}
		if err := checkDescriptor(i, given); err != nil {
			return err
		}
		k.hits = hitsOf(r, given)
		entries, err := d.holdEntries(i, given, &k)
		if err != nil {
			return err
		}
		if of != nil {
			if err := d.matchOne(of, i, given, entries, &k); err != nil {
				return err
			}
		}
		if k.limit != nil {
			replaced = replaced || len(k.limit.Replaces) > 0
			if k.limit.Unlimited {
				k.unlimited = true
			}
		}
		d.checks = append(d.checks, k)
	}
	if replaced {
		d.replace()
	}
	for i := range d.checks {
		k := &d.checks[i]
		if k.unlimited {
			k.limit = nil
		}
		if err := d.checkHold(i, k); err != nil {
			return err
		}
	}
	return nil
}

// checkDescriptor reports what no limit could be found for.
func checkDescriptor(i int, given *common.RateLimitDescriptor) error {
	const most = 64
	if n := len(given.GetEntries()); n == 0 || n > most {
		return stint.Invalid(fmt.Sprintf("descriptors[%d].entries", i), n, fmt.Sprintf("1 to %d entries", most))
	}
	for j, e := range given.Entries {
		if e.GetKey() == "" {
			return stint.Invalid(fmt.Sprintf("descriptors[%d].entries[%d].key", i, j), "", "a key")
		}
	}
	return nil
}

// hitsOf is what a descriptor costs.
func hitsOf(r *pb.RateLimitRequest, given *common.RateLimitDescriptor) int64 {
	hits := int64(max(1, r.HitsAddend))
	if given.HitsAddend != nil {
		hits = int64(min(given.HitsAddend.Value, math.MaxInt64))
	}
	if given.IsNegativeHits {
		return -min(hits, 2*bounds.MaxPermits) // as many as a counter may have, with those that were charged
	}
	return min(hits, bounds.MaxPermits)
}

// matchOne finds the limit of a descriptor, and its state.
func (d *decision) matchOne(
	of *domain,
	i int,
	given *common.RateLimitDescriptor,
	entries []*common.RateLimitDescriptor_Entry,
	k *check,
) error {
	s := d.service
	if given.Limit != nil {
		l, err := of.override(given.Limit, s.config.Accounting)
		if err != nil {
			return fmt.Errorf("descriptors[%d]: %w", i, err)
		}
		k.limit, d.lookup.values = l, d.lookup.values[:0]
		k.counters = s.countersOf(l)
	} else {
		l := d.lookup.find(of, entries)
		if l == nil {
			return nil
		}
		k.limit = l
		switch {
		case l.Unlimited:
		case l.detailed:
			d.key = d.lookup.appendDetailed(d.key[:0], of.name, entries)
			k.counters = s.stats.of(d.key)
		case string(d.lookup.metric) != l.id:
			k.counters = s.stats.of(d.lookup.metric)
		default:
			k.counters = s.countersOf(l)
		}
	}
	if k.asks() {
		d.key = d.lookup.appendKey(d.key[:0], entries, of.joined && k.limit.reference())
		k.key = string(d.key)
	}
	return nil
}

// countersOf are the statistics that have a limit's own name.
func (s *Service) countersOf(l *limit) *counters {
	if c := l.counters.Load(); c != nil {
		return c
	}
	c := s.stats.of([]byte(l.id))
	l.counters.Store(c)
	return c
}

// replace takes away the limits that others replace.
func (d *decision) replace() {
	names := map[string]bool{}
	for i := range d.checks {
		if l := d.checks[i].limit; l != nil {
			for _, name := range l.Replaces {
				names[name] = true
			}
		}
	}
	for i := range d.checks {
		if l := d.checks[i].limit; l != nil && l.Name != "" && names[l.Name] && !l.Unlimited {
			d.checks[i].limit = nil
		}
	}
}

// quota reports whether a check is in quota mode.
func (d *decision) quota(k *check) bool {
	return d.service.config.Quota || k.limit != nil && k.limit.quota
}

// denies reports whether a check by itself denies the request.
func (d *decision) denies(k *check) bool { return k.over && !k.limit.shadow && !d.quota(k) }

// exceeded reports whether limits deny the request: one that is not in quota mode, or all that are.
func (d *decision) exceeded() bool {
	quotas, left := 0, 0
	for i := range d.checks {
		k := &d.checks[i]
		switch {
		case d.denies(k):
			return true
		case d.quota(k):
			quotas++
			if !k.over || k.limit.shadow {
				left++
			}
		}
	}
	return quotas > 0 && left == 0
}

// decide has the store decide all checks. In the atomic accounting those that may deny the request
// are one operation, so that it takes from all of them or from none; what else may deny the request
// comes before it, and what is given back after. In order, for a request with everything:
//
//  1. looks at counters of KeepDenied, which decide what is counted;
//  2. checks that are decided by themselves: the reference accounting, and limits in shadow;
//  3. looks (hits of 0), which may deny;
//  4. all others in one operation;
//  5. what is given back, if the request is admitted.
//
// Without 1 to 3 there is one call of the store.
//
// What the store can't say of a request that is denied already does not change that.
func (d *decision) decide(ctx context.Context) error {
	err := d.decideInOrder(ctx)
	if decide.IsUndecided(err) && d.exceeded() {
		d.unqueue()
		d.dropHold(ctx)
		return nil
	}
	return err
}

func (d *decision) decideInOrder(ctx context.Context) error {
	d.begin()
	together, looks, refunds := d.places[:0], []int(nil), []int(nil)
	for i := range d.checks {
		k := &d.checks[i]
		switch {
		case k.limit == nil:
		case !k.asks(): // a limit of 0
			k.ban(time.Now())
		case k.held:
		case k.limit.reference() || k.limit.shadow:
		case k.hits == 0:
			looks = append(looks, i)
		case k.hits < 0:
			refunds = append(refunds, i)
		default:
			together = append(together, i)
		}
	}
	d.places = together
	if err := d.beginHold(ctx); err != nil {
		return err
	}
	if d.service.config.KeepDenied && !d.looks {
		if err := d.lookAhead(ctx); err != nil {
			return err
		}
	}
	d.queueAlone()
	if len(looks) > 0 {
		d.queue(stint.VerbPeek, looks)
	}
	if len(together) > 0 && (len(looks) > 0 || d.mayDenyAlone()) {
		if err := d.flush(ctx); err != nil {
			return err
		}
	}
	if err := d.takeTogether(ctx, together); err != nil {
		return err
	}
	// Before what is given back, as a look may deny the request.
	if err := d.flush(ctx); err != nil {
		return err
	}
	d.dropHold(ctx)
	if len(refunds) == 0 {
		return nil
	}
	verb := stint.VerbSettle
	if d.looks || d.exceeded() {
		verb = stint.VerbPeek
	}
	for _, i := range refunds {
		d.queue(verb, []int{i})
	}
	return d.flush(ctx)
}

// ban denies by a limit of 0, of which no store has a state.
func (k *check) ban(now time.Time) {
	k.over, k.wait, k.reset = k.hits > 0 || k.hits == 0 && !k.limit.reference(), stint.Never, k.limit.Unit.Length()
	if k.limit.window != nil {
		k.at = stint.Instant(now.UnixMicro())
		k.untilEnd()
	}
}

// untilEnd tells when the window ends that is current at k.at.
func (k *check) untilEnd() {
	_, end := k.limit.window.Window(k.at)
	k.reset = time.Duration(end-k.at) * time.Microsecond
}

// takeTogether takes from all limits of these checks, or from none. One in quota mode that denies
// is left out while another in quota mode admits. Each round leaves out at least one, so there are
// at most as many rounds as limits.
func (d *decision) takeTogether(ctx context.Context, live []int) error {
	for len(live) > 0 {
		verb := stint.VerbTake
		if d.looks || d.exceeded() {
			verb = stint.VerbPeek
		}
		d.queue(verb, live)
		last := len(d.ops) - 1
		if err := d.flush(ctx); err != nil {
			return err
		}
		if verb == stint.VerbPeek || d.results[last].Decision.Allowed || d.exceeded() {
			return nil
		}
		live = slices.DeleteFunc(live, func(i int) bool { return d.checks[i].over })
	}
	return nil
}

// alone reports whether a check is decided by itself.
func (k *check) alone() bool { return k.asks() && !k.held && (k.limit.reference() || k.limit.shadow) }

// mayDenyAlone reports whether a check that is decided by itself may deny the request.
func (d *decision) mayDenyAlone() bool {
	for i := range d.checks {
		if k := &d.checks[i]; k.alone() && !k.limit.shadow {
			return true
		}
	}
	return false
}

// manyHits at once may be more than a counter has room for. They are charged, which fills it;
// taking would leave it. A counter of the reference accounting has room for 1,000,000,000.
const manyHits = 1_000_000

// queueAlone queues the checks that are decided by themselves.
func (d *decision) queueAlone() {
	for i := range d.checks {
		k := &d.checks[i]
		if !k.alone() {
			continue
		}
		verb := stint.VerbTake
		switch {
		case d.looks || k.hits == 0 || k.look:
			verb = stint.VerbPeek
		case k.hits < 0 || k.limit.counter != nil && k.hits > manyHits:
			verb = stint.VerbSettle
		}
		d.queue(verb, d.place(i))
	}
}

// lookAhead leaves counted only the checks of the reference accounting that deny the request, if
// any does. Between the look and the count other requests may come: like the reference service,
// this is not atomic.
func (d *decision) lookAhead(ctx context.Context) error {
	for i := range d.checks {
		if d.checks[i].counted() {
			d.queue(stint.VerbPeek, d.place(i))
		}
	}
	err := d.flush(ctx)
	if decide.IsUndecided(err) { // by which a look has no answer; what counts may have one, of a mode
		d.unqueue()
		return nil
	}
	if err != nil {
		return err
	}
	exceeds := func(k *check) bool { return k.after+max(k.hits, 0) > int64(k.limit.RequestsPerUnit) }
	exceeded := false
	for i := range d.checks {
		k := &d.checks[i]
		exceeded = exceeded || k.counted() && exceeds(k)
	}
	for i := range d.checks {
		if k := &d.checks[i]; exceeded && k.counted() {
			k.look = !exceeds(k)
		}
	}
	return nil
}

// place is the list of one place.
func (d *decision) place(i int) []int {
	d.places = append(d.places, i)
	return d.places[len(d.places)-1 : len(d.places) : len(d.places)]
}

// queue adds an operation for the checks in these places. Checks of one state are one claim. So a
// request that names one state twice takes the sum of both from it, or nothing.
func (d *decision) queue(verb stint.Verb, places []int) {
	op := stint.Op{Verb: verb}
	first := len(d.and)
	claims := 0
	for n, i := range places {
		k := &d.checks[i]
		claim := stint.Claim{Key: k.key, Policy: k.limit.policy, Permits: max(k.hits, 1)}
		if k.limit.counter != nil {
			claim.Policy = k.limit.counter
		}
		if verb >= stint.VerbSettle {
			claim.Permits = k.hits
		}
		k.claim = claims
		for _, j := range places[:n] {
			if o := &d.checks[j]; o.key == k.key && o.limit.sameState(k.limit) {
				k.claim = o.claim
				break
			}
		}
		switch {
		case k.claim < claims && k.hits == 0: // looks are for one hit, however many there are
			continue
		case k.claim < claims && k.claim == 0:
			op.Permits += k.hits
			continue
		case k.claim < claims:
			d.and[first+k.claim-1].Permits += k.hits
			continue
		case claims == 0:
			op.Claim = claim
		default:
			d.and = append(d.and, claim)
		}
		claims++
	}
	if claims > 1 {
		op.And = d.and[first:len(d.and):len(d.and)]
		at := len(d.each)
		for range claims {
			d.each = append(d.each, stint.Outcome{})
		}
		op.Each = d.each[at:len(d.each):len(d.each)]
	}
	d.ops, d.parts = append(d.ops, op), append(d.parts, places)
}

// flush has the store carry out what is queued, and takes over what it says.
func (d *decision) flush(ctx context.Context) error {
	if len(d.ops) == 0 {
		return nil
	}
	if len(d.results) < len(d.ops) {
		d.results = make([]stint.Result, max(len(d.ops), len(d.checks)))
	}
	results := d.results[:len(d.ops)]
	if len(d.ops) == 1 {
		results[0].Decision, results[0].Err = d.service.config.Store.Decide(ctx, d.ops[0])
	} else {
		d.service.config.Store.DecideAll(ctx, d.ops, results)
	}
	for i := range results {
		if err := results[i].Err; err != nil {
			return err
		}
		for _, at := range d.parts[i] {
			d.checks[at].note(&d.ops[i], &results[i].Decision, d.looks)
		}
	}
	d.unqueue()
	return nil
}

// note takes over what the store said. What is only looked for counts as if it were taken. Of the
// reference accounting a counter counts whatever the limit is, to 1,000,000,000 or, of the n-th part that a process
// decides by in an outage, as the limit, to a share of it:
//
//	after     = capacity - remaining of the counter; 0 in an outage that admits
//	over      = after > limit, or hits > limit
//	remaining = max(0, limit - after)
func (k *check) note(op *stint.Op, decided *stint.Decision, looks bool) {
	o := stint.Outcome{
		Allowed: decided.Allowed, Limit: decided.Limit, Remaining: decided.Remaining,
		RetryAfter: decided.RetryAfter, ResetAfter: decided.ResetAfter,
	}
	if op.Each != nil {
		o = op.Each[k.claim]
	}
	k.at, k.degraded, k.source = decided.At, decided.Degraded, decided.Source
	most := int64(k.limit.RequestsPerUnit)
	if k.limit.counter == nil {
		k.over, k.remaining = !o.Allowed && k.hits >= 0, o.Remaining
		k.after = max(0, o.Limit-o.Remaining)
	} else {
		if n := bounds.MaxPermits / max(o.Limit, 1); n > 1 {
			most = max(min(most, 1), most/n)
		}
		k.after = o.Limit - o.Remaining
		if looks {
			k.after += max(k.hits, 0)
		}
		if !o.Allowed { // the counter is full
			k.after = math.MaxUint32 + 1
		}
		k.over = k.hits >= 0 && max(k.after, k.hits) > most
		k.remaining = max(0, most-k.after)
	}
	k.wait, k.reset = 0, o.ResetAfter
	if k.limit.window != nil {
		k.untilEnd()
	}
	if k.over {
		k.wait = o.RetryAfter
		if k.limit.counter != nil {
			k.wait = k.reset
			if k.hits > int64(k.limit.RequestsPerUnit) {
				k.wait = stint.Never
			}
		}
	}
}
