package rest

import (
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// A keyed is a request about a key by its query, whose work has begun.
type keyed struct {
	*http.Request
	asked  request
	work   capacity.Ticket
	target *target
	claim  stint.Claim
}

// askKey reads a query about a key that is as much work as so many operations, of those who may; nil is everybody. Its
// work is to be left.
func (s *Service) askKey(r *http.Request, allowed member, operations int, may func(*http.Request) error) (
	k keyed, err error,
) {
	if k.asked, err = parseQuery(r.URL.RawQuery, allowed); err == nil && may != nil {
		err = may(r)
	}
	if err != nil {
		return k, err
	}
	if k.Request, k.work, err = s.enter(r, capacity.CostOf(operations, len(r.URL.RawQuery))); err != nil {
		return k, err
	}
	if k.target, k.claim, err = s.claim(k.Request, &k.asked); err != nil {
		k.work.Leave()
	}
	return k, err
}

// remaining tells what a check would be told, without taking. It answers 200 also when a take would
// be denied: the body says so. Nothing is counted as a decision.
func (s *Service) remaining(w http.ResponseWriter, r *http.Request) error {
	k, err := s.askKey(r, costMembers|detailsMember, 1, nil)
	if err != nil {
		return err
	}
	defer k.work.Leave()
	t, claim := k.target, k.claim
	op := stint.Op{Verb: stint.VerbPeek, Claim: claim}
	if k.asked.details {
		op.Each = make([]stint.Outcome, t.Policy.Len())
	}
	d, err := s.decide(k.Context(), op)
	if err != nil {
		return err
	}
	var c api.CheckResponse
	t.fill(&c, &claim, &d)
	return problem.Answer(w, r, http.StatusOK, api.RemainingResponse{
		Rest: restOf(&c), Allowed: c.Allowed,
		RetryAfterSeconds: c.RetryAfterSeconds, RetryAfterMicros: c.RetryAfterMicros,
		DelayMicros: c.DelayMicros, Source: c.Source, Details: limitDetails(&claim, op.Each, d.At),
	})
}

// restOf is what of a decision's description is about the state.
func restOf(c *api.CheckResponse) api.Rest {
	return api.Rest{
		Key: c.Key, Policy: c.Policy, Algorithm: c.Algorithm, Limit: c.Limit, Remaining: c.Remaining,
		ResetAfterSeconds: c.ResetAfterSeconds, ResetAfterMicros: c.ResetAfterMicros, At: c.At,
	}
}

// reset clears the state of a key: of one target, or in one operation of all of them. It is one
// operation for the store, so that no decision in between sees some of the targets reset and others
// not.
func (s *Service) reset(w http.ResponseWriter, r *http.Request) error {
	all := s.targets.Load().all
	k, err := s.askKey(r, claimMembers, len(all), s.authority.mayManage)
	if err != nil {
		return err
	}
	defer k.work.Leave()
	t, claim := k.target, k.claim
	op := stint.Op{Verb: stint.VerbReset, Claim: claim}
	response := api.ResetResponse{Key: claim.Key, Policy: t.name, Reset: true}
	switch {
	case k.asked.has(algorithmMember):
		response.Algorithm = t.Policy.Limit(0).Algorithm.String()
	case !k.asked.has(policyMember):
		op.Policy = all[0].Policy
		for _, other := range all[1:] {
			op.And = append(op.And, stint.Claim{Key: claim.Key, Policy: other.Policy})
		}
	}
	if _, err := s.decide(k.Context(), op); err != nil {
		return err
	}
	return problem.Answer(w, r, http.StatusOK, response)
}

// settle charges or refunds after the fact.
func (s *Service) settle(w http.ResponseWriter, r *http.Request) error {
	return s.manage(w, r, 0, claimMembers|permitsMember|evaluationMembers|viaMembers, func(
		r *http.Request, e *evaluation, q *request,
	) error {
		permits, err := parseInteger(q.permits)
		if err != nil {
			return stint.Invalid("permits", problem.Short(q.permits), "any integer of 64 bits")
		}
		if q.has(evaluationMembers | viaMembers) {
			return s.settleRules(w, r, e, q, permits)
		}
		rest, applied, err := s.settleKey(r, q, permits, stint.Op{Verb: stint.VerbSettle})
		if err != nil {
			return err
		}
		return problem.Answer(w, r, http.StatusOK, api.SettleResponse{Rest: rest, Applied: applied})
	})
}

// viaOf reads by which way rules charged a request. It is a text for a request that one rule
// charged, or an object with a text for each rule. Rules may be named once.
func (s *scanner) viaOf(q *request, m member, name string) error {
	read := func(name, rule string) error {
		via, err := s.Text(name)
		switch {
		case err != nil:
			return err
		case via == "":
			return stint.Invalid(problem.Short(name), via, "by what the rule charged the request, as the evaluation answered")
		}
		if q.vias == nil {
			q.vias = map[string]string{}
		}
		if _, twice := q.vias[rule]; twice {
			return errRepeated(name)
		}
		q.vias[rule] = via
		return nil
	}
	if m == viaMember {
		return read(name, "")
	}
	if s.Next() != '{' {
		return s.Mistyped(name, "an object")
	}
	return s.Members(func(rule string) error {
		if rule == "" {
			return stint.Invalid("vias", rule, "the IDs of rules")
		}
		return read("vias."+rule, rule)
	})
}

// manage reads a body about a key or a request that is described, of whoever may manage, and has do answer it. asked
// are the parameters that the query may have.
func (s *Service) manage(
	w http.ResponseWriter,
	r *http.Request,
	asked, allowed member,
	do func(*http.Request, *evaluation, *request) error,
) error {
	if err := s.authority.mayManage(r); err != nil {
		return err
	}
	text, details, err := s.readMembers(w, r, asked)
	if err != nil {
		return err
	}
	defer text.Release()
	return s.withEvaluation(r, capacity.CostOf(1, len(text.Text)), func(r *http.Request, e *evaluation) error {
		e.asked, err = e.read(text.Text, allowed, s.clients)
		if err == nil {
			err = s.authority.mayNameSet(&e.request)
		}
		if err != nil {
			return err
		}
		e.asked.details = details
		return do(r, e, &e.asked)
	})
}

// settleKey settles what one target decided about a key, or ends a hold of it, as the operation says, and describes the
// state. The permits may be negative, which gives back. They are no check's, so that the bound of a check's permits
// does not hold for them; the store says what it could apply.
func (s *Service) settleKey(r *http.Request, q *request, permits int64, op stint.Op) (
	rest api.Rest, applied int64, err error,
) {
	q.present &^= permitsMember // which a check bounds
	t, claim, err := s.claim(r, q)
	if err != nil {
		return rest, 0, err
	}
	claim.Permits = permits
	op.Claim = claim
	if err := op.Validate(); err != nil {
		return rest, 0, err
	}
	d, err := s.decide(r.Context(), op)
	if err != nil {
		return rest, 0, err
	}
	var c api.CheckResponse
	t.fill(&c, &claim, &d)
	return restOf(&c), d.Applied, nil
}

// settleRules settles what rules decided about a request. A settlement goes to the limits that
// charged the request: by the via that the evaluation answered, as a class or another way of a rule
// may have paid.
func (s *Service) settleRules(
	w http.ResponseWriter,
	r *http.Request,
	e *evaluation,
	q *request,
	permits int64,
) (err error) {
	switch {
	case s.rulesState() == follow.Unknown:
		return errRulesUnknown()
	case q.has(waitMember):
		return stint.Invalid("parameter", "wait", "none in a settlement, which waits for nothing")
	}
	v := &e.verdict
	if err = s.rules.Settle(r.Context(), &e.request, permits, q.vias, v); err == nil && v.Decision.Degraded {
		err = stint.ErrUnavailable
	}
	if err != nil {
		return s.storeError(r.Context(), stint.VerbSettle, err)
	}
	response := api.SettleRulesResponse{Matched: append([]string{}, v.Matched...), Applied: v.Decision.Applied}
	if v.Claim.Policy != nil {
		c := checkResponse(v.Claim.Key, v.Limit(), &v.Decision, "")
		rest := restOf(&c)
		response.Rest, response.Rule = &rest, v.Rule.ID
	}
	return problem.Answer(w, r, http.StatusOK, response)
}
