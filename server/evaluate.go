package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/rules"
)

// evaluate decides a request that the body describes by the rules that match it.
func (s *service) evaluate(w http.ResponseWriter, r *http.Request) error {
	if err := s.authority.mayManage(r); err != nil {
		return err
	}
	details, err := detailsOf(r.URL.RawQuery, detailsMember)
	if err != nil {
		return err
	}
	text, err := s.readText(w, r)
	if err != nil {
		return err
	}
	defer text.release()
	e, _ := s.evaluations.Get().(*evaluation)
	if r, e.work, err = s.enter(r, costOf(1, len(text.text))); err != nil {
		return err
	}
	kept := false
	defer func() { e.leaveUnless(kept) }()
	if err := e.read(text.text, s.clients); err != nil {
		return err
	}
	if err := s.enforce(r, e); err != nil {
		return err
	}
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	s.describe(header, e)
	e.answer()
	if v := &e.verdict; details && v.Claim.Policy != nil {
		e.response.Details = limitDetails(v.Claim.Policy, v.Each, v.Decision.At)
	}
	e.body = e.response.AppendJSON(e.body[:0])
	e.work.leave()
	if !e.verdict.Allowed {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(e.body) // a client that is gone has no use for the error
	kept = true
	s.keep(e)
	return nil
}

// leaveUnless ends the work of an evaluation that was not kept: one that was is another request's by now.
func (e *evaluation) leaveUnless(kept bool) {
	if !kept {
		e.work.leave()
	}
}

// keep gives an evaluation back whose request has been answered.
func (s *service) keep(e *evaluation) {
	e.work.leave()
	if e.clear() {
		s.evaluations.Put(e)
	}
}

// enforce decides and counts.
func (s *service) enforce(r *http.Request, e *evaluation) error {
	v := &e.verdict
	if s.rulesState() == RulesUnknown {
		if s.config.RulesRequired {
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
	err := decide(r.Context(), &e.request, v)
	elapsed := time.Since(start) - v.Held
	if err != nil || v.Decision.Degraded {
		if err = s.judge(r.Context(), stint.Take, err); err != nil {
			s.undecided(v.Undecided, err)
			return err
		}
	}
	if v.Claim.Policy != nil {
		limit := v.Claim.Policy.Limit(int(v.Decision.Index))
		s.metrics.Checked(limit.Algorithm, v.Decision, elapsed)
	}
	s.ruleMetrics.Decided(v)
	s.observeVerdict(r, &e.request, v, start, elapsed)
	return nil
}

// undecided counts an evaluation that the store did not decide and no failure policy answered:
// for each rule that was to decide it, and, as a check would be, as a denial by the limit that
// admits least.
func (s *service) undecided(claims []enforce.Claimed, err error) {
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
func (s *service) describe(header http.Header, e *evaluation) {
	v := &e.verdict
	if policy := v.Claim.Policy; policy != nil {
		httplimit.HeadersOf(policy, s.config.Headers).Write(header, v.Decision, v.Each)
	}
}

// answer makes the response of the verdict.
func (e *evaluation) answer() {
	v, c := &e.verdict, &e.response
	*c = api.EvaluateResponse{Matched: v.Matched, Shadowed: v.Shadowed}
	if v.Rule != nil {
		c.Rule = v.Rule.ID
	}
	if v.Claim.Policy != nil {
		c.CheckResponse = checkResponse(v.Claim.Key, v.Limit(), &v.Decision, v.Reason())
		return
	}
	c.Allowed, c.Message = v.Allowed, api.MessageAllowed
	if v.Decision.Degraded {
		c.Degraded, c.Source = true, v.Decision.Source.String()
	}
	if !v.Allowed {
		c.Message = api.MessageDenied
		c.RetryAfterSeconds, c.RetryAfterMicros = httplimit.Seconds(stint.Never), -1
		c.Reason, c.Missing = string(v.Reason()), v.Missing()
	}
}

// swapRules puts rules in force, of which nil are none.
func (s *service) swapRules(set *rules.Set) rules.Changes {
	if set == nil {
		set = new(rules.Set)
	}
	s.swapping.Lock()
	defer s.swapping.Unlock()
	// The metrics know a rule before it decides, and forget one after.
	s.ruleMetrics.Set(set, s.rules.Set())
	old := s.rules.Swap(set)
	s.ruleMetrics.Set(set)
	s.warnOfWaits(set, old)
	changes := set.ChangesFrom(old)
	s.observeRules(set, changes)
	return changes
}

// warnOfWaits says which rules that have come into force hold no request as long as they may, as
// it has to be answered in time.
func (s *service) warnOfWaits(set, old *rules.Set) {
	most := s.config.longestWait()
	for _, rule := range set.Rules() {
		if !waits(&rule) || rule.MaxWait <= most {
			continue
		}
		if was, known := old.Rule(rule.ID); known && waits(&was) && was.MaxWait == rule.MaxWait {
			continue // it was said then
		}
		s.logger.Warn("a rule holds requests for less than its max_wait; http.write_timeout bounds it", "rule", rule.ID,
			"max_wait", rule.MaxWait, "bound", most, "http.write_timeout", s.config.WriteTimeout,
			"needed", min(rule.MaxWait+s.config.BodyTimeout, 2*rule.MaxWait))
	}
}

// waits reports whether the rule may hold requests.
func waits(rule *rules.Rule) bool { return !rule.Disabled && rule.OnExceed == rules.Wait }
