// Package adapt has what the adapters of HTTP and of gRPC have in common, so that they decide alike: a [Server] decides
// the requests that a middleware gets, and a [Client] paces the calls that a program makes. Their callers turn requests
// into keys, costs and descriptions, and decisions into answers.
package adapt

import (
	"context"
	"errors"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/running"
	"github.com/stint-go/stint/rules"
)

// A Server is by what a middleware decides: by one limiter of plain limits, by rules, or, with neither, by limiters
// that each request has of its own.
type Server struct {
	Limiter *stint.Limiter
	Rules   enforce.Decider
	Reserve *stint.Hold // nil: requests take
	// Count says of a request by plain limits whether it is counted, by its answer; nil: it is. Not without Reserve.
	Count func(status int) bool
}

// A holder decides requests by rules, and holds what they cost: an enforce.Limiter.
type holder interface {
	Reserve(context.Context, *rules.Request, stint.Hold, *enforce.Verdict) (*stint.Reservation, error)
}

// Holding is how requests hold what they cost of which some are counted by their answers: by default as of a hold, and
// charged if they end without one.
func Holding(reserve *stint.Hold) *stint.Hold {
	var hold stint.Hold
	if reserve != nil {
		hold = *reserve
	}
	hold.OnExpiry = stint.ChargeOnExpiry
	return &hold
}

// Functions says which functions a configuration has.
type Functions struct {
	LimiterOf, Key, Cost, Describe, Count bool
}

// Faults are all that is wrong with a configuration. clients says that it tells how addresses are found.
func (s *Server) Faults(f Functions, clients bool) (faults []error) {
	faults = append(faults, s.holdFaults()...)
	ways := 0
	for _, set := range []bool{s.Limiter != nil, f.LimiterOf, s.Rules != nil} {
		if set {
			ways++
		}
	}
	if ways == 0 {
		faults = append(faults, stint.Invalid("Limiter", "nil", "a limiter made by stint.New, or LimiterOf, or Rules"))
	}
	if ways > 1 {
		faults = append(faults, stint.Invalid("Limiter", "several", "one of Limiter, LimiterOf and Rules"))
	}
	if f.Key && clients {
		faults = append(faults, stint.Invalid("Clients", "set", "nil when there is a key function, which is asked instead"))
	}
	return append(faults, f.faults(s.Limiter != nil || f.LimiterOf, s.Rules != nil)...)
}

// faults are those of functions that nothing would call.
func (f Functions) faults(plain, byRules bool) (faults []error) {
	if f.Key && byRules {
		faults = append(faults, stint.Invalid("Key", "set", "nil with rules, whose scopes say whom they count"))
	}
	if f.Cost && !plain {
		faults = append(faults, stint.Invalid("Cost", "set", "nil without plain limits; rules say what a request costs"))
	}
	if f.Count && byRules {
		faults = append(faults, stint.Invalid("Count", "set", "nil with rules, whose count says which answers count"))
	}
	if f.Describe && !byRules {
		faults = append(faults, stint.Invalid("Describe", "set", "nil without rules"))
	}
	return faults
}

// errZero is why a limiter decides nothing that is the zero value of its type.
var errZero = stint.Invalid("Limiter", "the zero value", "one that stint.New or NewLimiter made")

// holdFaults are what is wrong with how requests hold what they cost.
func (s *Server) holdFaults() (faults []error) {
	switch {
	case s.Limiter != nil && s.Limiter.Policy() == nil:
		faults = append(faults, errZero)
	case s.Limiter != nil && s.Reserve == nil && s.Limiter.Policy().NeedsReserve():
		faults = append(faults, stint.Invalid("Reserve", "nil", "a hold, since the limiter has a concurrency limit"))
	}
	if s.Reserve == nil {
		return faults
	}
	for i := 0; s.Count != nil && s.Limiter != nil && s.Limiter.Policy() != nil && i < s.Limiter.Policy().Len(); i++ {
		l := s.Limiter.Policy().Limit(i)
		if err := l.CanHold(); err != nil {
			faults = append(faults, prefix.Errorf("Count: limit %d: %w", i, err))
		}
	}
	if _, holds := s.Rules.(holder); s.Rules != nil && !holds {
		faults = append(faults, stint.Invalid("Reserve", "set", "nil, as these rules hold nothing, or rules of enforce.New"))
	}
	if s.Reserve.ID != "" {
		faults = append(faults, stint.Invalid("Reserve.ID", s.Reserve.ID, "none: each request has a hold of its own"))
	}
	return faults
}

// limiterOf is what a function says whose request has a limiter of its own. Its errors that don't wrap
// stint.ErrInvalid wrap stint.ErrUnavailable.
func limiterOf(limiter *stint.Limiter, err error, holds bool) (*stint.Limiter, error) {
	switch {
	case err == nil && limiter != nil && limiter.Policy() == nil:
		err = prefix.Errorf("%w: LimiterOf has returned the zero limiter", stint.ErrUnavailable)
	case err == nil && limiter != nil && !holds && limiter.Policy().NeedsReserve():
		err = prefix.Errorf("%w: LimiterOf has returned a concurrency limit, and Reserve is nil", stint.ErrUnavailable)
	case err != nil && !errors.Is(err, stint.ErrInvalid):
		err = prefix.Errorf("%w: LimiterOf: %w", stint.ErrUnavailable, err)
	}
	if err != nil {
		return nil, err
	}
	return limiter, nil
}

// DecideByRules decides by rules. They may have a request wait only where mayWait says so. cost holds what it costs;
// nil: it takes.
func (s *Server) DecideByRules(ctx context.Context, mayWait bool, cost *running.Cost, e *Evaluation) error {
	v := &e.Verdict
	switch by, holds := s.Rules.(holder); {
	case holds && cost != nil:
		hold, err := by.Reserve(ctx, &e.Request, *s.Reserve, v)
		cost.Holds(hold, v.Decision.At, v.Hold.TTL)
		if hold != nil {
			noteClaims(cost, v.Claims())
		}
		return err
	case mayWait:
		return s.Rules.Decide(ctx, &e.Request, v)
	}
	return s.Rules.DecideNow(ctx, &e.Request, v)
}

// noteClaims notes how the end of a request is charged, if that depends on its answer.
func noteClaims(cost *running.Cost, claims []enforce.Claimed) {
	if !slices.ContainsFunc(claims, func(c enforce.Claimed) bool { return len(c.Rule.Count.Status) > 0 }) {
		return
	}
	for i := range claims {
		c := &claims[i]
		cost.Claims = append(cost.Claims, running.Claim{Counts: c.Rule.Count.Has, Asked: c.Asked})
	}
}

// Running is the cost of a request that is to hold it; nil if requests take.
func (s *Server) Running() *running.Cost {
	if s.Reserve == nil {
		return nil
	}
	return &running.Cost{Count: s.Count}
}
