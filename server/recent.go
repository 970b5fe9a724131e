package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/store"
	"github.com/stint-go/stint/server/activity"
)

// A Decided is a check or an evaluation that was decided, by the store, by a failure policy, or by rules that need no limit; or what
// a rule in shadow says of one.
type Decided struct {
	Allowed   bool
	Shadow    bool   // a rule in shadow would have denied; the decision itself was told before. Policy is nil
	Rule      string // the deciding rule's ID, policy/NAME or algorithm/NAME; "" if no rule holds
	Set       string // the rule's
	Client    string // the key; of a rule that denies without its limits, the address
	Reason    string // of a denial, as answers have it
	RequestID string
	Policy    *stint.Policy  // has the limit that decided, at Decision.Index; nil if no limit was asked
	Decision  stint.Decision // nothing but Allowed and RetryAfter counts without Policy
	At        stint.Instant  // when it began, by the process's clock
}

// observeCheck tells of a check without rules.
func (s *service) observeCheck(w http.ResponseWriter, r *http.Request, t *target, claim *stint.Claim, d *stint.Decision, start time.Time, elapsed time.Duration) {
	if s.config.Activity == nil && s.config.Decided == nil {
		return
	}
	at, reason := stint.Instant(start.UnixMicro()), ""
	if !d.Allowed {
		reason = string(enforce.ReasonOf(t.policy.Limit(int(d.Index)), d, claim.Permits))
	}
	if s.config.Activity != nil {
		e := activity.Event{At: at, Rule: t.rule, Client: claim.Key, Degraded: d.Degraded, Permits: claim.Permits, Elapsed: elapsed}
		if !d.Allowed {
			e.Outcome, e.Reason, e.RequestID = activity.Denied, reason, requestID(w)
		}
		s.config.Activity.Observe(&e)
	}
	if s.config.Decided != nil {
		s.config.Decided(r.Context(), Decided{
			Allowed: d.Allowed, Rule: t.rule, Client: claim.Key, Reason: reason, RequestID: requestID(w), Policy: t.policy, Decision: *d, At: at,
		})
	}
}

// observeVerdict tells of a request that rules decided.
func (s *service) observeVerdict(w http.ResponseWriter, r *http.Request, q *rules.Request, v *enforce.Verdict, start time.Time, elapsed time.Duration) {
	if s.config.Activity == nil && s.config.Decided == nil {
		return
	}
	d := Decided{
		Allowed: v.Allowed, Client: v.Claim.Key, Reason: string(v.Reason()), RequestID: requestID(w), Policy: v.Claim.Policy, Decision: v.Decision,
		At: stint.Instant(start.UnixMicro()),
	}
	if v.Rule != nil {
		d.Rule, d.Set = v.Rule.ID, v.Rule.Set
	}
	if !v.Allowed {
		d.Client = cmp.Or(d.Client, q.Address) // a rule that denies without its limits counts nobody
	}
	if s.config.Decided != nil {
		s.config.Decided(r.Context(), d)
		for i, denial := range v.ShadowDenials {
			s.config.Decided(r.Context(), Decided{
				Shadow: true, Rule: v.Shadowed[i], Client: cmp.Or(denial.Key, q.Address), Reason: string(denial.Reason), RequestID: d.RequestID, At: d.At,
			})
		}
	}
	if s.config.Activity == nil {
		return
	}
	e := activity.Event{
		At: d.At, Rule: d.Rule, Client: d.Client, Degraded: v.Decision.Degraded, Permits: v.Claim.Permits, Elapsed: elapsed,
		Method: q.Method, Path: q.Path,
	}
	if v.Rule != nil {
		e.Near = promlimit.Near(&v.Decision)
	}
	if !v.Allowed {
		e.Outcome, e.Reason, e.RequestID = activity.Denied, d.Reason, d.RequestID
	}
	s.config.Activity.Observe(&e)
	e.Client, e.Outcome, e.Near = "", activity.ShadowDenied, false
	for _, e.Rule = range v.Shadowed {
		s.config.Activity.Observe(&e)
	}
	e.Outcome = activity.ShadowAdmitted
	for _, e.Rule = range v.Passed {
		s.config.Activity.Observe(&e)
	}
}

// observeRules tells the recorder of other rules.
func (s *service) observeRules(set *rules.Set, changes rules.Changes) {
	if s.config.Activity == nil || changes.None() {
		return
	}
	var words []string
	for _, c := range []struct {
		what string
		ids  []string
	}{{"added", changes.Added}, {"removed", changes.Removed}, {"changed", changes.Changed}} {
		if len(c.ids) > 0 {
			words = append(words, fmt.Sprintf("%s %s", c.what, strings.Join(c.ids, ", ")))
		}
	}
	s.config.Activity.RulesChanged(s.revisionOf(set), strings.Join(words, "; "))
}

// revisionOf is the number of the rules' revision if they come from a store of revisions. Else it is the beginning of their SHA-256, so
// that processes with the same rules have the same, wherever they have them from.
func (s *service) revisionOf(set *rules.Set) string {
	if s.config.Manager != nil {
		if number := s.config.Manager.InForce(); number > 0 {
			return strconv.FormatInt(number, 10)
		}
	}
	text, err := store.Encode(set.Rules())
	if err != nil {
		s.logger.Error("rules in force can't be encoded", "err", err)
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:4])
}

// authorizeActivity is the activity's Authorize, for requests that serve has identified. Clients are shown by name to holders of
// tokens and certificates.
func (a *admin) authorizeActivity(r *http.Request) (activity.Caller, error) {
	return activity.Caller{Names: len(a.tokens.hashes) > 0 || r.TLS != nil && len(r.TLS.VerifiedChains) > 0}, nil
}
