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

// observeCheck tells the recorder of a check without rules.
func (s *service) observeCheck(r *http.Request, t *target, claim *stint.Claim, d *stint.Decision, start time.Time, elapsed time.Duration) {
	if s.config.Activity == nil {
		return
	}
	e := activity.Event{At: stint.Instant(start.UnixMicro()), Rule: t.rule, Client: claim.Key, Degraded: d.Degraded, Permits: claim.Permits, Elapsed: elapsed}
	if !d.Allowed {
		e.Outcome, e.Reason, e.RequestID = activity.Denied, string(enforce.ReasonOf(t.policy.Limit(int(d.Index)), d, claim.Permits)), requestID(r)
	}
	s.config.Activity.Observe(&e)
}

// observeVerdict tells the recorder of a request that rules decided.
func (s *service) observeVerdict(r *http.Request, q *rules.Request, v *enforce.Verdict, start time.Time, elapsed time.Duration) {
	if s.config.Activity == nil {
		return
	}
	e := activity.Event{
		At: stint.Instant(start.UnixMicro()), Client: v.Claim.Key, Degraded: v.Decision.Degraded, Permits: v.Claim.Permits, Elapsed: elapsed,
		Method: q.Method, Path: q.Path,
	}
	if v.Rule != nil {
		e.Rule, e.Near = v.Rule.ID, promlimit.Near(&v.Decision)
	}
	if !v.Allowed {
		// A rule that denies without its limits counts nobody.
		e.Outcome, e.Reason, e.RequestID, e.Client = activity.Denied, string(v.Reason()), requestID(r), cmp.Or(e.Client, q.Address)
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

func requestID(r *http.Request) string {
	if lines := r.Header["X-Request-Id"]; len(lines) > 0 {
		return lines[0]
	}
	return ""
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
