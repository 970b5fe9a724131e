package stint

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/prefix"
)

// A Verb is what an operation does. The zero value is VerbTake.
type Verb uint8

// The verbs. All limits of an operation are carried out together: a Take is
// admitted by all of them or consumes nothing.
const (
	// VerbTake consumes permits when all limits admit. On denial only the limits that
	// count denied requests record it.
	VerbTake Verb = iota
	// VerbTry is VerbTake, but its denial is not recorded.
	VerbTry
	// VerbPeek decides as VerbTake would and changes nothing.
	VerbPeek
	// VerbReset clears the state.
	VerbReset
	// VerbSettle charges (Permits > 0) or refunds (Permits < 0) after the fact.
	VerbSettle
	// VerbReserve takes permits, or more of them, under an id until a time: see [Limiter.Reserve].
	VerbReserve
	// VerbCommit ends a hold: what it held beyond Permits goes back, what it lacks is charged.
	VerbCommit
	// VerbCancel ends a hold as if it had never been.
	VerbCancel
	// VerbDrop lets expire now what a hold has of the operation's claims, whatever else it has: for a client whose
	// holder is stuck. The hold can't be renewed; its Commit is late.
	VerbDrop
	// VerbList lists what is held under the limits of the operation's claim: of each limit the next 100 to expire.
	VerbList
)

var verbNames = [...]string{"take", "try", "peek", "reset", "settle", "reserve", "commit", "cancel", "drop", "list"}

// String is the verb in lower case.
func (v Verb) String() string {
	if int(v) >= len(verbNames) {
		return "unknown"
	}
	return verbNames[v]
}

// A Claim asks for permits of a policy on behalf of one client.
type Claim struct {
	// Key is whom the policy applies to: 1 to 256 bytes of any value. Stores copy
	// what they need of it after a call has returned, for whatever reason, so that its
	// memory may then be used again.
	Key string
	// Policy holds the limits. It must not be nil.
	Policy *Policy
	// Permits is the cost, at least 1; for Settle the amount, of either sign, not 0; for Reserve what is to be held in
	// all; for Commit what it cost in the end, 0 or more; for the other verbs it is not used.
	Permits int64
	// Keep is how many permits of each limit are left to others, 0 to 1,000,000,000: the claim is admitted as if the
	// capacity were so much less, and Remaining, RetryAfter and GrowsAfter say what there is above that. Permits alone are
	// consumed, and Settle ignores it. A cost above what the limit has beyond Keep is never admitted. Default: 0.
	Keep int64
}

// An Op is one operation on a store.
type Op struct {
	Verb Verb
	Claim
	// And holds further claims that are decided together with the first, each with
	// its own key, policy and cost. No state may be named twice. All together, those of groups too, have at most
	// 1,000 limits. Default: none.
	And []Claim
	// Timeout is for how long the caller waits for a store on another machine. When it passes, the
	// error wraps ErrUnavailable, or ErrOverloaded where this process was too busy to ask in time, and
	// an error with a method Timeout() bool that returns true. It is not context.DeadlineExceeded: that
	// says that the caller's own context has ended. A context that ends sooner is the caller's own
	// affair: the error is the context's alone. Of several operations in one call the least Timeout that is not 0 counts
	// for all. Package failover sets it. Default: 0, as long as the context allows.
	Timeout time.Duration
	// Each, if not nil, receives the outcome of every limit, in the order of the
	// claims and their limits: the claim, And, the groups. It must be at least as long as [Op.Limits].
	Each []Outcome
	// Extra is what few operations have, behind one pointer so that the others don't copy it. Default: nil, nothing.
	Extra *Extra
}

// Extra is what few operations have. The zero value is nothing.
type Extra struct {
	// Groups are alternatives: see [Way]. Default: none.
	Groups [][]Way
	// Hold is what a Reserve, a Commit, a Cancel or a Drop is about, and only these. The store writes down in it what
	// became of the hold.
	Hold *HoldOp
	// Live receives what a List finds, the next to expire first. It is for a List alone, of one claim.
	Live *[]Hold
}

// Groups are the operation's groups of alternatives; nil of most.
func (op *Op) Groups() [][]Way {
	if op.Extra == nil || len(op.Extra.Groups) == 0 {
		return nil
	}
	return op.Extra.Groups
}

// Hold is what an operation on a hold is about; nil of others.
func (op *Op) Hold() *HoldOp {
	if op.Extra == nil {
		return nil
	}
	return op.Extra.Hold
}

// Len is the number of claims of the operation, those of groups too.
func (op *Op) Len() int {
	n := len(op.And)
	if op.Policy != nil || op.Groups() == nil {
		n++
	}
	for _, group := range op.Groups() {
		for _, way := range group {
			n += len(way)
		}
	}
	return n
}

// NthClaim returns claim i of the operation, 0 to Len()-1, and the number of its way. They are in the order: the claim
// itself, unless it has no policy and there are groups, And, the groups. The number is 0 of a claim that has to admit,
// whatever else does; of way w of group g, both counted from 0, it is (g+1) x 16 + w, and 8 more in a group whose last
// way is empty.
func (op *Op) NthClaim(i int) (claim *Claim, way uint16) {
	if op.Policy != nil || op.Groups() == nil {
		if i == 0 {
			return &op.Claim, 0
		}
		i--
	}
	if i < len(op.And) {
		return &op.And[i], 0
	}
	i -= len(op.And)
	for g, group := range op.Groups() {
		for w, way := range group {
			if i < len(way) {
				return &way[i], wayNumber(group, g, w)
			}
			i -= len(way)
		}
	}
	return nil, 0
}

// First is the first of the operation's claims.
func (op *Op) First() *Claim {
	claim, _ := op.NthClaim(0)
	return claim
}

// Limits is the number of limits that the operation decides.
func (op *Op) Limits() int {
	n := 0
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		n += claim.Policy.Len()
	}
	return n
}

// LimitAt returns limit i of the operation, in the order of the claims, and its claim.
func (op *Op) LimitAt(i int) (Limit, *Claim) {
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		if i < claim.Policy.Len() {
			return claim.Policy.Limit(i), claim
		}
		i -= claim.Policy.Len()
	}
	return Limit{}, nil
}

// Validate reports what is wrong with the operation. Stores call it first. It
// does not allocate when nothing is wrong.
func (op *Op) Validate() error {
	if op.Verb > VerbList {
		return Invalid("verb", uint8(op.Verb), "one of "+strings.Join(verbNames[:], ", "))
	}
	isList := op.Extra != nil && op.Extra.Live != nil && op.And == nil && op.Groups() == nil && op.Hold() == nil
	if op.Verb == VerbList && !isList {
		return Invalid("verb", op.Verb, "with one claim, a place for the answer and no hold")
	}
	if op.Verb > VerbSettle && op.Verb != VerbList || op.Hold() != nil {
		if err := op.validateHold(); err != nil {
			return err
		}
	}
	if op.Policy != nil || op.Groups() == nil || op.And != nil {
		if err := op.validate(op.Verb); err != nil {
			return err
		}
	}
	if op.And == nil && op.Each == nil && op.Groups() == nil {
		return nil
	}
	if op.Groups() != nil {
		if err := op.validateGroups(); err != nil {
			return err
		}
	}
	if err := op.validateTogether(); err != nil {
		return err
	}
	if op.Each != nil && len(op.Each) < op.Limits() {
		return Invalid("each", len(op.Each), fmt.Sprintf("room for %d outcomes", op.Limits()))
	}
	return nil
}

// validateTogether reports what is wrong with the claims of an operation behind the first.
func (op *Op) validateTogether() error {
	n, limits := 0, 0
	check := func(claim *Claim, way uint16) error {
		if claim != &op.Claim {
			if err := claim.validate(op.Verb); err != nil {
				return prefix.Errorf("claim %d: %w", n, err)
			}
		}
		if limits += claim.Policy.Len(); limits > bounds.MaxOpLimits {
			return Invalid(
				"claims", fmt.Sprintf("%d or more limits", limits),
				fmt.Sprintf("at most %d limits in one operation", bounds.MaxOpLimits),
			)
		}
		if op.Verb != VerbReset && op.isNamedBefore(claim, way) { // resetting a state twice is resetting it
			return prefix.Errorf("claim %d: %w", n, Invalid("claims", claim.Key,
				"each key with limits whose state no other claim of the operation names"))
		}
		n++
		return nil
	}
	if op.Policy != nil {
		if err := check(&op.Claim, 0); err != nil {
			return err
		}
	}
	for i := range op.And {
		if err := check(&op.And[i], 0); err != nil {
			return err
		}
	}
	for g, group := range op.Groups() {
		for w, way := range group {
			for i := range way {
				if err := check(&way[i], wayNumber(group, g, w)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// isNamedBefore reports whether a claim before this one names a state in common with it that they may not share.
func (op *Op) isNamedBefore(claim *Claim, number uint16) bool {
	if claim == &op.Claim {
		return false
	}
	if op.Policy != nil && op.overlaps(claim) {
		return true
	}
	for i := range op.And {
		if other := &op.And[i]; other == claim {
			return false
		} else if other.overlaps(claim) {
			return true
		}
	}
	for g, group := range op.Groups() {
		for w, way := range group {
			for i := range way {
				other := &way[i]
				if other == claim {
					return false
				}
				if !other.overlaps(claim) {
					continue
				}
				if !areAlternatives(wayNumber(group, g, w), number) || !other.Policy.agrees(claim.Policy) {
					return true
				}
			}
		}
	}
	return false
}

// overlaps reports whether two claims name a state in common.
func (c *Claim) overlaps(d *Claim) bool { return c.Key == d.Key && c.Policy.overlaps(d.Policy) }

// validate reports the first fault of a claim under a verb.
func (c *Claim) validate(verb Verb) error {
	if c.Policy == nil {
		return Invalid("policy", "nil", "a policy made by NewPolicy")
	}
	if len(c.Key) == 0 || len(c.Key) > bounds.MaxKeyBytes {
		return Invalid("key", c.Key, fmt.Sprintf("1 to %d bytes", bounds.MaxKeyBytes))
	}
	if c.Keep < 0 || c.Keep > bounds.MaxPermits {
		return Invalid("keep", c.Keep, fmt.Sprintf("0 to %d", bounds.MaxPermits))
	}
	if c.Keep > 0 && c.Policy.denials {
		return Invalid("keep", c.Keep, "0 for a policy with a limit that counts denials")
	}
	if verb <= VerbTry && c.Policy.concurrent {
		return Invalid("the operation", verb.String(),
			"reserve (Limiter.Reserve, POST /api/v1/rate-limit/reserve), since the policy has a concurrency limit, "+
				"whose permits are held and come back")
	}
	switch verb {
	case VerbReset, VerbCancel, VerbDrop, VerbList:
	case VerbReserve:
		if err := c.Policy.canHold(); err != nil {
			return err
		}
		if c.Permits < 1 {
			return Invalid("permits", c.Permits, "1 or more")
		}
	case VerbCommit:
		if c.Permits < 0 {
			return Invalid("permits", c.Permits, "0 or more")
		}
	case VerbSettle:
		if c.Permits < 0 && c.Policy.leaky {
			return Invalid("permits", c.Permits, "1 or more: a leaky bucket can't be refunded, its turns were handed out")
		}
	case VerbTake, VerbTry, VerbPeek:
		if c.Permits < 1 {
			return Invalid("permits", c.Permits, "1 or more")
		}
	}
	return nil
}

// A Result is the answer to one operation of a batch.
type Result struct {
	Decision Decision
	Err      error
}

// A Scope says whose state [Store.ResetAll] clears. The zero value is the policies with the name "".
type Scope struct {
	// All is all clients of all policies. Default: false, those of Policy.
	All bool
	// Policy names the policies, whatever the names and parameters of their limits were and are. Not used with All.
	Policy string
}

// String describes the scope, for errors and logs.
func (s Scope) String() string {
	if s.All {
		return "all policies"
	}
	return fmt.Sprintf("policy %q", s.Policy)
}

// Shards are the parts of a store that fail apart from each other. The zero value is one part, and that the store does
// not find out by itself when it can't be reached: who needs to know watches its calls.
type Shards struct {
	// Count is the number of parts. Default: 0, see above.
	Count int
	// Of is the part that decides about a key, from 0 up to Count, exclusive. Not needed for one part.
	Of func(key string) int
}

// A Store holds state and decides operations atomically, by its own clock. Its
// methods are safe for concurrent use. Once a method has returned, for whatever reason,
// the store does not touch what it was given: operations, results and Each.
//
// For [Limiter.ReserveWait] a store may have a method Wake(key string, policy *Policy, wake func()) (stop func()), too:
// it calls wake when permits of the key under the policy may have come back before their time, since a hold has ended,
// until stop is called; from other goroutines, and wake does not block.
type Store interface {
	// Decide carries out one operation. An error wraps ErrInvalid when the operation
	// is at fault (nothing was consumed), ErrUnavailable when the store could not
	// decide (whether permits were consumed is not known), or is the context's.
	Decide(ctx context.Context, op Op) (Decision, error)
	// Take is Decide of an operation that takes permits of one policy, with nothing else in it. It is
	// the most frequent call, and copies no operation. A store whose Watch returns shards waits for
	// at most the timeout that Watch was given. A store that wraps another forwards the call.
	Take(ctx context.Context, policy *Policy, key string, permits int64) (Decision, error)
	// DecideAll carries out operations in order, each alone, in as few round trips as
	// the store can; results[i] answers ops[i]. results must be as long as ops.
	DecideAll(ctx context.Context, ops []Op, results []Result)
	// ResetAll clears the state of all clients of a policy, or of all policies. The verb Reset is for single clients.
	// A name that the store does not know is no error.
	//
	// A reset is one step, whatever it resets: its cost does not grow with the number of
	// clients. It is in force at once. A decision that begins after the reset has returned
	// without an error sees nothing of what was before the reset began, in every process that
	// shares the store. A decision that is under way meanwhile sees what was, or what is new;
	// what it takes may be reset or stay. What a store decides in one step it never decides by a
	// mix of both. Permits that were leased or reserved before a reset do not come back into what is new.
	//
	// An error wraps ErrInvalid when the store can't do it, ErrUnavailable when it failed, or is
	// the context's. With ErrUnavailable or the context's error the reset may have been carried
	// out, also in a part of the store only. Doing it again completes it.
	ResetAll(ctx context.Context, scope Scope) error
	// Watch makes the store call unreachable for each of its parts that can't be reached for the timeout, once until it
	// has answered a call again, and returns the parts, which do not change. It does not call unreachable before it has
	// returned; later calls may be concurrent. It is called once, before any operation; package failover does so.
	Watch(timeout time.Duration, unreachable func(shard int, cause error)) Shards
}
