package stint

import (
	"context"
	"time"
)

// A Reason says why a request is denied. The zero value, "", is that it is not.
type Reason string

// The reasons. A [Limiter] knows those of limits and of holds, package enforce all of them.
const (
	ReasonLimit       Reason = "limit"        // a limit has too few permits left
	ReasonMinInterval Reason = "min_interval" // a limit has permits left, but the one before came too short a time ago
	ReasonNever       Reason = "never"        // the cost is above the limit itself
	ReasonBlocked     Reason = "blocked"      // the client was denied as often as a limit on denials says
	ReasonBanned      Reason = "banned"       // a rule bans the client
	ReasonMissing     Reason = "missing"      // the request lacks what a rule counts by
	ReasonDefault     Reason = "default"      // no rule holds for the request
	ReasonHolds       Reason = "holds"        // the client has as many holds as the store allows
)

// ReasonOf is why a limit's decision about so many permits denies. It is worked out from the
// decision, so that every store has the same reasons.
func ReasonOf(limit Limit, d *Decision, permits int64) Reason {
	least := limit.MinInterval
	switch {
	case d.Allowed:
		return ""
	case d.Full:
		return ReasonHolds
	case d.RetryAfter == Never:
		return ReasonNever
	case limit.Denials && !d.Degraded:
		return ReasonBlocked
	case least > 0 && d.RetryAfter <= least && (d.Remaining >= permits || limit.CountDenied && d.RetryAfter == least):
		return ReasonMinInterval // a denial that is counted may have taken the last permit
	default:
		return ReasonLimit
	}
}

// An Event describes one decision to its observers: metrics, a log, alerts. It is made once, when the
// decision is, and all observers get the same one. The zero value of a field means that it is not
// known, or does not apply.
type Event struct {
	// At is when the operation began, by this process's clock. Decision.At is the store's.
	At Instant
	// Elapsed is how long the store took. Default: 0, it was not asked.
	Elapsed time.Duration

	// Verb is what was asked.
	Verb Verb
	// Claim is what the deciding policy was asked: for whom, and at what cost. Its policy is nil when
	// no limit was asked; then its key is the client's address, if a rule denied. If a limit decided
	// that the rule shares with others, its key is still the client that the rule counts.
	Claim Claim
	// Rule names what decided: a rule by its ID. Of a policy, or an algorithm, that the service was asked for by name it
	// is policy/NAME or algorithm/NAME. It is "" of a limiter in a program, and when no rule holds for a request.
	Rule string
	// Set names the set that the rule belongs to.
	Set string
	// Class is the request's class, if the rule has classes.
	Class string
	// Via is by what the rule charged the request, or would have in shadow, such as "guaranteed":
	// package rules has a constant for each. It is "" of a denial, and of a rule that has its own
	// limits alone.
	Via string
	// Shadow says that this is what a rule in shadow would have decided. The request's own decision is told before.
	Shadow bool
	// Marked says that the rule marks an admitted request, for the limit of the decision: it does not fit it, or, if
	// the decision is allowed, has used as much of it as the rule's mark_at says. Shadow is set, too.
	Marked bool

	// Replayed says of a Reserve, Commit or Cancel that the hold was there, or had ended, before.
	Replayed bool

	// Decision is what was decided. Its index counts the limits of Claim.Policy. Only Allowed and RetryAfter say
	// something when no limit was asked.
	Decision Decision
	// Reason is why it was denied.
	Reason Reason
	// Err is why nothing was decided. Default: nil, it was decided.
	Err error

	// Method, Path and RequestID are the request's.
	Method, Path, RequestID string
	// Attributes are the request's. Observers must neither change them nor keep them. They may hold secrets, such as an
	// API key.
	Attributes map[string]string
}

// Limit is the one that decided; the zero Limit when none was asked.
func (e *Event) Limit() Limit {
	if e.Claim.Policy == nil {
		return Limit{}
	}
	return e.Claim.Policy.Limit(int(e.Decision.Index))
}

// Checked reports whether the event is a request that was decided, and not a look, a reset, a settlement, a rule in
// shadow or a failure.
func (e *Event) Checked() bool {
	return (e.Verb == VerbTake || e.Verb == VerbTry || e.Verb == VerbReserve && !e.Replayed) && e.Err == nil && !e.Shadow
}

// An Observer is told of every event, in the goroutine of the caller and before it has its answer: so it must not
// block, and must be safe for concurrent use. The event is its own until it returns, and must not be changed.
type Observer func(ctx context.Context, event *Event)
