package oracle

import (
	"cmp"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A holdEnd is how a hold ended.
type holdEnd string

const (
	holdLive      holdEnd = "" // it has not
	holdCommitted holdEnd = "committed"
	holdCancelled holdEnd = "cancelled"
	holdExpired   holdEnd = "expired"
)

// A record is what is known of an id: of a hold that is live or has expired its claims, of one that was
// ended the answer too, since the same end again is answered alike.
type record struct {
	names   []name
	spots   []spot // of each name
	on      []int  // of each group, the way that it is on
	expires stint.Instant
	ttl     time.Duration // as the last Reserve asked: how long an end is remembered depends on it
	keep    bool          // an expiry charges what is held
	over    bool          // a write has noticed that it has expired
	dropped bool          // some of it, by a Drop
	held    []int64       // of each limit, as the last Reserve left it
	paid    []int64       // of these, what an earlier expiry has charged for good
	lost    []bool        // whether a reset has dropped it, before it expired; nil: none

	end     holdEnd       // holdLive also when it has expired meanwhile
	at      stint.Instant // when it ended
	lapsed  bool          // it was forgotten, before the clock was set back
	permits []int64       // what a Commit said, of each claim
	late    bool          // it came after the expiry
	reset   bool          // a reset had dropped some of it
	applied []int64       // of each limit
	said    int64         // of all limits together
}

// record is a copy of what is written down of an id, which the transaction may change.
func (t *transaction) record(id string) *record {
	r := t.ids[id]
	if r == nil && t.world.ids[id] != nil {
		copied := *t.world.ids[id]
		r = &copied
		t.ids[id] = r
	}
	return r
}

// known is what is known of an id now: its end is remembered from when it ended, and from its expiry if that is later.
func (t *transaction) known(id string) *record {
	r := t.record(id)
	switch {
	case r == nil:
	case t.now > max(r.at, r.expires).Add(remembered(r.ttl)):
		r.lapsed = true
		return nil
	case r.lapsed && t.choose(): // whether the clock's step back brings it back is open
		return nil
	}
	return r
}

// remembered is for how long an end is, by the words of the contract: max(2 x TTL, 60 s).
func remembered(ttl time.Duration) time.Duration { return max(2*ttl, time.Minute) }

// kept is what an expiry has charged of an id that is not live: all, by Hold.OnExpiry, but nothing of what was reset
// before.
func (r *record) kept(i int) int64 {
	switch {
	case r.isLost(i):
		return 0
	case r.names[i].algorithm == stint.AlgorithmConcurrency:
		return 0
	case r.keep:
		return r.held[i]
	}
	return r.paid[i]
}

// isLost says that a reset has dropped what is held of a limit.
func (r *record) isLost(i int) bool { return r.lost != nil && r.lost[i] }

// hasExpired says whether a hold has. It answers an open question, if a write has noticed the expiry and the clock
// was set back to before it since: a hold ends once, so that it has expired; but also, what is gone before its
// time was reset.
func (t *transaction) hasExpired(r *record, places []*place) bool {
	latest := t.now
	for _, p := range places {
		latest = max(latest, p.at)
	}
	return t.now >= r.expires || (r.over || latest >= r.expires) && t.choose()
}

// same says whether places are those that the hold was reserved for, as often each, in the same ways. Their order does
// not matter: the record takes on that of the places. The order of groups and of their ways does.
func (r *record) same(places []*place) bool {
	names, spots := namesOf(places)
	left := make([]int, len(r.names)) // the record's limits that are not matched yet
	for i := range left {
		left[i] = i
	}
	var order []int
	for i, n := range names {
		at := slices.IndexFunc(left, func(j int) bool { return r.names[j] == n && r.spots[j] == spots[i] })
		if at < 0 {
			return false
		}
		order = append(order, left[at])
		left = slices.Delete(left, at, at+1)
	}
	if len(left) > 0 {
		return false
	}
	r.names, r.spots = names, spots
	for _, numbers := range []*[]int64{&r.held, &r.paid, &r.permits, &r.applied} {
		*numbers = reordered(*numbers, order)
	}
	r.lost = reordered(r.lost, order)
	return true
}

// reordered is a list in another order; nil stays nil.
func reordered[T any](of []T, order []int) (list []T) {
	if of == nil {
		return nil
	}
	for _, i := range order {
		list = append(list, of[i])
	}
	return list
}

// namesOf are the names of an operation's limits and where they stand among its ways, in their order.
func namesOf(places []*place) (names []name, spots []spot) {
	for _, p := range places {
		names, spots = append(names, p.name), append(spots, p.spot)
	}
	return names, spots
}

// anew finds the ways that a hold is on which has expired: it is decided anew, but where an expiry has charged it
// for good.
func (r *record) anew(pl *plan) {
	for n, g := range pl.groups {
		for _, p := range g.ways[r.on[n]] {
			if r.kept(slices.Index(pl.all, p)) > 0 {
				g.on, g.held = r.on[n], true
			}
		}
	}
	pl.mark()
}

// resolved is the error of an id that has ended otherwise than the operation asks for.
func resolved(id string, end holdEnd, at stint.Instant) error {
	return &stint.ResolvedError{ID: id, End: string(end), At: at}
}

// reserve begins a hold, renews it, or lets it grow:
//
//   - An id that is new, or was forgotten, takes all that its claims ask for.
//   - A live one takes what it lacks: max(0, asked - held). It stays on its ways.
//   - One that has expired is decided anew, less what its expiry has charged: max(0, asked - kept).
//   - Of a live one, what a reset has dropped is taken anew.
//
// If one limit does not admit that, nothing changes: a live hold stays as it is.
func (t *transaction) reserve(op stint.Op, pl *plan) (a Answer, allowed bool) {
	id, places := op.Hold().ID, pl.all
	r := t.known(id)
	live, known := false, r != nil
	if known {
		switch {
		case r.end != holdLive:
			a.Err = resolved(id, r.end, r.at)
		case !r.same(places): // also of one that has expired, while that is remembered
			a.Err = stint.ErrOtherClaims
		case r.dropped: // it can't be renewed
			a.Err = resolved(id, holdExpired, min(t.now, r.expires))
		}
		if a.Err != nil {
			return a, false
		}
		if live = !t.hasExpired(r, places); live {
			pl.stay(r.on, false)
			r.standing(id, places)
		} else {
			t.expired(id, places)
			r.anew(pl)
		}
	}
	present, paid := true, make([]int64, len(places))
	for i, p := range places {
		if p.unasked {
			t.ask(p)
			continue
		}
		h, held := p.now.hold(id), int64(0)
		switch {
		case h != nil && live: // it grows by what it lacks
			paid[i], held, p.asking = h.paid, h.permits, id
		case known && !live: // anew, but for what an expiry has charged
			paid[i] = r.kept(i)
			held, present = paid[i], false
		case live && r.held[i] == 0: // it was on the empty way
		default: // new; or live, and reset meanwhile: all is taken anew
			present = false
		}
		p.want = max(0, p.limit.Takes(p.permits)-held)
		holds, _ := p.now.live()
		p.full = held == paid[i] && holds >= t.maxHolds && p.want > 0 // one that holds nothing is one more if it grows
		t.ask(p)
	}
	if !pl.choose() {
		for _, p := range places {
			t.look(p)
			a.Hold.Full = a.Hold.Full || p.full
		}
		a.Hold.Lost = known && (!live || !present)
		a.Hold.Replayed, a.Hold.Reset = live && present, live && !present
		return a, false
	}
	longest := time.Duration(0)
	held := make([]*held, len(places))
	for i, p := range places {
		if !p.charged {
			continue
		}
		held[i] = t.hold(op, p, paid[i])
		if p.want > 0 {
			if part := p.now.charge(p.want, p.at, true); part.permits > 0 {
				held[i].parts = append(held[i].parts, part)
			}
			held[i].permits += p.want
			longest = max(longest, p.out.Delay)
		}
		p.write = true
	}
	ttl := cmp.Or(op.Hold().TTL, bounds.DefaultHoldTTL)
	expires := t.now.Add(ttl + longest) // of a leaky bucket it counts from the turn
	if live {
		expires = max(expires, r.expires)
	}
	next := &record{expires: expires, ttl: ttl, keep: bool(op.Hold().OnExpiry), on: pl.on()}
	next.held, next.paid = make([]int64, len(places)), make([]int64, len(places))
	next.names, next.spots = namesOf(places)
	for i, h := range held {
		if h != nil {
			h.expires = expires
			next.held[i], next.paid[i] = h.permits, paid[i]
		}
	}
	if known && !live {
		t.notice(id, places)
	}
	for _, p := range places {
		t.look(p)
	}
	t.ids[id] = next
	a.Hold = stint.HoldOp{Hold: stint.Hold{ExpiresAt: expires}, Replayed: live && present, Reset: live && !present}
	return a, true
}

// hold is the hold in a state, which is put there if need be.
func (t *transaction) hold(op stint.Op, p *place, paid int64) *held {
	if p.want == 0 { // only its time is extended
		if !t.takesOver(p) {
			t.untaken(p)
		}
		t.keepsTime(p, true)
	}
	h := p.now.hold(op.Hold().ID)
	if h == nil {
		h = &held{id: op.Hold().ID, permits: paid, paid: paid}
	} else {
		p.now.drop(h.id) // of those that expire at one instant, the one reserved last is the last
	}
	p.now.holds = append(p.now.holds, h)
	h.number, h.keep = p.limit.Cost > 0, bool(op.Hold().OnExpiry)
	return h
}

// notice writes that a hold has expired where it was on a way that it is on no more. It answers an open question:
// whether it does if another version of the limit wrote the state.
func (t *transaction) notice(id string, places []*place) {
	for i, p := range places {
		isCharged := func(other *place) bool { return other.charged && other.name == p.name }
		seen := func(other *place) bool { return other.name == p.name }
		if p.before.hold(id) == nil || slices.ContainsFunc(places, isCharged) || slices.ContainsFunc(places[:i], seen) {
			continue
		}
		if p.before.changedFor(p.limit) && t.choose() {
			continue // it expires again when the state is read
		}
		if !t.takesOver(p) {
			t.untaken(p)
		}
		t.keepsTime(p, true)
		p.write = true
	}
}

// takesOver answers an open question about a renewal or an end that moves no permits of a limit: whether the
// limit takes over then what another version of it wrote. The contract says what is taken over, and not when. If it
// does, that is a bucket's last change.
func (t *transaction) takesOver(p *place) bool {
	if !p.before.changedFor(p.limit) || !p.known || !t.choose() {
		return false
	}
	if p.limit.IsBucket() {
		p.now.at = p.at
	}
	return true
}

// untaken leaves a state as it was written, but for expiries. It answers an open question: whether a window or a log is
// brought to now, so that it drops what has left meanwhile. It matters if the clock is set back to before that left.
func (t *transaction) untaken(p *place) {
	p.now = p.before.clone()
	p.now.expire(p.at)
	if p.limit.IsBucket() || p.limit.Algorithm == stint.AlgorithmConcurrency {
		return
	}
	brought := p.now.clone()
	if brought.bring(p.at); len(brought.entries) == 0 && brought.readyAt() <= p.at {
		brought.last = 0
	}
	if (!slices.Equal(brought.entries, p.now.entries) || brought.last != p.now.last) && t.choose() {
		p.now = brought
	}
}

// keepsTime answers an open question: whether a fixed window or counter without counts, which an end has written, still
// records its newest window's start. It matters if the clock is set back, by less than the margin, before that start.
func (t *transaction) keepsTime(p *place, write bool) {
	a := p.limit.Algorithm
	counts := slices.ContainsFunc(p.now.entries, func(e entry) bool { return e.permits > 0 })
	if !write || counts || a != stint.AlgorithmFixedWindow && a != stint.AlgorithmSlidingWindowCounter {
		return
	}
	start, _ := t.windows.window(&p.now.limit, p.at)
	if p.at-start < micros(time.Second) && p.now.newest() < start && t.choose() {
		p.now.at = start
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

// expired lets a hold that has expired expire in all states, also where nothing was written since and the clock
// was set back. It answers an open question: whether it does before a changed limit takes the state over.
func (t *transaction) expired(id string, places []*place) {
	for _, p := range places {
		h := p.before.hold(id)
		if h == nil || h.expires <= p.at {
			continue
		}
		if h := p.now.hold(id); h != nil && changed(p.before.limit, p.limit) && t.choose() {
			p.now.end(h, h.staysOnExpiry(), p.at)
			p.before = p.now.clone()
		} else {
			p.before = p.before.clone()
			p.before.hold(id).expires = p.at
			p.now = p.before.read(p.limit, t.now)
		}
	}
}

// end ends a hold by a Commit or a Cancel. A Commit that comes late, or of an id that the store has lost,
// charges what was used, as far as an expiry has not. A Cancel that comes late is an error. The same
// end again changes nothing, and has the same answer.
func (t *transaction) end(op stint.Op, pl *plan) (a Answer) {
	id, places := op.Hold().ID, pl.all
	end := holdCommitted
	var permits []int64
	for _, p := range places {
		permits = append(permits, p.permits)
	}
	if op.Verb == stint.VerbCancel {
		end = holdCancelled
		clear(permits)
	}
	r := t.known(id)
	lost := r == nil
	if lost {
		// One that would be remembered, and is not, was lost with the store's last second.
		known := op.Hold().ExpiresAt
		if end == holdCancelled || known == 0 || t.now > known.Add(remembered(op.Hold().TTL)) {
			a.Err = stint.ErrUnknownReservation
			return a
		}
		// What is lost is charged on the way that is named, of the first group, and on the first way of others.
		r = &record{expires: known, ttl: op.Hold().TTL, on: make([]int, len(pl.groups))}
		if len(pl.groups) > 0 {
			r.on[0] = int(op.Hold().Via)
		}
		r.names, r.spots = namesOf(places)
	}
	switch {
	case r.end == holdLive && !r.same(places):
		a.Err = stint.ErrOtherClaims
		return a
	case r.end == holdLive:
	case r.end != end || !r.same(places) || !slices.Equal(r.permits, permits):
		a.Err = resolved(id, r.end, r.at)
		return a
	default: // the same end again: the same answer, but of the first group's way alone is told which it was
		pl.stay(r.on, true)
		for _, g := range pl.groups[min(1, len(pl.groups)):] {
			g.held = false
		}
		for i, p := range places {
			t.finish(p, r.applied[i], false)
		}
		a.Hold = stint.HoldOp{Replayed: true, Late: r.late, Reset: r.reset}
		return a
	}
	pl.stay(r.on, true)
	late := lost || t.hasExpired(r, places)
	switch {
	case late && end == holdCancelled:
		a.Err = resolved(id, holdExpired, r.expires)
		return a
	case late:
		t.expired(id, places)
	default:
		r.standing(id, places)
	}
	r.applied, r.late = make([]int64, len(places)), late
	for i, p := range places {
		if p.number = !p.charged; !p.number { // else it is of another way than the hold is on
			r.applied[i] = t.endOf(op, r, i, p, late, lost)
		}
	}
	for _, p := range places {
		if !p.charged {
			applied := p.out.Applied
			t.finish(p, applied, p.write)
		}
	}
	r.end, r.at, r.permits = end, t.now, permits
	t.ids[id] = r
	a.Hold = stint.HoldOp{Late: r.late, Reset: r.reset}
	return a
}

// endOf ends what a hold has of one limit, and tells how much that charges or gives back.
func (t *transaction) endOf(op stint.Op, r *record, i int, p *place, late, lost bool) (applied int64) {
	id, write, stays := op.Hold().ID, true, p.permits
	h := p.now.hold(id)
	p.number = p.fixed()
	charges := !p.number
	if h != nil && p.number { // a limit with a fixed cost keeps what was taken
		stays = h.permits
	}
	if op.Verb == stint.VerbCancel {
		stays = 0
	}
	expired := !r.isLost(i) && (late || r.dropped && h == nil && r.held[i] > r.paid[i])
	r.late = r.late || expired
	switch {
	case expired: // what it cost is charged now, but for what an expiry has charged
		kept := int64(0)
		if !lost {
			kept = r.kept(i)
		}
		if charges && stays > kept {
			applied = p.now.debit(stays-kept, p.at)
		}
		was := p.before.hold(id)
		if write = applied != 0 || t.takesOver(p); !write && was != nil && was.permits > was.paid { // its expiry is noticed
			t.untaken(p)
			write = true
		}
	case h == nil: // what is gone before its time was reset: nothing moves
		r.reset, write = true, false
		p.number = p.number || stays == r.held[i]
	default:
		holds := h.permits - h.paid
		p.number = p.number || stays == h.permits // nothing is asked of it
		applied = -p.now.end(h, min(stays, h.permits), p.at)
		if charges && stays > h.permits {
			applied = p.now.debit(stays-h.permits, p.at)
		}
		if applied == 0 && holds == 0 && !t.takesOver(p) { // only the id goes, and no store writes the state
			p.now = p.before.clone()
			p.now.drop(id)
		}
	}
	t.keepsTime(p, write)
	t.finish(p, applied, write)
	return applied
}

// drop lets expire now what a hold has of the claims. The id stays: its end may still be told, and then
// counts as late for what was dropped.
func (t *transaction) drop(op stint.Op, places []*place) (a Answer) {
	found := false
	for _, p := range places {
		applied := int64(0)
		h := p.now.hold(op.Hold().ID)
		if p.number = h == nil || h.permits == h.paid; !p.number { // else nothing is asked of it
			found, p.write = true, true
			applied = -p.now.end(h, h.staysOnExpiry(), p.at)
			t.keepsTime(p, true)
		}
		t.finish(p, applied, p.write)
	}
	if !found {
		a.Err = stint.ErrUnknownReservation
	} else if r := t.known(op.Hold().ID); r != nil && r.end == holdLive {
		r.dropped = true
	}
	return a
}

// inOrder sorts holds by their expiry, and where that is the same in an order of its own.
func inOrder(a, b stint.Hold) int {
	return cmp.Or(cmp.Compare(a.ExpiresAt, b.ExpiresAt), cmp.Compare(a.ID, b.ID))
}

// same reports whether two holds are the same.
func same(a, b stint.Hold) bool {
	return a.ID == b.ID && a.ExpiresAt == b.ExpiresAt && slices.Equal(a.Permits, b.Permits)
}
