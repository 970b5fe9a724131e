package holdoracle

import (
	"cmp"
	"slices"
	"time"

	"github.com/stint-go/stint"
)

// known is what is known of an id now; an expired hold's end is remembered from the instant at which it expired.
func (o *Oracle) known(id string, now int64) *record {
	r := o.ids[id]
	if r == nil {
		return nil
	}
	until := max(r.at, r.expires) + remembered(r.ttl) // an end that comes early is remembered from the expiry, too
	if now > until {
		r.lapsed = true
		return nil
	}
	if r.lapsed && o.choose() { // whether the clock's step back brings it back is open
		return nil
	}
	return r
}

// kept is what an expiry has charged of an id that is not live: "keep (as Commit of what is held; for money)". What was
// reset meanwhile counts as kept, too: only "an end of a hold whose entry is gone and whose time is not over was reset".
func (r *record) kept(i int) int64 {
	switch {
	case r.names[i].algorithm == stint.AlgorithmConcurrency:
		return 0
	case r.keep:
		return r.held[i]
	}
	return r.paid[i]
}

// remembered: "Ends are remembered for max(2 x ttl, 60 s)".
func remembered(ttl time.Duration) int64 { return max(2*ttl, time.Minute).Microseconds() }

// hasExpired says whether a hold has. It answers an open question, if a write has noticed the expiry, and the clock was set
// back to before it since: "exactly one of committed, cancelled, expired ends a hold", so that it has expired; but also "a
// hold whose entry is gone and whose time is not over was reset".
func (o *Oracle) hasExpired(r *record, places []*place, now int64) bool {
	return now >= r.expires || (r.over || latest(places, now) >= r.expires) && o.choose()
}

// latest is the time of a hold's states together: "a key's time never runs back".
func latest(places []*place, now int64) int64 {
	for _, p := range places {
		now = max(now, p.at)
	}
	return now
}

// same says whether places are those that the hold was reserved for, in the same ways.
func (r *record) same(places []*place) bool {
	names, ways := namesOf(places)
	return slices.Equal(r.names, names) && slices.Equal(r.ways, ways)
}

func namesOf(places []*place) (names []name, ways []stint.Way) {
	for _, p := range places {
		names, ways = append(names, p.name), append(ways, p.way)
	}
	return names, ways
}

// anew finds the ways that a hold is on which has expired: it is decided anew, but where an expiry has charged it for good.
func (r *record) anew(pl *plan) {
	index := map[*place]int{}
	for i, p := range pl.all {
		index[p] = i
	}
	for n, g := range pl.groups {
		for _, p := range g.ways[r.on[n]] {
			if r.kept(index[p]) > 0 {
				g.on, g.held = r.on[n], true
			}
		}
	}
	pl.mark()
}

func resolved(id string, end stint.HoldEnd, at int64) error {
	return &stint.ResolvedError{ID: id, End: end, At: stint.Instant(at)}
}

func (o *Oracle) reserve(op stint.Op, pl *plan, now int64) (a Answer, allowed bool) {
	id, ttl, places := op.Hold.ID, op.Hold.TTL, pl.all
	if ttl == 0 {
		ttl = stint.DefaultHoldTTL
	}
	r := o.known(id, now)
	live := false
	pl.mark()
	if r != nil {
		if r.end != stint.HoldLive {
			a.Err = resolved(id, r.end, r.at)
			return a, false
		}
		if !r.same(places) { // also of one that has expired, while that is remembered
			a.Err = stint.ErrOtherClaims
			return a, false
		}
		if r.dropped { // Drop: "The hold can't be renewed"
			a.Err = resolved(id, stint.HoldExpired, min(now, r.expires))
			return a, false
		}
		if live = !o.hasExpired(r, places, now); live {
			pl.stay(r.on)
			r.standing(id, places)
		} else {
			expired(id, places, now)
			r.anew(pl)
		}
	}
	n := len(places)
	present := true
	paid := make([]int64, n)
	for i, p := range places {
		if p.unasked {
			p.alone = true
			continue
		}
		wants := p.limit.Takes(p.permits)
		p.want = wants
		if h := p.now.hold(id); h != nil && live { // "a larger n takes the difference, checked"
			paid[i] = h.paid
			p.want = max(0, wants-h.permits)
			p.asking = id
			p.alone = p.want == 0 || p.now.admits(p.want, p.keep, p.at)
			// One that holds nothing here, beyond what an expiry has charged, is one more if it grows.
			if holds, _ := p.now.live(); h.permits == h.paid && holds >= o.maxHolds && p.want > 0 {
				p.alone, p.full = false, true
			}
		} else {
			present = false
			if r != nil { // "after keep, only places are"; a live one was reset, and takes all anew
				if !live {
					paid[i] = r.kept(i)
				}
				p.want = max(0, wants-paid[i])
			}
			p.alone = p.want == 0 || p.now.admits(p.want, p.keep, p.at)
			if holds, _ := p.now.live(); holds >= o.maxHolds && p.want > 0 {
				p.alone, p.full = false, true
			}
		}
	}
	if !pl.choose() {
		pl.deny(o.maxHolds, now)
		a.Hold.Full = slices.ContainsFunc(places, func(p *place) bool { return p.full })
		a.Hold.Lost = r != nil && (!live || !present)
		a.Hold.Replayed, a.Hold.Reset = live && present, live && !present
		return a, false
	}
	var longest time.Duration
	held := map[*place]*held{}
	paidOf := map[*place]int64{}
	for i, p := range places {
		paidOf[p] = paid[i]
	}
	pl.charge(o.maxHolds, now, func(p *place) (delay time.Duration) {
		h := o.hold(op, p, paidOf[p])
		held[p] = h
		if p.want > 0 {
			took, wait := p.now.charge(p.want, p.at, true)
			if took.n > 0 {
				h.parts = append(h.parts, took)
			}
			h.permits += p.want
			delay = p.fromClock(wait, now)
			longest = max(longest, delay)
		}
		p.write = true
		return delay
	})
	// "for a leaky bucket it counts from the turn"
	expires := now + (ttl + longest).Microseconds()
	if live { // "its time is extended"
		expires = max(expires, r.expires)
	}
	record := &record{expires: expires, ttl: ttl, keep: op.Hold.Keep, held: make([]int64, n), paid: make([]int64, n), on: pl.on()}
	record.names, record.ways = namesOf(places)
	for i, p := range places {
		if h := held[p]; h != nil {
			h.expires = expires
			record.held[i], record.paid[i] = h.permits, paid[i]
		}
	}
	if r != nil && !live {
		o.notice(id, places)
	}
	for _, p := range places {
		said := p.out
		p.out = p.see(now) // as the expiry is known now
		p.out.Allowed, p.out.RetryAfter, p.out.Delay = said.Allowed, said.RetryAfter, said.Delay
	}
	o.ids[id] = record
	a.Hold.ExpiresAt = stint.Instant(expires)
	a.Hold.Replayed = live && present
	a.Hold.Reset = live && !present // HoldOp.Reset: "some of what was held was reset meanwhile"
	return a, true
}

// notice writes that a hold has expired where it was on a way that it is on no more.
func (o *Oracle) notice(id string, places []*place) {
	for i, p := range places {
		isCharged := func(other *place) bool { return other.charged && other.name == p.name }
		seen := func(other *place) bool { return other.name == p.name }
		if p.before.hold(id) == nil || slices.ContainsFunc(places, isCharged) || slices.ContainsFunc(places[:i], seen) {
			continue
		}
		if !o.takesOver(p) {
			p.now = p.before.clone()
			p.now.expiring(p.at)
			o.brings(p)
		}
		o.keepsTime(p, true)
		p.write = true
	}
}

// hold is the hold in a state, which is put there if need be.
func (o *Oracle) hold(op stint.Op, p *place, paid int64) *held {
	if p.want == 0 && !o.takesOver(p) { // only its time is extended
		p.now = p.before.clone()
		p.now.expiring(p.at)
		o.brings(p)
		o.keepsTime(p, true)
	}
	h := p.now.hold(op.Hold.ID)
	if h == nil {
		h = &held{id: op.Hold.ID, permits: paid, paid: paid}
		p.now.holds = append(p.now.holds, h)
	}
	h.number, h.keep = p.limit.Cost > 0, op.Hold.Keep
	return h
}

// takesOver answers two open questions about a renewal or an end that moves no permits of a limit: whether the limit takes
// over then what another version of it wrote, and whether that is a bucket's "last change". The contract says what is taken
// over, and not when.
func (o *Oracle) takesOver(p *place) bool {
	if !changed(p.before.limit, p.limit) || o.states[p.name] == nil || !o.choose() {
		return false
	}
	if p.limit.IsBucket() && o.choose() {
		p.now.at = p.at
	}
	return true
}

// brings answers an open question: whether a window or a log of which a hold is only renewed, or ends without moving permits,
// is brought to now, so that it drops what has left meanwhile. It matters if the clock is set back to before that left.
func (o *Oracle) brings(p *place) {
	if p.limit.IsBucket() || p.limit.Algorithm == stint.AlgorithmConcurrency {
		return
	}
	was, is := p.now, p.now.clone()
	is.bring(p.at)
	if is.end != was.end || is.used != was.used || is.previous != was.previous || len(is.entries) != len(was.entries) {
		if o.choose() {
			p.now = is
		}
	}
}

// keepsTime answers an open question: whether a fixed window or counter without counts, which an end has written, still
// records its newest window's start. It matters if the clock is set back, by less than the margin, before that start.
func (o *Oracle) keepsTime(p *place, write bool) {
	a := p.limit.Algorithm
	if !write || a != stint.AlgorithmFixedWindow && a != stint.AlgorithmSlidingWindowCounter {
		return
	}
	s := p.now
	window, _ := micros(s.limit)
	start := p.at - mod(p.at, window)
	if s.used == 0 && s.previous == 0 && p.at-start < time.Second.Microseconds() && s.newest() < start && o.choose() {
		s.empty = start
	}
}

// standing puts back what holds nothing but what an earlier expiry has charged: a reset has nothing to drop of it.
func (r *record) standing(id string, places []*place) {
	for i, p := range places {
		if p.charged && r.held[i] == r.paid[i] && p.now.hold(id) == nil {
			p.now.holds = append(p.now.holds, &held{
				id: id, permits: r.paid[i], paid: r.paid[i], expires: r.expires, keep: r.keep, number: p.limit.Cost > 0,
			})
		}
	}
}

// expired lets a hold that has expired expire in all states, also where nothing was written since and the clock was set back.
func expired(id string, places []*place, now int64) {
	for _, p := range places {
		if h := p.before.hold(id); h != nil && h.expires > p.at {
			p.before = p.before.clone()
			p.before.hold(id).expires = p.at
			p.now = p.before.load(p.limit, now)
		}
	}
}

// finish ends a hold by a Commit or a Cancel.
func (o *Oracle) finish(op stint.Op, pl *plan, now int64) (a Answer) {
	id, places := op.Hold.ID, pl.all
	end := stint.HoldCommitted
	if op.Verb == stint.Cancel {
		end = stint.HoldCancelled
	}
	permits := []int64{op.Permits}
	for _, c := range op.And {
		permits = append(permits, c.Permits)
	}
	if end == stint.HoldCancelled {
		clear(permits)
	}
	r := o.known(id, now)
	lost := r == nil
	if lost {
		// "an id that the store does not know before expiresAt + that time was lost with the store's last second"
		known := int64(op.Hold.ExpiresAt)
		if end == stint.HoldCancelled || known == 0 || now > known+op.Hold.SurelyRemembered().Microseconds() {
			a.Err = stint.ErrUnknownReservation
			return a
		}
		// A ttl that is not known is a minute. What is lost is charged on the first way.
		r = &record{expires: known, ttl: op.Hold.TTL, on: make([]int, len(pl.groups))}
		r.names, r.ways = namesOf(places)
	}
	if r.end != stint.HoldLive {
		if r.end != end || !slices.Equal(r.permits, permits) || !r.same(places) {
			a.Err = resolved(id, r.end, r.at)
			return a
		}
		// "The same end again: the same answer, replayed"
		pl.stay(r.on)
		for i, p := range places {
			p.finish(r.applied[i], false, now)
		}
		a.Hold = stint.HoldOp{Replayed: true, Late: r.late, Reset: r.reset}
		return a
	}
	if !r.same(places) {
		a.Err = stint.ErrOtherClaims
		return a
	}
	pl.stay(r.on)
	late := lost || o.hasExpired(r, places, now)
	if late && end == stint.HoldCancelled {
		a.Err = resolved(id, stint.HoldExpired, r.expires)
		return a
	}
	if !late {
		r.standing(id, places)
	} else {
		expired(id, places, now)
	}
	r.applied, r.late = nil, late
	for i, p := range places {
		if p.number = !p.charged; p.number { // of another way than it is on
			r.applied = append(r.applied, 0)
			continue
		}
		h := p.now.hold(id)
		applied, write := int64(0), true
		stays := p.permits
		p.number = p.fixed()
		if h != nil && p.number { // "A limit with a fixed cost keeps what was taken."
			stays = h.permits
		}
		if end == stint.HoldCancelled {
			stays = 0
		}
		charges := !p.number
		expired := late || r.dropped && h == nil && r.held[i] > r.paid[i] // Drop: "its Commit is late"
		r.late = r.late || expired
		switch {
		case expired: // "charges actual once, late (after keep the difference)"
			kept := int64(0)
			if !lost {
				kept = r.kept(i)
			}
			if charges && stays > kept {
				applied = p.now.debit(stays-kept, p.at)
			}
			if write = applied != 0 || o.takesOver(p); !write && p.before.hold(id) != nil { // its expiry is noticed
				p.now = p.before.clone()
				p.now.expiring(p.at)
				o.brings(p)
				write = true
			}
		case h == nil: // "an end of a hold whose entry is gone and whose time is not over was reset: nothing moves"
			r.reset, write = true, false
			p.number = p.number || stays == r.held[i]
		default:
			holds := h.permits - h.paid
			p.number = p.number || stays == h.permits // nothing is asked of it
			applied = -p.now.end1(h, min(stays, h.permits), p.at)
			if charges && stays > h.permits {
				applied = p.now.debit(stays-h.permits, p.at)
			}
			if applied == 0 && holds == 0 && !o.takesOver(p) { // only the id goes
				p.now = p.before.clone()
				p.now.expiring(p.at)
				o.brings(p)
				p.now.drop(id)
			}
		}
		o.keepsTime(p, write)
		p.finish(applied, write, now)
		r.applied = append(r.applied, applied)
	}
	for _, p := range places {
		if !p.charged {
			p.out = p.see(now)
		}
	}
	r.end, r.at, r.permits = end, now, permits
	o.ids[id] = r
	a.Hold = stint.HoldOp{Late: r.late, Reset: r.reset}
	return a
}

// drop lets expire now what a hold has of the claims; the id stays.
func (o *Oracle) drop(op stint.Op, places []*place, now int64) (a Answer) {
	found := false
	for _, p := range places {
		h := p.now.hold(op.Hold.ID)
		if h == nil || h.permits == h.paid {
			p.number = true // nothing is asked of it
			continue
		}
		found = true
		stays := h.permits
		if !h.keep && !h.number {
			stays = 0
		}
		p.finish(-p.now.end1(h, stays, p.at), true, now)
		o.keepsTime(p, true)
	}
	for _, p := range places {
		applied := p.out.Applied
		p.out = p.see(now)
		p.out.Applied = applied
	}
	if !found {
		a.Err = stint.ErrUnknownReservation
	} else if r := o.known(op.Hold.ID, now); r != nil && r.end == stint.HoldLive {
		r.dropped = true
	}
	return a
}

// list is what is held, the next to expire first; of each limit the first stint.MaxListed.
func list(places []*place) (all []stint.HoldState) {
	for i, p := range places {
		var mine []stint.HoldState
		for _, h := range p.now.holds {
			if h.permits > h.paid {
				mine = append(mine, stint.HoldState{
					ID: h.id, Limit: i, Permits: h.permits - h.paid, ExpiresAt: stint.Instant(h.expires),
				})
			}
		}
		SortHolds(mine)
		all = append(all, mine[:min(len(mine), stint.MaxListed)]...)
	}
	SortHolds(all)
	return all
}

// SortHolds sorts holds by their expiry, and where that is the same in an order of its own.
func SortHolds(list []stint.HoldState) {
	slices.SortFunc(list, func(a, b stint.HoldState) int {
		return cmp.Or(cmp.Compare(a.ExpiresAt, b.ExpiresAt), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.ID, b.ID))
	})
}
