package enforce

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// Reserve decides a request as DecideNow does, and holds what it costs until [stint.Reservation.Commit]
// says what that was in the end: of the limits whose cost requests may name; if there is none, of those of rules that
// count by answers; if there is none, of all. The others keep what they took. Rules with a concurrency limit, and those
// that count by answers, hold for it, and for nothing else. The
// reservation is nil if the request is denied, or no limit holds for it. Where limits of several rules
// are equal, the deciding one is the first by the rules' IDs, not by priority. Rules in shadow are
// decided as by DecideNow, but for those with a concurrency limit. Errors are Decide's, and those of
// [stint.Limiter.Reserve].
func (l *Limiter) Reserve(
	ctx context.Context,
	r *rules.Request,
	hold stint.Hold,
	v *Verdict,
) (reservation *stint.Reservation, err error) {
	defer func() { _ = v.clearOnError(err) }()
	if err := checkHold(&hold, true); err != nil {
		return nil, err
	}
	if err := l.Steps().Prepare(r, v, stint.VerbReserve); err != nil || !v.Allowed {
		return nil, err
	}
	if len(v.claims) > 0 {
		v.describeHold(&hold)
		op := v.on(stint.VerbReserve, &v.Hold)
		var d stint.Decision
		if reservation, d, err = stint.Reserve(ctx, l.store, op, v.asked(), hold); err == nil {
			d = l.awaitEnds(ctx, v, d)
		}
		if err = v.note(d, err); err != nil {
			return nil, err
		}
	}
	claims := v.claims
	v.claims = nil // which have been decided
	if len(v.shadows) > 0 {
		_ = l.decide(ctx, v, stint.VerbTake, true) // which changes nothing for the request
	}
	v.claims = claims
	return reservation, nil
}

// checkHold reports what is wrong with the ID and the TTL of a hold, also where no limit holds for the request, so that
// no store says it. An ID of "" is random if it may be.
func checkHold(h *stint.Hold, random bool) error {
	switch {
	case !bounds.IsHoldID(h.ID) && (h.ID != "" || !random):
		return stint.Invalid("id", h.ID, bounds.HoldIDs)
	case h.TTL != 0 && !bounds.IsHoldTTL(h.TTL):
		return stint.Invalid("ttl", h.TTL, bounds.HoldTTLs)
	}
	return nil
}

// End commits or cancels what Reserve holds for a request, by the hold's ID: what ends it where the
// reservation is not at hand. The request has to match the rules that it matched then; of are their
// IDs in any order, such as the verdict's Matched of the Reserve, so that rules which match only
// now don't count. nil stands for all that match now. A ban is no obstacle. actual is what it cost,
// of the limits of which Reserve says so; below 0 it is what the rules say that this request costs. status
// is what it was answered with, for a commit by rules that count by answers: one that does not count gets
// back what it took. 0 is not known, and counted. vias are what [Verdict.Vias] said of the Reserve, or
// under "" what its Via was: a hold that the store has lost is charged by that way of the first rule with
// ways, without it by the first way. The verdict tells what was applied, and hold what became of it.
// Errors are those of [stint.Reservation.Commit]: ErrUnknownReservation also if no limit holds for the
// request, and ErrOtherClaims if others do than at the Reserve, since a rule came, went, or has other limits.
func (l *Limiter) End(
	ctx context.Context,
	r *rules.Request,
	verb stint.Verb,
	hold *stint.HoldOp,
	actual int64,
	status int,
	of []string,
	vias map[string]string,
	v *Verdict,
) (err error) {
	defer func() { _ = v.clearOnError(err) }()
	if err := checkHold(&hold.Hold, false); err != nil {
		return err
	}
	if err := l.Steps().Prepare(r, v, verb); err != nil {
		return err
	}
	if of != nil { // only these of the rules that match now
		v.Matched = slices.DeleteFunc(v.Matched, func(id string) bool { return !slices.Contains(of, id) })
		v.claims = slices.DeleteFunc(v.claims, func(c Claimed) bool { return !slices.Contains(of, c.Rule.ID) })
	}
	v.sortClaims()
	if len(v.claims) == 0 { // it has no hold that could end
		why := "no limit holds for the request"
		if v.Outcome == rules.Lacking {
			why = "rule " + v.Rule.ID + ": " + v.lacking()
		}
		return prefix.Errorf("%w: %s", stint.ErrUnknownReservation, why)
	}
	if hold.Via, err = v.wayOf(vias); err != nil {
		return err
	}
	v.markAsked()
	for i := range v.claims {
		c := &v.claims[i]
		if actual >= 0 && c.Asked {
			c.Claim.Permits = actual
		}
		if status > 0 && !c.Rule.Count.Has(status) {
			c.Claim.Permits = 0
		}
	}
	v.describeHold(&hold.Hold)
	v.Outcome, v.byDefault = rules.Limited, false // whatever denies now
	op := v.on(verb, hold)
	d, err := l.store.Decide(ctx, op)
	if errors.Is(err, stint.ErrOtherClaims) {
		err = prefix.Errorf("%w than the rules have for the request", err)
	}
	return v.note(d, err)
}

// wayOf is the number of the way of the first rule with ways that vias name; 0 if they name none.
func (v *Verdict) wayOf(vias map[string]string) (number uint8, err error) {
	for r := range v.byRule() {
		if r.claims[0].Via == "" {
			continue
		}
		via := cmp.Or(vias[r.claims[0].Rule.ID], vias[""])
		if via == "" {
			break
		}
		_, err := chosen(r.claims, "via", via)
		return uint8(max(0, waysOf(r.claims).find(via))), err // #nosec G115 -- at most 8
	}
	return 0, nil
}

// sortClaims sorts by the rules' IDs, since a hold ends by the claims of its reserve in their order.
// Priorities may have changed by then.
func (v *Verdict) sortClaims() {
	slices.SortStableFunc(v.claims, func(a, b Claimed) int { return strings.Compare(a.Rule.ID, b.Rule.ID) })
	v.order()
}

// describeHold completes a hold by what the rules say that hold for the request.
func (v *Verdict) describeHold(hold *stint.Hold) {
	longest := time.Duration(0)
	for i := range v.claims {
		r := &v.claims[i].Rule.Reserve
		longest = max(longest, r.TTL)
		hold.OnExpiry = hold.OnExpiry || r.OnExpiry == rules.Keep || stint.Expiry(v.claims[i].countsAnswers())
	}
	hold.TTL = cmp.Or(hold.TTL, longest)
}
