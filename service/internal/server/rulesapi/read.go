package rulesapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// maxPage bounds a page of rules. A page of so many rules of 200 bytes is 2 MB.
const maxPage = 10_000

// A filter says which rules are shown. All conditions have to hold. after is a position and no page
// number, so that pages stay right while rules change.
type filter struct {
	enabled *bool
	set     string      // "" is any
	labels  [][2]string // a rule must have all of them
	prefix  string      // of the ID
	after   string      // an ID; only rules after it
	limit   int64       // 0 is none
}

// list shows rules, by ID. The tag of the answer is made of the rules that there are, filtered or
// not, and of the revision: a client that has it gets 304 without the rules being written.
func (c *call) list() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	now, err := c.current()
	if err != nil {
		return err
	}
	tag, err := listTag(now.ID, now.Rules)
	if err != nil {
		return err
	}
	return c.show(now.Number, tag, func() ([]byte, error) {
		page := adminapi.RuleList{Revision: now.Number, At: timeOf(now.ID), Rules: []json.RawMessage{}}
		last := ""
		for i := range now.Rules {
			rule := &now.Rules[i]
			if !f.has(rule) {
				continue
			}
			if f.limit > 0 && int64(len(page.Rules)) == f.limit {
				page.Next = last
				break
			}
			text, err := rulefile.JSON(c.masked(*rule))
			if err != nil {
				return nil, err
			}
			page.Rules, last = append(page.Rules, text), rule.ID
		}
		return problem.Marshal(page)
	})
}

// statistics counts the rules that there are.
func (c *call) statistics() (counts adminapi.RuleStatistics, err error) {
	now, err := c.current()
	if err != nil {
		return counts, err
	}
	counts.Revision, counts.Total = now.Number, len(now.Rules)
	sets := map[string]bool{}
	for i := range now.Rules {
		rule := &now.Rules[i]
		if rule.Set != "" {
			sets[rule.Set] = true
		}
		switch {
		case rule.Disabled:
			counts.Disabled++
		case rule.OnExceed == rules.Shadow:
			counts.Shadow++
		}
	}
	counts.Enabled, counts.Sets = counts.Total-counts.Disabled, len(sets)
	at := timeOf(now.ID)
	if c.api.config.Manager == nil {
		at = c.api.config.Loaded().UTC()
	}
	if !at.IsZero() {
		counts.LastChange = &adminapi.RuleChangeTime{At: at, By: now.By}
	}
	return counts, nil
}

// missing is the error of a rule or an override that does not exist, or of an override that can't
// exist.
func (c *call) missing(rule *rules.Rule) error {
	if c.client == "" || rule.ID == "" {
		return noRule(c.rule)
	}
	if _, err := rule.OverrideKey(c.client); err != nil {
		return err
	}
	return problem.New(http.StatusNotFound, "rule %q has no override for this client", rule.ID)
}

// written is the rule or the override that the path names, as JSON. It is nil if there is no such
// override.
func (c *call) written(rule *rules.Rule) ([]byte, error) {
	if text := c.texts[rule.ID]; c.client == "" && text != nil {
		return text, nil
	} else if c.client == "" {
		return rulefile.JSON(*rule)
	}
	if at := overrideIndex(rule, c.client); at >= 0 {
		return rulefile.OverrideJSON(rule.Overrides[at])
	}
	return nil, nil
}

// get shows a rule or an override.
func (c *call) get() error {
	rule, head, err := c.find()
	if err != nil {
		return err
	}
	text, err := c.written(&rule)
	if err != nil {
		return err
	}
	if text == nil {
		return c.missing(&rule)
	}
	return c.show(head.Number, tagOf(text), func() ([]byte, error) {
		shown := c.masked(rule)
		return c.written(&shown)
	})
}

// filter reads the filter from the query.
func (c *call) filter() (filter, error) {
	q := c.query
	f := filter{set: q.Get("set"), prefix: q.Get("prefix"), after: q.Get("after")}
	if text := q.Get("enabled"); q.Has("enabled") {
		enabled := text == "true"
		if !enabled && text != "false" {
			return f, invalid("enabled", text, "true or false")
		}
		f.enabled = &enabled
	}
	if q.Has("set") && f.set == "" {
		return f, invalid("set", f.set, "the name of a set")
	}
	for _, text := range q.Values["label"] {
		name, value, found := strings.Cut(text, ":")
		if !found {
			return f, invalid("label", text, "NAME:VALUE")
		}
		f.labels = append(f.labels, [2]string{name, value})
	}
	var err error
	f.limit, err = q.Integer("limit", 0, 1, maxPage)
	return f, err
}

// has reports whether a rule passes the filter. The limit does not count here.
func (f *filter) has(rule *rules.Rule) bool {
	if rule.ID <= f.after || !strings.HasPrefix(rule.ID, f.prefix) || f.enabled != nil && *f.enabled == rule.Disabled ||
		f.set != "" && f.set != rule.Set {
		return false
	}
	for _, label := range f.labels {
		if value, found := rule.Labels[label[0]]; !found || value != label[1] {
			return false
		}
	}
	return true
}

// String describes the selected rules for people.
func (f *filter) String() string {
	var parts []string
	if f.set != "" {
		parts = append(parts, "set "+f.set)
	}
	for _, label := range f.labels {
		parts = append(parts, "label "+label[0]+":"+label[1])
	}
	if f.prefix != "" {
		parts = append(parts, "prefix "+f.prefix)
	}
	return cmp.Or(problem.Short(strings.Join(parts, ", ")), "all")
}

// explainTimeout bounds the calls to the store.
const explainTimeout = 10 * time.Second

// explain shows how the rules in force would decide a request, and consumes nothing.
func (c *call) explain() (answer adminapi.Explanation, err error) {
	text, _, err := c.body(c.api.config.MaxBodyBytes, jsonBody)
	if err != nil {
		return answer, err
	}
	request, err := c.api.config.ReadRequest(text)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), explainTimeout)
	defer cancel()
	x, err := c.api.config.Limiter.Explain(ctx, request)
	if err != nil {
		return answer, stateUnreachable(err, "the store could not answer; nothing was consumed")
	}
	return Explanation(x), nil
}

// explainClient shows what a client has left under each rule that can count it. The client is named
// as in overrides.
func (c *call) explainClient() (shown adminapi.ClientExplanation, err error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), explainTimeout)
	defer cancel()
	list, err := c.api.config.Limiter.ExplainClient(ctx, c.client)
	if err != nil {
		return shown, stateUnreachable(err, "the store could not answer; nothing was consumed")
	}
	shown = adminapi.ClientExplanation{Client: c.client, Rules: []adminapi.ExplainedRule{}}
	for i := range list {
		shown.Rules = append(shown.Rules, explained(&list[i]))
	}
	return shown, nil
}

// ClientKeys are the keys under which decisions about a client may be recorded that a caller names: the name itself,
// the SHA-256 of an API key, of an address the key by which it is counted, also by rules that count by address only
// requests that lack something, and the key by which each rule in force counts the client.
func (a *API) ClientKeys(client string) []string {
	keys := []string{client, rules.HashedClient(client)}
	if address, ok := clientip.Parse(client); ok {
		network := a.clients.KeyOf(address)
		keys = append(keys, network, `\ip:`+network)
	}
	set := a.config.Limiter.Set()
	for _, rule := range set.Rules() {
		if matched, err := set.ClientMatch(rule.ID, client, nil); err == nil && !slices.Contains(keys, matched.Client) {
			keys = append(keys, matched.Client)
		}
	}
	return keys
}

// Explanation converts an explanation to its wire type.
func Explanation(x *enforce.Explanation) adminapi.Explanation {
	v := &x.Verdict
	shown := adminapi.Explanation{
		Path: x.Path, Allowed: v.Allowed, Degraded: v.Decision.Degraded, Why: x.Why(), Reason: string(v.Reason()),
		RetryAfterSeconds: adapt.Seconds(v.Decision.RetryAfter), RetryAfterMicros: adapt.Micros(v.Decision.RetryAfter),
		Rules: []adminapi.ExplainedRule{},
	}
	if v.Rule != nil {
		shown.Rule = v.Rule.ID
	}
	for i := range x.Rules {
		shown.Rules = append(shown.Rules, explained(&x.Rules[i]))
	}
	return shown
}

// explained is what a rule makes of a request, in the API's words. A rule whose request is at
// fault, as its cost is none, is shown with the fault and denies nothing here.
func explained(rule *enforce.Explained) adminapi.ExplainedRule {
	shown := adminapi.ExplainedRule{
		Rule: rule.Rule.ID, Outcome: rule.Outcome.String(), OnExceed: rule.Rule.OnExceed.String(),
	}
	if rule.Fault != nil {
		shown.Allowed, shown.Error = true, prefix.Trim(rule.Fault.Error())
		return shown
	}
	switch rule.Outcome {
	case rules.Limited:
		shown.Allowed, shown.Key, shown.Cost = rule.Decision.Allowed, rule.Client, rule.Claim.Permits
	case rules.Included:
		if shown.Allowed = true; rule.By != nil {
			shown.By = rule.By.ID
		}
	case rules.Skipped, rules.Unlimited:
		shown.Allowed = true
	case rules.Banned, rules.Lacking:
	}
	shown.ByReserve = rule.NeedsReserve()
	for _, h := range rule.Holds {
		for limit, permits := range h.Permits {
			if permits > 0 {
				shown.Holds = append(shown.Holds, adminapi.LiveHold{
					ID: h.ID, Limit: limit, Permits: permits, ExpiresAt: int64(h.ExpiresAt),
				})
			}
		}
	}
	shown.Class = rule.Class
	ways := rule.Ways()
	for i := range ways {
		shown.Ways = append(shown.Ways, adminapi.ExplainedWay{Via: ways[i].Via, Allowed: ways[i].Allowed, Why: ways[i].Why})
	}
	if available, chooses := rule.Available(); chooses {
		shown.Available = &available
	}
	op := stint.Op{Claim: rule.Claim, And: rule.And} // of the claims in the order of Each, whatever their ways
	for i, o := range rule.Each {
		limit, claim := op.LimitAt(i)
		way := 0
		for way < len(ways) && ways[way].First <= i {
			way++
		}
		of, _ := strings.CutPrefix(claim.Policy.Name(), rules.PolicyPrefix)
		if of == rule.Rule.ID {
			of = ""
		}
		key := claim.Key
		if key == rule.Client {
			key = ""
		}
		shown.Limits = append(shown.Limits, adminapi.ExplainedLimit{
			Name: limit.Name, Way: way, Via: rule.ViaAt(i), Rule: of, Key: key, Keep: claim.Keep,
			Algorithm: limit.Algorithm.String(), Allowed: o.Allowed, Limit: o.Limit, Remaining: o.Remaining,
			ResetAfterSeconds: adapt.Seconds(o.ResetAfter), ResetAfterMicros: o.ResetAfter.Microseconds(),
			RetryAfterSeconds: adapt.Seconds(o.RetryAfter), RetryAfterMicros: adapt.Micros(o.RetryAfter),
		})
	}
	return shown
}
