package rest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/strictjson"
)

// evaluate decides a request that the body describes by the rules that match it.
//
// Describing a request is as much as naming a key: the caller says who the client is. So it needs a
// token on listeners that others can reach.
func (s *Service) evaluate(w http.ResponseWriter, r *http.Request) error {
	return s.manage(w, r, detailsMember, evaluationMembers, func(r *http.Request, e *evaluation, q *request) error {
		if q.details { // a failure policy may leave the outcomes as they are
			e.verdict = enforce.Verdict{OnHold: e.verdict.OnHold}
		}
		if err := s.enforce(r.Context(), requestID(w), e); err != nil {
			return err
		}
		s.describe(w.Header(), e)
		w.Header()["Content-Type"] = jsonType
		e.answer()
		e.response.Vias = e.vias()
		if v := &e.verdict; q.details && v.Claim.Policy != nil {
			e.response.Details = limitDetails(&v.Claim, v.Each, v.Decision.At)
		}
		e.body = e.response.AppendJSON(e.body[:0])
		e.work.Leave()
		switch v := &e.verdict; {
		case v.Unauthenticated():
			deny(w, http.StatusUnauthorized)
		case !v.Allowed:
			deny(w, http.StatusTooManyRequests)
		}
		_, _ = w.Write(e.body) // a client that is gone has no use for the error
		return nil
	})
}

// withEvaluation calls do with an evaluation of the pool once its work may begin, and ends the work. If do fails, the
// evaluation does not go back: the store may still write to it.
func (s *Service) withEvaluation(r *http.Request, cost int64, do func(*http.Request, *evaluation) error) (err error) {
	e, _ := s.evaluations.Get().(*evaluation)
	e.describes()
	if r, e.work, err = s.enter(r, cost); err != nil {
		return err
	}
	done := false
	defer func() {
		e.work.Leave()
		if done && e.clear() {
			s.evaluations.Put(e)
		}
	}()
	err = do(r, e)
	done = err == nil
	return err
}

// enforce decides and counts. While the rules are unknown there is nothing to decide by: the
// request is admitted and marked as degraded, or answered 503 if rules are required. The time that
// it was kept waiting by a rule is not counted as the decision's.
func (s *Service) enforce(ctx context.Context, id string, e *evaluation) error {
	v := &e.verdict
	if s.rulesState() == follow.Unknown {
		if s.config.RulesRequired() {
			return errRulesUnknown()
		}
		*v = enforce.Verdict{Allowed: true, OnHold: v.OnHold, Matched: v.Matched[:0]}
		v.Decision.Degraded, v.Decision.Source = true, stint.SourceFailurePolicy
		return nil
	}
	start := time.Now()
	decide := s.rules.Decide
	if e.now {
		decide = s.rules.DecideNow
	}
	err := decide(ctx, &e.request, v)
	elapsed := time.Since(start) - v.Held
	if err != nil || v.Decision.Degraded {
		if err = s.storeError(ctx, stint.VerbTake, err); err != nil {
			s.undecided(v.Claims(), err)
			return err
		}
	}
	s.observeVerdict(ctx, id, e, start, elapsed)
	return nil
}

// undecided counts an evaluation that the store did not decide and no failure policy answered:
// for each rule that was to decide it, and, as a check would be, as a denial by the limit that
// admits least.
func (s *Service) undecided(claims []enforce.Claimed, err error) {
	if !errors.Is(err, stint.ErrUnavailable) && !errors.Is(err, stint.ErrOverloaded) || len(claims) == 0 {
		return
	}
	s.ruleMetrics.Undecided(claims)
	least := claims[0].Claim.Policy.Limit(0)
	for i := range claims {
		for _, limit := range claims[i].Claim.Policy.Limits() {
			if limit.Capacity < least.Capacity {
				least = limit
			}
		}
	}
	s.metrics.Checked(least.Algorithm, stint.Decision{Degraded: !errors.Is(err, stint.ErrOverloaded)}, 0)
}

// describe writes the rate limit fields of the deciding rule, if its limits were asked.
func (s *Service) describe(header http.Header, e *evaluation) {
	header["Cache-Control"] = noStore
	v := &e.verdict
	if policy := v.Claim.Policy; policy != nil {
		httplimit.HeadersOf(policy, s.fields).Write(header, v.Decision, v.Each)
	}
}

// answer makes the response of the verdict.
func (e *evaluation) answer() {
	v, c := &e.verdict, &e.response
	*c = api.EvaluateResponse{Class: v.Class, Via: v.Via, Matched: v.Matched, Shadowed: v.Shadowed}
	for i := range v.Exceeded {
		x := &v.Exceeded[i]
		c.Exceeded = append(c.Exceeded, api.Exceeded{
			Rule: x.Rule, LimitName: x.LimitName, Limit: x.Limit, RetryAfterMicros: adapt.Micros(x.RetryAfter),
		})
	}
	if v.Rule != nil {
		c.Rule = v.Rule.ID
	}
	if v.Claim.Policy != nil {
		c.CheckResponse = checkResponse(v.Claim.Key, v.Limit(), &v.Decision, v.Reason())
		if available, chooses := v.Available(); chooses {
			c.Available = &available
		}
		return
	}
	c.Allowed, c.Message = v.Allowed, messageAllowed
	if v.Decision.Degraded {
		c.Degraded, c.Source = true, v.Decision.Source.String()
	}
	if !v.Allowed {
		c.Message = messageDenied
		c.RetryAfterSeconds, c.RetryAfterMicros = adapt.Seconds(stint.Never), -1
		c.Reason, c.Missing = string(v.Reason()), v.Missing()
	}
}

// vias are by which ways rules charged the request, nil if the answer's via says all of it.
func (e *evaluation) vias() map[string]string {
	vias := e.verdict.Vias()
	if c := &e.response; c.Via != "" && len(vias) == 1 && vias[c.Rule] == c.Via {
		return nil
	}
	return vias
}

// SwapRules puts rules in the place of those in force, and tells in which they differ; nil is none. Swaps are
// serialised; requests are not kept waiting, as the limiter's set is swapped atomically.
func (s *Service) SwapRules(set *rules.Set) rulediff.Changes {
	s.swapping.Lock()
	defer s.swapping.Unlock()
	if set == nil {
		set = new(rules.Set)
	} else {
		s.rulesLoaded = time.Now()
	}
	// The metrics know a rule before it decides, and forget one after.
	s.ruleMetrics.Set(set, s.rules.Set())
	old := s.rules.Swap(set)
	s.ruleMetrics.Set(set)
	s.warnOfWaits(set, old)
	s.warnOfRules(set, old)
	changes := rulediff.Between(old, set)
	s.observeRules(set, changes)
	return changes
}

// RulesLoaded is when rules were last put in force, also unchanged ones; the zero time before the first.
func (s *Service) RulesLoaded() time.Time {
	s.swapping.Lock()
	defer s.swapping.Unlock()
	return s.rulesLoaded
}

// warnOfWaits says which rules that have come into force hold no request as long as they may, as it
// has to be answered in time. A rule that was in force before with the same max_wait was warned of
// then.
func (s *Service) warnOfWaits(set, old *rules.Set) {
	most := s.config.HTTP.LongestWait()
	for _, rule := range set.Rules() {
		if !waits(&rule) || rule.MaxWait <= most {
			continue
		}
		if was, known := old.Rule(rule.ID); known && waits(&was) && was.MaxWait == rule.MaxWait {
			continue // it was said then
		}
		s.logger.Warn("a rule holds requests for less than its max_wait; http.write_timeout bounds it", "rule", rule.ID,
			"max_wait", rule.MaxWait, "bound", most, "http.write_timeout", s.config.HTTP.WriteTimeout,
			"needed", min(rule.MaxWait+s.config.HTTP.BodyTimeout, 2*rule.MaxWait))
	}
}

// warnOfRules says what may be other than was meant in rules that have come into force. New rules
// are warned of only where the fault is not evident from the rule itself; a warning that a change
// brings about is always told.
func (s *Service) warnOfRules(set, old *rules.Set) {
	for _, rule := range set.Rules() {
		_, known := old.Rule(rule.ID)
		was := old.Warnings(rule.ID, s.config.Settings.Store.Clustered())
		for _, warning := range set.Warnings(rule.ID, s.config.Settings.Store.Clustered()) {
			if !slices.Contains(was, warning) && (known || !warning.Evident) {
				s.logger.Warn("a rule "+warning.Kind, "rule", rule.ID, "detail", warning.String())
			}
		}
	}
}

// waits reports whether the rule may hold requests.
func waits(rule *rules.Rule) bool { return !rule.Disabled && rule.OnExceed == rules.Wait }

// An evaluation is what deciding one request, by rules or by a target, needs for a moment. One that is used again
// saves its allocations. A check leaves all as it was but event, each, response and body.
type evaluation struct {
	request rules.Request
	asked   request // what is said besides
	verdict enforce.Verdict
	event   stint.Event
	// each has an outcome for each limit of a check, if the answer needs them.
	each []stint.Outcome
	// header and attributes are the request's; lines has the values of header, so that one slice
	// serves all fields.
	header     http.Header
	lines      []string // of the header
	attributes map[string]string
	// now denies the request at once rather than keep it waiting.
	now      bool
	response api.EvaluateResponse
	body     []byte
	work     capacity.Ticket
}

// emptyEvaluation makes what checks need of an evaluation. Its body has room for most answers, which else is found by
// growing step by step.
func emptyEvaluation() *evaluation { return &evaluation{body: make([]byte, 0, 1<<10)} }

// newEvaluation makes an evaluation by rules, whose work is over when the request begins to be held.
func newEvaluation() *evaluation {
	e := emptyEvaluation()
	e.describes()
	return e
}

// describes makes room for what rules match, which checks do without.
func (e *evaluation) describes() {
	if e.header == nil {
		e.header, e.attributes = http.Header{}, map[string]string{}
		e.verdict.OnHold = e.work.Leave
	}
}

// fewRules is how many rules and members an evaluation may have had whose memory is kept. A request
// with more is rare, and its memory would stay in the pool for ever.
const fewRules = 256

// clear forgets the request. It reports whether the evaluation is worth keeping.
func (e *evaluation) clear() bool {
	few := len(e.header)+len(e.attributes)+len(e.verdict.Matched) <= fewRules
	e.request, e.asked, e.response, e.now = rules.Request{}, request{}, api.EvaluateResponse{}, false
	clear(e.header)
	clear(e.attributes)
	clear(e.lines)
	e.lines = e.lines[:0]
	return few
}

// read reads a body that describes a request, or settles one.
func (e *evaluation) read(text string, allowed member, clients *clientip.Resolver) (q request, err error) {
	s := &scanner{Scanner: strictjson.New(text), allowed: allowed, evaluation: e, clients: clients}
	e.request.Header, e.request.Attributes = e.header, e.attributes
	err = s.Whole(func() (err error) {
		q, err = s.object()
		return err
	})
	e.identify()
	return q, err
}

// set notes a member that is a text of the request that is described, and makes a key of the
// client's address.
func (e *evaluation) set(m member, value string, clients *clientip.Resolver) (err error) {
	q := &e.request
	switch m {
	case methodMember:
		q.Method = value
	case hostMember:
		q.Host = value
	case pathMember:
		q.Path, err = value, checkPath("path", value)
	case ipMember:
		q.Address, err = addressKey(clients, "ip", value)
	case setMember:
		if q.Set = value; value == "" {
			err = stint.Invalid("set", "", "the name of a set of rules")
		}
	default:
	}
	return err
}

// identify takes from the attributes who asks.
func (e *evaluation) identify() {
	e.request.User, e.request.APIKey = e.attributes[api.AttributeUserID], e.attributes[api.AttributeAPIKey]
}

// checkPath reports what is wrong with a request's path.
func checkPath(param, path string) error {
	if path == "*" || strings.HasPrefix(path, "/") {
		return nil
	}
	return stint.Invalid(param, problem.Short(path), "a path that begins with a slash, or * alone")
}

// errRulesUnknown answers what can't be decided without rules.
func errRulesUnknown() error {
	return problem.New(
		http.StatusServiceUnavailable,
		"the rules could not be read yet; nothing was consumed. The service's log says why",
	)
}
