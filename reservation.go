package stint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/sleep"
)

// A Reservation is a hold that was admitted. End it once, by Commit or Cancel; what nobody ends expires. It is safe for
// concurrent use. A nil Reservation, that of a Reserve that was denied, holds nothing: it has no ID, and the errors of
// Grow, Commit and Cancel wrap [ErrUnknownReservation].
type Reservation struct {
	store Store
	by    *Limiter // that tells its observer; nil: none
	hold  Hold
	asked []bool // whether a claim's permits are what is asked for; nil: all are. The others stay

	mu        sync.Mutex
	claims    Op    // with what is held; its claims are never changed, but replaced
	permits   int64 // of those that are asked for, or of the first of them
	expiresAt Instant
	replayed  bool
	via       uint8     // of the last Reserve
	certain   time.Time // until when it is held, by this process's clock: since the last Reserve was sent, its TTL
	calling   bool      // whether an operation uses call
	call      holdCall
}

// An End is what a Commit or a Cancel did.
type End struct {
	// Applied is what was charged beyond what was held (above 0), or came back of it (below); of several limits the least.
	// A charge is clipped at the limit's MaxDebt, and what no longer counts doesn't come back.
	Applied int64
	// Replayed says that the hold had ended in the same way before; nothing was done.
	Replayed bool
	// Late says that the hold had expired, or the store had lost it, so that all of the cost was charged now.
	Late bool
	// Reset says that some of what was held was reset before it expired, so that nothing of that came back or was charged.
	Reset bool
	// At is the store's time.
	At Instant
}

// Reserve holds n permits of the key from now on, so that others can't have them while a cost is
// not known yet, or while something runs that takes a place of [Concurrency]. Like AllowN, it takes
// them of all limits or of none; then the reservation is nil, whose methods hold and end nothing. Commit
// says what it cost: the rest goes back, or what lacks is charged.
//
// A hold is identified by its ID in the whole store. To reserve one again extends its time, and
// takes what lacks if n is more than it holds; so the same Reserve may be sent twice. "" stands for
// a random one.
//
// If the answer is lost, since the context ends or the store takes too long, the permits may be held. With a random ID
// nobody could end that hold, so it is cancelled in the background. With an ID of the caller's it stays: the caller may
// repeat the Reserve, or cancel it.
//
// A hold that neither ends nor is renewed in time expires, and all that it held is free, or, with
// [Hold.OnExpiry], charged: so a process that dies keeps nothing. Of a bucket, permits that are held
// don't refill: see docs/internals/holds.md.
//
// Limits that count denied requests, or lease, can't hold; a leaky bucket only with a cost of its
// own, which stays. The error wraps [ErrInvalid] for these, and for a store that keeps no holds;
// [ErrResolved] if the hold was committed or cancelled; [ErrOtherClaims] if its ID is live, or has expired and is still
// remembered, under another key or other limits.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64, hold Hold) (*Reservation, Decision, error) {
	op := Op{Claim: Claim{Key: key, Policy: l.policy, Permits: n}, Each: hold.Each}
	return reserve(ctx, newReservation(l.store, l, &op, nil, hold), &op, hold)
}

// Reserve reserves in a store what the claims of an operation ask for, as [Limiter.Reserve] does by one claim: for what
// decides by several policies at once, such as rules. asked says of each claim whether its permits are the
// request's, which Grow and Commit say anew; those of the others stay as they are. They are all the request's if it is
// nil. The operation's Verb is set here; its Hold, if it is not nil, is told what became of the hold.
func Reserve(ctx context.Context, store Store, op Op, asked []bool, hold Hold) (*Reservation, Decision, error) {
	if store == nil {
		return nil, Decision{}, errNoStore
	}
	return reserve(ctx, newReservation(store, nil, &op, asked, hold), &op, hold)
}

// reserve reserves an operation's claims by the reservation that was made for them.
func reserve(ctx context.Context, held *Reservation, op *Op, hold Hold) (*Reservation, Decision, error) {
	d, err := held.reserve(ctx, held.claims, held.permits, op.Hold(), op.Each)
	if err != nil && hold.ID == "" && (ctx.Err() != nil || timedOut(err)) {
		go held.abandon(ctx) // nobody else knows the ID
	}
	if err != nil || !d.Allowed {
		return nil, d, err
	}
	return held, d, nil
}

// newReservation makes a reservation of an operation's claims, of which nothing is held yet; by is nil where nobody
// observes.
func newReservation(store Store, by *Limiter, op *Op, asked []bool, hold Hold) *Reservation {
	hold = Hold{ID: strings.Clone(hold.ID), TTL: bounds.HoldTTL(hold.TTL), OnExpiry: hold.OnExpiry}
	if hold.ID == "" {
		hold.ID = rand.Text()
	}
	r := &Reservation{store: store, by: by, hold: hold, asked: slices.Clone(asked), claims: op.claimed()}
	for i := range r.claims.Len() {
		claim, _ := r.claims.NthClaim(i)
		claim.Key = strings.Clone(claim.Key)
		if r.permits == 0 && r.asks(i) {
			r.permits = claim.Permits
		}
	}
	return r
}

// decide carries out an operation on the hold.
func (r *Reservation) decide(ctx context.Context, op Op) (Decision, error) {
	if r.by != nil {
		return r.by.carry(ctx, op)
	}
	return r.store.Decide(ctx, op)
}

// claimed is an operation of copies of the claims, and nothing else.
func (op *Op) claimed() Op {
	of := Op{Claim: op.Claim, And: slices.Clone(op.And)}
	if op.Groups() == nil {
		return of
	}
	groups := slices.Clone(op.Groups())
	for g, group := range groups {
		groups[g] = slices.Clone(group)
		for w, way := range group {
			groups[g][w] = slices.Clone(way)
		}
	}
	of.Extra = &Extra{Groups: groups}
	return of
}

// timedOut reports whether an operation's Timeout has passed.
func timedOut(err error) bool {
	late, is := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return is && late.Timeout()
}

// abandon cancels a hold that may have been made though its Reserve failed. What can't be cancelled expires.
func (r *Reservation) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bounds.MinHoldTTL)
	defer cancel()
	_, _ = r.Cancel(ctx)
}

// asks reports whether a claim's permits are what is asked for.
func (r *Reservation) asks(claim int) bool { return r.asked == nil || r.asked[claim] }

// ReserveWait is Reserve, and waits until the permits are there. It returns ErrDeadline at once when the context's
// deadline is nearer than the wait, but for places, which may be free at any time, and ErrNever when n is above the
// limit itself. Callers of one limiter that wait for
// one key are served in the order in which they came; between processes there is no order, and one who waits for many
// permits may wait behind those who want few.
//
// A store that can't decide, and a process too busy to ask it, don't end the wait, as with [Limiter.Wait]. All tries
// are of one hold, a random ID too, so that none is held twice.
func (l *Limiter) ReserveWait(ctx context.Context, key string, n int64, hold Hold) (*Reservation, Decision, error) {
	held := newReservation(l.store, l, &Op{Claim: Claim{Key: key, Policy: l.policy, Permits: n}}, nil, hold)
	unsure := false // whether a try may have held though it failed
	d, err := l.reserveWait(ctx, key, n, func() (Decision, error) {
		d, err := held.reserve(ctx, held.claims, n, nil, hold.Each)
		unsure = unsure || undecided(err) || err != nil && ctx.Err() != nil
		return d, err
	})
	if err != nil {
		if unsure && hold.ID == "" {
			go held.abandon(ctx) // nobody else knows the ID
		}
		return nil, d, err
	}
	return held, d, nil
}

// reserveWait tries to reserve until that is admitted, for the first waiter of its key. Where it never fits, others
// are not waited for.
func (l *Limiter) reserveWait(
	ctx context.Context,
	key string,
	n int64,
	try func() (Decision, error),
) (Decision, error) {
	if l.store == nil {
		return Decision{}, errZero
	}
	if n < 1 || !l.policy.canFit(n) {
		d, err := persist(ctx, try)
		if err == nil && !d.Allowed {
			err = ErrNever
		}
		return d, err
	}
	w, err := l.queues.join(ctx, key, l.policy.concurrent)
	if err != nil {
		return Decision{}, err
	}
	defer l.queues.leave(w)
	freed := make(chan struct{}, 1)
	if teller, ok := l.store.(waker); ok {
		stop := teller.Wake(key, l.policy, func() {
			select {
			case freed <- struct{}{}:
			default: // told already
			}
		})
		defer stop()
	}
	for {
		d, err := persist(ctx, try)
		switch deadline, bounded := ctx.Deadline(); {
		case err != nil || d.Allowed:
			return d, err
		case d.RetryAfter == Never:
			return d, ErrNever
		case bounded && d.RetryAfter > time.Until(deadline) && !l.policy.concurrent:
			return d, ErrDeadline // a place may be free sooner
		}
		l.queues.sleeps(w, time.Now().Add(d.RetryAfter))
		// A store may not tell, or not be told itself.
		if err := sleep.Until(ctx, min(d.RetryAfter, time.Second), freed); err != nil {
			return d, err
		}
	}
}

// Holds lists the live holds of a key under the limiter's limits, each once, the next to expire first: of each limit
// 100.
func (l *Limiter) Holds(ctx context.Context, key string) (live []Hold, err error) {
	_, err = l.untold(ctx, Op{Verb: VerbList, Claim: Claim{Key: key, Policy: l.policy}, Extra: &Extra{Live: &live}})
	return live, err
}

// Drop ends a key's hold for a holder that is stuck, without its claims: what it has under the limiter's limits expires
// now, and the hold can't be renewed, so that the context of [Reservation.KeepAlive] ends with [ErrLost]. A Commit is
// charged, late. The error wraps [ErrUnknownReservation] if the key has no such hold.
func (l *Limiter) Drop(ctx context.Context, key, id string) error {
	_, err := l.untold(ctx, Op{
		Verb: VerbDrop, Claim: Claim{Key: key, Policy: l.policy}, Extra: &Extra{Hold: &HoldOp{Hold: Hold{ID: id}}},
	})
	return err
}

// A waker is a Store that tells when permits come back before their time, see [Store].
type waker interface {
	Wake(key string, policy *Policy, wake func()) (stop func())
}

// errNotHeld is what the methods of a nil Reservation say.
var errNotHeld = fmt.Errorf("%w: nothing is held, since the Reserve was denied", ErrUnknownReservation)

// ID is the hold's.
func (r *Reservation) ID() string {
	if r == nil {
		return ""
	}
	return r.hold.ID
}

// ExpiresAt is when the hold expires if it is not renewed, by the store's clock; by this process's if a failure policy
// admitted in the store's place.
func (r *Reservation) ExpiresAt() Instant {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expiresAt
}

// certainty is until when the permits are held, by this process's clock.
func (r *Reservation) certainty() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.certain
}

// Permits is how many permits are held, of limits without a cost of their own. Of a hold that was there before the
// Reserve, and has more, it is how many that asked for.
func (r *Reservation) Permits() int64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.permits
}

// Replayed says that the hold was there before the last Reserve or Grow.
func (r *Reservation) Replayed() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replayed
}

// Grow extends the hold's time, and takes what it lacks to hold so many permits in all: so a stream
// learns whether it may go on. Denied, the hold stays as it was; one that had been lost is not
// there any more, and the error is [ErrLost].
func (r *Reservation) Grow(ctx context.Context, total int64) (Decision, error) {
	if r == nil {
		return Decision{}, errNotHeld
	}
	return r.reserve(ctx, r.claimsOf(total), total, nil, nil)
}

// A holdCall is what an operation on a hold is about, in one piece of memory.
type holdCall struct {
	extra Extra
	hold  HoldOp
}

// begin is the memory for an operation: the reservation's own, unless another operation uses it.
func (r *Reservation) begin() *holdCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calling {
		return new(holdCall)
	}
	r.calling = true
	return &r.call
}

// done gives back the memory for an operation. After an error it is not used again: a store that was not waited for
// may still use it.
func (r *Reservation) done(call *holdCall, err error) {
	if call != &r.call || err != nil {
		return
	}
	r.mu.Lock()
	r.calling = false
	r.mu.Unlock()
}

// reserve carries out a Reserve of claims that ask for so many permits, and tells what became of the hold, if anybody
// wants to know.
func (r *Reservation) reserve(
	ctx context.Context,
	claims Op,
	permits int64,
	told *HoldOp,
	each []Outcome,
) (Decision, error) {
	call := r.begin()
	if told == nil {
		told = &call.hold
	}
	*told = HoldOp{Hold: r.hold}
	op := claims.on(VerbReserve, told, &call.extra)
	op.Each = each
	sent := time.Now()
	d, err := r.decide(ctx, op)
	d.Full = told.Full
	err = r.grown(claims, permits, told, &d, err, sent)
	r.done(call, err)
	return d, err
}

// claimsOf are the hold's claims with so many permits where that is asked.
func (r *Reservation) claimsOf(permits int64) Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	claims := r.claims.claimed()
	for i := range claims.Len() {
		if claim, _ := claims.NthClaim(i); r.asks(i) {
			claim.Permits = permits
		}
	}
	return claims
}

// on is an operation of these claims on a hold, which extra has.
func (op Op) on(verb Verb, h *HoldOp, extra *Extra) Op {
	extra.Groups, extra.Hold = op.Groups(), h
	op.Verb, op.Extra = verb, extra
	return op
}

// grown notes what became of the hold by a Reserve that was sent at a time.
func (r *Reservation) grown(claims Op, permits int64, h *HoldOp, d *Decision, err error, sent time.Time) error {
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !d.Allowed && h.Lost && !r.certain.IsZero():
		return ErrLost
	case !d.Allowed:
		return nil // of the first Reserve, too, of an ID that was held by another Reservation
	}
	if permits >= r.permits { // less changes nothing
		r.claims, r.permits = claims, permits
	}
	r.expiresAt, r.replayed, r.certain = h.ExpiresAt, h.Replayed, sent.Add(bounds.HoldTTL(r.hold.TTL))
	r.via = d.Via
	return nil
}

// Commit ends the hold with what it cost in the end, 0 or more. To say the same twice is safe;
// after an error that wraps ErrUnavailable, say it again. The error wraps [ErrResolved] if the hold
// ended otherwise, and [ErrUnknownReservation] if that was too long ago. After it had expired, all
// of the cost is charged. Give it a context that outlives the request's.
func (r *Reservation) Commit(ctx context.Context, actual int64) (End, error) {
	if r == nil {
		return End{}, errNotHeld
	}
	return r.end(ctx, VerbCommit, r.claimsOf(actual))
}

// CommitHeld is Commit where nobody knows better what it cost: each limit keeps what it holds, also where limits hold
// different numbers.
func (r *Reservation) CommitHeld(ctx context.Context) (End, error) {
	if r == nil {
		return End{}, errNotHeld
	}
	r.mu.Lock()
	claims := r.claims
	r.mu.Unlock()
	return r.end(ctx, VerbCommit, claims)
}

// CommitEach is Commit where claims cost different numbers: actual says what one cost, of what it holds, by its place
// among the operation's claims. Limits with a cost of their own keep that.
func (r *Reservation) CommitEach(ctx context.Context, actual func(claim int, held int64) int64) (End, error) {
	if r == nil {
		return End{}, errNotHeld
	}
	r.mu.Lock()
	claims := r.claims.claimed()
	r.mu.Unlock()
	for i := range claims.Len() {
		claim, _ := claims.NthClaim(i)
		claim.Permits = actual(i, claim.Permits)
	}
	return r.end(ctx, VerbCommit, claims)
}

// Cancel ends the hold as if it had never been: for what never ran. All goes back, but a leaky bucket's turns.
func (r *Reservation) Cancel(ctx context.Context) (End, error) {
	if r == nil {
		return End{}, errNotHeld
	}
	return r.end(ctx, VerbCancel, r.claimsOf(0))
}

// end commits or cancels the hold. The expiry that this process knows goes with it, and the way, so that a store
// which has lost the hold can charge it.
func (r *Reservation) end(ctx context.Context, verb Verb, claims Op) (End, error) {
	call := r.begin()
	h := &call.hold
	*h = HoldOp{Hold: r.hold}
	r.mu.Lock()
	h.ExpiresAt, h.Via = r.expiresAt, r.via
	r.mu.Unlock()
	d, err := r.decide(ctx, claims.on(verb, h, &call.extra))
	if err != nil {
		return End{}, err
	}
	end := End{Applied: d.Applied, Replayed: h.Replayed, Late: h.Late, Reset: h.Reset, At: d.At}
	r.done(call, nil)
	return end, nil
}
