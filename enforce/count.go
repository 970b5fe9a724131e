package enforce

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/rules"
)

// NewRunningCost is the cost of a request by plain limits that is counted only if count says so of the status of its
// answer; else it costs nothing. nil counts all, as the zero value does.
func NewRunningCost(count func(status int) bool) *RunningCost { return &RunningCost{count: count} }

// A claimEnd is how the end of a request is charged to one of its claims.
type claimEnd struct {
	count *rules.Count // of its rule
	asked bool         // whether the cost is what was said
}

// Counts reports whether what the request costs depends on the status of its answer: a middleware says it then.
func (c *RunningCost) Counts() bool { return c.hold != nil && (c.count != nil || c.claims != nil) }

// SetStatus says what the request was answered with, before End: the HTTP status, 500 of a panic, 499 of a client that
// has gone, 101 of an upgrade. Without it the request is counted.
func (c *RunningCost) SetStatus(status int) {
	c.status.Store(int64(status))
	c.answered.Store(true)
}

// Answer has a request of the context handled, and says by SetStatus what it was answered with. begun is the status of
// the answer that was begun; 0 of none. That counts, whatever the client does then, since it may know it already. A
// panic is 500, but that of a handler which gives up an answer that it has begun.
func (c *RunningCost) Answer(ctx context.Context, handle func(), begun func() int) {
	returned := false
	defer func() {
		var cause any
		if !returned { // or the goroutine ends
			cause = recover()
		}
		c.SetStatus(statusOf(ctx, begun(), returned, cause))
		if cause != nil {
			panic(cause) //nolint:forbidigo // it is the handler's, and goes on
		}
	}()
	handle()
	returned = true
}

// statusOf is what a request counts as, whose handler has returned, or left by a cause.
func statusOf(ctx context.Context, begun int, returned bool, cause any) int {
	err, _ := cause.(error)
	switch aborted := errors.Is(err, http.ErrAbortHandler); {
	case !returned && !aborted:
		return http.StatusInternalServerError
	case begun > 0:
		return begun
	case ctx.Err() != nil:
		const gone = 499 // as nginx has it
		return gone
	case aborted:
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// leaveOut has a commit give back what is not counted.
func (c *RunningCost) leaveOut(e *EndError) {
	if e.Verb != stint.VerbCommit || !c.answered.Load() {
		return
	}
	status := int(c.status.Load())
	if c.count != nil && !c.count(status) {
		e.Permits, e.held = 0, false
	}
	if c.claims == nil {
		return
	}
	said, permits, claims := !e.held, e.Permits, c.claims
	e.each = func(claim int, held int64) int64 {
		switch of := &claims[claim]; {
		case !of.count.Has(status):
			return 0
		case said && of.asked:
			return permits
		}
		return held
	}
}

// noteClaims notes how the end is charged, if that depends on the answer.
func (c *RunningCost) noteClaims(v *Verdict) {
	if c.hold == nil || !v.countsAnswers() {
		return
	}
	asked := v.Asked()
	for i := range v.claims {
		c.claims = append(c.claims, claimEnd{&v.claims[i].Rule.Count, asked[i]})
	}
}

// countsAnswers reports whether the rule counts requests by their answers.
func (c *Claimed) countsAnswers() bool { return len(c.Rule.Count.Status) > 0 }

// countsAnswers reports whether a rule that decides counts requests by their answers.
func (v *Verdict) countsAnswers() bool {
	return slices.ContainsFunc(v.claims, func(c Claimed) bool { return c.countsAnswers() })
}

// Asked says of each of the Claims whether its cost is what a commit says: of those whose cost requests may name; if
// there is none, of rules that count by answers; if there is none, of all.
func (v *Verdict) Asked() []bool {
	named, counts := slices.ContainsFunc(v.claims, func(c Claimed) bool { return c.Named }), v.countsAnswers()
	asked := make([]bool, len(v.claims))
	for i := range v.claims {
		c := &v.claims[i]
		asked[i] = c.Named || !named && (c.countsAnswers() || !counts)
	}
	return asked
}

// soon is when a request may come again that only permits held by requests under way deny: most of them come back.
const soon = time.Second

// awaitEnds corrects the waits of a denied Reserve: of limits that count by answers, and admit once the requests under
// way are not counted, it is soon. It asks what is held of them; where that can't be said, the wait stays. The decision
// is that of the limit with the longest wait. Places are left to package httplimit, which knows them by the limit.
func (l *Limiter) awaitEnds(ctx context.Context, v *Verdict, d stint.Decision) stint.Decision {
	if d.Allowed || d.Degraded || d.Full || !v.countsAnswers() {
		return d
	}
	v.Decision = d
	corrected := stint.Decision{Allowed: true}
	for r := range v.byRule() {
		outs := v.outcomesOf(r)
		for i := range r.claims {
			claim := &r.claims[i].Claim
			n := claim.Policy.Len()
			if r.claims[i].countsAnswers() {
				awaitEnds(claim, outs[:n], func() ([]stint.Hold, error) { return listHolds(ctx, l.store, claim) })
			}
			outs = outs[n:]
		}
		if of := v.decisionOf(r); !of.Allowed && (corrected.Allowed || of.RetryAfter > corrected.RetryAfter) {
			corrected = of
			corrected.Index += int16(r.first) // #nosec G115 -- MaxOpLimits
		}
	}
	corrected.Source = d.Source
	return corrected
}

// listHolds lists what is held of a claim.
func listHolds(ctx context.Context, store stint.Store, claim *stint.Claim) (live []stint.Hold, err error) {
	_, err = store.Decide(ctx, stint.Op{Verb: stint.VerbList, Claim: *claim, Extra: &stint.Extra{Live: &live}})
	return live, err
}

// awaitEnds corrects the waits of a claim's limits, by what list says that is held of them.
func awaitEnds(claim *stint.Claim, outs []stint.Outcome, list func() ([]stint.Hold, error)) {
	var live []stint.Hold
	for i := range outs {
		o, limit := &outs[i], claim.Policy.Limit(i)
		// What a limit takes by a cost of its own it keeps; a wait for an interval is for no permits.
		if o.Allowed || o.RetryAfter <= soon || o.RetryAfter == stint.Never || limit.Cost > 0 ||
			limit.Algorithm == stint.AlgorithmConcurrency || o.Remaining >= claim.Permits {
			continue
		}
		if live == nil {
			var err error
			if live, err = list(); err != nil || len(live) == 0 {
				return
			}
		}
		left := o.Remaining
		for _, h := range live {
			left += h.Permits[i]
		}
		if left >= claim.Permits {
			o.RetryAfter = soon
		}
	}
}

// awaitEndsPlain does so for a denial by plain limits, of which the verdict has the outcomes.
func (v *Verdict) awaitEndsPlain(ctx context.Context, limiter *stint.Limiter, d stint.Decision) stint.Decision {
	if d.Allowed || d.Degraded || d.Full {
		return d
	}
	awaitEnds(&v.Claim, v.Each, func() ([]stint.Hold, error) { return limiter.Holds(ctx, v.Claim.Key) })
	corrected := decide.Combine(v.Each, nil, d.At)
	corrected.Source = d.Source
	return corrected
}
