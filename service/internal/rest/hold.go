package rest

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// hold begins a hold or ends it, by a key and a target or by the rules that match a request: it reads what a request
// says of its hold, and hands it to the one of the four that it asks for. A reserve may name a TTL, and a commit the
// expiresAt that the reserve answered: with it a hold that the store has lost is charged nevertheless.
func hold(verb stint.Verb, allowed member) func(*Service, http.ResponseWriter, *http.Request) error {
	return func(s *Service, w http.ResponseWriter, r *http.Request) error {
		return s.manage(w, r, 0, allowed, func(r *http.Request, e *evaluation, q *request) error {
			h, err := q.holdOf()
			if err != nil {
				return err
			}
			switch byRules := q.has(settledMembers | rulesMember | viaMembers | statusMember); {
			case byRules && s.rulesState() == follow.Unknown:
				return errRulesUnknown()
			case byRules && verb == stint.VerbReserve:
				return s.reserveByRules(w, r, e, q, h)
			case byRules:
				err = s.endByRules(w, r, e, q, verb, h)
			case verb == stint.VerbReserve:
				return s.reserveKey(w, r, q, h)
			default:
				err = s.endKey(w, r, q, verb, h)
			}
			if errors.Is(err, stint.ErrUnknownReservation) && verb == stint.VerbCommit && !q.has(expiresAtMember) {
				known := *problem.Of(err)
				known.Detail += fmt.Sprintf(": id %q. With the expiresAt of its reserve, a hold that the store has lost is charged",
					problem.Short(q.id))
				return &known
			}
			return err
		})
	}
}

// holdOf reads what a request says of its hold. The store judges the ID.
func (q *request) holdOf() (*stint.HoldOp, error) {
	h := &stint.HoldOp{Hold: stint.Hold{ID: q.id}}
	if q.has(ttlMember) {
		var err error
		if h.TTL, err = notation.ParseDuration(q.ttl); err != nil || !bounds.IsHoldTTL(h.TTL) {
			return nil, stint.Invalid("ttl", problem.Short(q.ttl), bounds.HoldTTLs)
		}
	}
	switch q.onExpiry {
	case "", string(rules.Release):
	case string(rules.Keep):
		h.OnExpiry = stint.ChargeOnExpiry
	default:
		return nil, stint.Invalid("onExpiry", problem.Short(q.onExpiry), "release or keep")
	}
	if q.has(expiresAtMember) {
		at, err := parseInteger(q.expiresAt)
		if err != nil || at < 0 {
			return nil, stint.Invalid("expiresAt", problem.Short(q.expiresAt),
				"microseconds since the Unix epoch, as the reserve answered")
		}
		h.ExpiresAt = stint.Instant(at)
	}
	return h, nil
}

// actual is what a commit says the hold cost; of a cancel 0.
func (q *request) actual(verb stint.Verb) (int64, error) {
	if verb == stint.VerbCancel {
		return 0, nil
	}
	n, err := parseInteger(q.permits)
	if err != nil || n < 0 {
		return 0, stint.Invalid("permits", problem.Short(q.permits), "an integer of at least 0")
	}
	return n, nil
}

// answered is the status that a commit says the request was answered with; 0 if it does not.
func (q *request) answered() (int, error) {
	if !q.has(statusMember) {
		return 0, nil
	}
	n, err := parseInteger(q.status)
	if err != nil || n < 100 || n > 599 {
		return 0, stint.Invalid("status", problem.Short(q.status), "an HTTP status, 100 to 599")
	}
	return int(n), nil
}

// reserveKey begins a hold of a key's target. It answers 200 with the instant at which the hold
// expires unless it is renewed, and 429 when it is denied.
func (s *Service) reserveKey(w http.ResponseWriter, r *http.Request, q *request, h *stint.HoldOp) error {
	t, claim, err := s.claim(r, q)
	if err != nil {
		return err
	}
	op := stint.Op{
		Verb: stint.VerbReserve, Claim: claim, Extra: &stint.Extra{Hold: h}, Each: make([]stint.Outcome, t.Policy.Len()),
	}
	start := time.Now()
	d, err := s.decide(r.Context(), op)
	if err != nil {
		return s.refused(t.Least, err)
	}
	d.Full = h.Full
	var event stint.Event
	s.observeCheck(w, r, &event, t, &claim, &d, start, time.Since(start))
	t.headers.Write(w.Header(), d, op.Each)
	response := api.ReserveResponse{}
	t.fill(&response.CheckResponse, &claim, &d)
	return answerReserve(w, r, &response, h, http.StatusTooManyRequests)
}

// answerReserve answers what became of a hold.
func answerReserve(
	w http.ResponseWriter, r *http.Request, response *api.ReserveResponse, h *stint.HoldOp, denied int,
) error {
	response.ID, response.Replayed, response.Lost = h.ID, h.Replayed, h.Lost
	status := denied
	if response.Allowed {
		response.ExpiresAt, status = int64(h.ExpiresAt), http.StatusOK
	}
	if status == http.StatusUnauthorized {
		w.Header()["Www-Authenticate"] = noCredentials
	}
	problem.AnswerJSON(w, r, status, response.AppendJSON(nil))
	return nil
}

// reserveByRules begins the holds that the rules which match a request demand. The caller names the
// ID: it is what all of them are known by, so that a retry of the same reserve is recognised.
func (s *Service) reserveByRules(
	w http.ResponseWriter, r *http.Request, e *evaluation, q *request, h *stint.HoldOp,
) error {
	if named := q.present & (permitsMember | keepMember); named != 0 {
		return stint.Invalid("parameter", named.String(), "none beside a request, of which the rules say what it costs")
	}
	if h.ID == "" { // which would stand for a random one, and nobody could end that hold
		return stint.Invalid("id", "", bounds.HoldIDs)
	}
	v := &e.verdict
	start := time.Now()
	_, err := s.rules.Reserve(r.Context(), &e.request, h.Hold, v)
	elapsed := time.Since(start)
	if err != nil || v.Decision.Degraded {
		if err = s.storeError(r.Context(), stint.VerbReserve, err); err != nil {
			s.undecided(v.Claims(), err)
			return err
		}
	}
	s.observeVerdict(r.Context(), requestID(w), e, start, elapsed)
	s.describe(w.Header(), e)
	e.answer()
	e.response.Vias = e.vias()
	denied := http.StatusTooManyRequests
	if v.Unauthenticated() {
		denied = http.StatusUnauthorized
	}
	e.response.Matched = append([]string{}, v.Matched...)
	v.Hold.ID = h.ID // also where no limit holds for the request
	return answerReserve(w, r, &api.ReserveResponse{EvaluateResponse: e.response}, &v.Hold, denied)
}

// endKey commits or cancels a hold of a key's target: it costs the actual amount, and what was held
// beyond that is given back. A cancel costs 0.
func (s *Service) endKey(w http.ResponseWriter, r *http.Request, q *request, verb stint.Verb, h *stint.HoldOp) error {
	actual, err := q.actual(verb)
	if err != nil {
		return err
	}
	rest, applied, err := s.settleKey(r, q, actual, stint.Op{Verb: verb, Extra: &stint.Extra{Hold: h}})
	if err != nil {
		return err
	}
	return problem.Answer(w, r, http.StatusOK, endResponse(&rest, applied, h))
}

// endByRules ends a hold of a request. A commit without permits costs what the rules say that the
// request does. Rules that count by answers do so by its status.
func (s *Service) endByRules(
	w http.ResponseWriter,
	r *http.Request,
	e *evaluation,
	q *request,
	verb stint.Verb,
	h *stint.HoldOp,
) error {
	actual := int64(-1)
	if verb == stint.VerbCancel || q.has(permitsMember) {
		var err error
		if actual, err = q.actual(verb); err != nil {
			return err
		}
	}
	status, err := q.answered()
	if err != nil {
		return err
	}
	v := &e.verdict
	if err := s.rules.End(r.Context(), &e.request, verb, h, actual, status, q.rules, q.vias, v); err != nil {
		return s.storeError(r.Context(), verb, err)
	}
	c := checkResponse(v.Claim.Key, v.Limit(), &v.Decision, "")
	rest := restOf(&c)
	response := endResponse(&rest, v.Decision.Applied, h)
	response.Matched, response.Rule = append([]string{}, v.Matched...), v.Rule.ID
	return problem.Answer(w, r, http.StatusOK, response)
}

// endResponse is what became of the hold: what was applied to the limits, and whether it came late
// (after the hold expired), again, or after a reset of its key.
func endResponse(rest *api.Rest, applied int64, h *stint.HoldOp) api.HoldEndResponse {
	return api.HoldEndResponse{Rest: rest, ID: h.ID, Applied: applied, Late: h.Late, Replayed: h.Replayed, Reset: h.Reset}
}

// holdError answers what a store says of a hold, nil if it says nothing.
func holdError(err error) error {
	e := &problem.Error{Status: http.StatusConflict, Cause: err}
	switch {
	case errors.Is(err, stint.ErrResolved):
		e.Type = apipath.ProblemHoldResolved
	case errors.Is(err, stint.ErrOtherClaims):
		e.Type = apipath.ProblemHoldOtherClaims
	case errors.Is(err, stint.ErrUnknownReservation):
		e.Status, e.Type = http.StatusNotFound, apipath.ProblemHoldUnknown
	default:
		return nil
	}
	e.Detail = prefix.Trim(err.Error())
	return e
}
