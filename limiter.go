package stint

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/prefix"
)

// A Config says what a [Limiter] is made of.
type Config struct {
	// Store decides. It must not be nil, nor hold a nil pointer.
	Store Store
	// Policy holds the limits. It must not be nil.
	Policy *Policy
	// Observe is told of every operation, with its decision or its error; Wait and WaitN make several. Default: nil,
	// nobody is.
	Observe Observer
}

// A Limiter limits by one policy on one store. It is safe for concurrent use.
//
// Most callers want Allow, which decides at once. Wait blocks until a permit is
// had. Peek looks without taking, Settle charges or refunds what is known only
// afterwards, Reset forgets. The zero Limiter has no store: its errors wrap [ErrInvalid].
type Limiter struct {
	store   Store
	direct  Store // the store, if nobody observes; else nil
	policy  *Policy
	observe Observer
	queues  waitQueues
	events  sync.Pool // of *Event

	mu     sync.Mutex
	others map[Limit]*Limiter     // that With has made of one limit
	lists  map[listOfFew]*Limiter // and of several
}

// A listOfFew is 2 to 4 limits.
type listOfFew [4]Limit

// New makes a limiter of one or more limits, all of which must admit. What clients have used is kept in the store
// under the limiter's name, 1 to 128 characters of printable ASCII without a slash: limiters of one
// name count a client together, in other processes too, and limiters of different names
// never do. Two limiters of one name with different limits are one limiter whose limits change with
// each call: give limiters that should count apart different names. [Limiter.With] is for limits that
// depend on the request. The error names all faults.
func New(store Store, name string, limits ...Limit) (*Limiter, error) {
	var nameless error
	if name == "" || strings.Contains(name, "/") {
		nameless = Invalid("name", name,
			fmt.Sprintf("1 to %d characters of printable ASCII without a slash", bounds.MaxNameBytes))
	}
	policy, err := NewPolicy(name, limits...)
	if policy == nil { // else it would be a fault, too
		policy = new(Policy)
	}
	l, storeless := NewLimiter(Config{Store: store, Policy: policy})
	if err := prefix.Join(nameless, err, storeless); err != nil {
		return nil, err
	}
	return l, nil
}

// maxOthers bounds the limiters that With keeps at hand.
const maxOthers = 1024

// With returns a limiter with the same name, store and observer, and other limits: for limits that
// depend on the request, as those of a customer's plan do, or that change. What a client has used
// counts on under the other limits: more is in force at once, and less from the first request that is
// admitted under it, as docs/internals/changed-limits.md says. It
// is quick for up to four limits that were asked for before.
func (l *Limiter) With(limits ...Limit) (*Limiter, error) {
	if len(limits) == 1 {
		return remembered(l, &l.others, limits[0], limits)
	}
	var list listOfFew
	n := copy(list[:], limits)
	if n < len(limits) || n > 0 && limits[n-1].Algorithm == 0 { // a shorter list is filled up with such limits
		return l.with(limits)
	}
	return remembered(l, &l.lists, list, limits)
}

// remembered is the limiter of a key among those that With has made, or a new one with these limits.
func remembered[K comparable](l *Limiter, others *map[K]*Limiter, key K, limits []Limit) (*Limiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := (*others)[key]; other != nil {
		return other, nil
	}
	other, err := l.with(limits)
	if err != nil {
		return nil, err
	}
	if *others == nil || len(*others) >= maxOthers {
		*others = map[K]*Limiter{}
	}
	(*others)[key] = other
	return other, nil
}

// with is a limiter of the same store, with other limits under the policy's name.
func (l *Limiter) with(limits []Limit) (*Limiter, error) {
	if l.policy == nil {
		return nil, errZero
	}
	policy, err := NewPolicy(l.policy.Name(), limits...)
	if err != nil {
		return nil, err
	}
	return NewLimiter(Config{Store: l.store, Policy: policy, Observe: l.observe})
}

// errZero is why a limiter decides nothing that is the zero value of its type.
var errZero = Invalid("limiter", "the zero value", "one that New or NewLimiter made")

// errNoStore is why there is no limiter, or nothing is reserved, without a store.
var errNoStore = Invalid("store", "nil", "a store such as memstore.New makes")

// NewLimiter makes a limiter.
func NewLimiter(config Config) (*Limiter, error) {
	if v := reflect.ValueOf(config.Store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errNoStore
	}
	if config.Policy == nil {
		return nil, Invalid("policy", "nil", "a policy made by NewPolicy")
	}
	l := &Limiter{store: config.Store, policy: config.Policy, observe: config.Observe}
	if l.observe == nil {
		l.direct = l.store
	}
	return l, nil
}

// Policy returns the limiter's policy.
func (l *Limiter) Policy() *Policy { return l.policy }

// Allow decides whether one request of the key may proceed, and takes a permit if
// so. The error is not about the request: see [Store].
func (l *Limiter) Allow(ctx context.Context, key string) (Decision, error) {
	if l.direct != nil {
		return l.direct.Take(ctx, l.policy, key, 1) // a call less than by AllowN
	}
	return l.decide(ctx, VerbTake, key, 1)
}

// AllowN is Allow for n permits, all or none.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (Decision, error) {
	if l.direct != nil {
		return l.direct.Take(ctx, l.policy, key, n)
	}
	return l.decide(ctx, VerbTake, key, n)
}

// A Query is what [Limiter.Ask] asks for. The zero value asks for one permit, as Allow does.
type Query struct {
	// N is how many permits, all or none. Default: 0, which is 1.
	N int64
	// Keep is how many permits of each limit stay left to others: the limit decides, and says what remains, as if
	// its capacity were so much less. Default: 0.
	Keep int64
	// Before is a deadline for a leaky bucket's turn. Default: the zero time, none.
	//
	// If the turn comes later, nothing is taken, and the error is ErrDeadline, with a decision whose Delay says
	// how far off the turn is. That takes a look first, and one who goes to the bucket between the look and the
	// taking makes the turn behind it the request's own, which stays taken. A turn that has come is in time.
	Before time.Time
	// Each, if not nil, receives what each limit said, in the order of the policy's limits, and must be at least
	// as long. Default: nil.
	Each []Outcome
}

// Ask is AllowN with all that can be asked for. Without Before, and without a leaky bucket, the store is asked once.
func (l *Limiter) Ask(ctx context.Context, key string, q Query) (d Decision, err error) {
	if q.N == 0 {
		q.N = 1
	}
	op := Op{Claim: Claim{Key: key, Policy: l.policy, Permits: q.N, Keep: q.Keep}, Each: q.Each}
	bounded := !q.Before.IsZero() && l.policy != nil && l.policy.leaky
	if bounded {
		look := op
		look.Verb = VerbPeek
		d, err := l.look(ctx, look)
		if err != nil || d.isLate(q.Before) {
			return d, orDeadline(err)
		}
	}
	if q.Each == nil && q.Keep == 0 {
		d, err = l.AllowN(ctx, key, q.N)
	} else {
		d, err = l.carry(ctx, op)
	}
	if err == nil && bounded && d.isLate(q.Before) {
		err = ErrDeadline // others queued since the look; the turn stays taken
	}
	return d, err
}

// Peek decides as Allow would, and consumes nothing.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	return l.decide(ctx, VerbPeek, key, 1)
}

// PeekN decides as AllowN would, and consumes nothing.
func (l *Limiter) PeekN(ctx context.Context, key string, n int64) (Decision, error) {
	return l.decide(ctx, VerbPeek, key, n)
}

// Reset clears the state of the key.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.decide(ctx, VerbReset, key, 0)
	return err
}

// Settle charges n permits, refunds -n when n is negative, or does nothing when n is 0, for costs that are
// known only when the work is done. [Decision.Applied] says how much of it was
// applied: a charge may go into debt down to the limit's MaxDebt, a refund never
// exceeds what was taken. A leaky bucket's refund is refused.
//
// The context of a request ends when its client hangs up, and nothing is settled then: give Settle
// [context.WithoutCancel] of it.
func (l *Limiter) Settle(ctx context.Context, key string, n int64) (Decision, error) {
	return l.decide(ctx, VerbSettle, key, n)
}

// look carries out a Peek. A store that is unreachable, or not asked for want of time, can't tell, but
// something in its place may decide: then the decision is empty.
func (l *Limiter) look(ctx context.Context, op Op) (Decision, error) {
	d, err := l.carry(ctx, op)
	if undecided(err) {
		return Decision{}, nil
	}
	return d, err
}

// isLate reports whether the turn lies ahead, and after the deadline.
func (d *Decision) isLate(deadline time.Time) bool {
	return d.Allowed && d.Delay > 0 && d.Delay > time.Until(deadline)
}

// orDeadline is an error, or ErrDeadline if there is none: a turn after the deadline is not taken.
func orDeadline(err error) error {
	if err == nil {
		return ErrDeadline
	}
	return err
}

func (l *Limiter) decide(ctx context.Context, verb Verb, key string, n int64) (Decision, error) {
	return l.carry(ctx, Op{Verb: verb, Claim: Claim{Key: key, Policy: l.policy, Permits: n}})
}

// untold has the store carry out an operation of which no observer is told.
func (l *Limiter) untold(ctx context.Context, op Op) (Decision, error) {
	if l.store == nil {
		return Decision{}, errZero
	}
	return l.store.Decide(ctx, op)
}

// carry has the store carry out an operation and tells the observer.
func (l *Limiter) carry(ctx context.Context, op Op) (Decision, error) {
	if l.observe == nil {
		return l.untold(ctx, op)
	}
	start := time.Now()
	d, err := l.store.Decide(ctx, op)
	hold := op.Hold()
	d.Full = hold != nil && hold.Full
	e, ok := l.events.Get().(*Event)
	if !ok {
		e = new(Event)
	}
	*e = Event{
		At: Instant(start.UnixMicro()), Elapsed: time.Since(start),
		Verb: op.Verb, Claim: op.Claim, Decision: d, Err: err,
		Replayed: hold != nil && hold.Replayed,
	}
	if e.Checked() {
		e.Reason = ReasonOf(e.Limit(), &d, e.Limit().Takes(op.Permits))
	}
	l.observe(ctx, e)
	l.events.Put(e)
	return d, err
}
