package rls

import (
	"context"
	"maps"
	"slices"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-go/stint"
)

// A Limit is one of a domain as it is in force, for people.
type Limit struct {
	// the domain and what leads to the limit, as in web.remote_address
	ID         string   `json:"id"`
	Rule       string   `json:"rule"` // what events call it
	Name       string   `json:"name,omitempty"`
	Requests   uint32   `json:"requests"`
	Unit       string   `json:"unit,omitempty"`
	Calendar   bool     `json:"calendar,omitempty"`
	TimeZone   string   `json:"timeZone,omitempty"`
	Algorithm  string   `json:"algorithm,omitempty"`
	Accounting string   `json:"accounting"`
	Unlimited  bool     `json:"unlimited,omitempty"`
	Shadow     bool     `json:"shadow,omitempty"`
	Quota      bool     `json:"quota,omitempty"`
	Replaces   []string `json:"replaces,omitempty"`
}

// A Domain is one that is in force, with its limits by ID.
type Domain struct {
	Name   string  `json:"name"`
	From   string  `json:"from"`
	Limits []Limit `json:"limits"`
}

// Domains are those in force, by name. It is what the admin API shows; nil domains, before the
// first load, are an empty list.
func (s *Service) Domains() []Domain {
	list := []Domain{}
	t := s.tree.Load()
	if t == nil {
		return list
	}
	from := map[string]string{}
	for _, d := range t.list {
		from[d.Name] = d.From
	}
	for _, name := range slices.Sorted(maps.Keys(t.domains)) {
		d := t.domains[name]
		shown := Domain{Name: name, From: from[name], Limits: []Limit{}}
		for _, l := range d.made {
			shown.Limits = append(shown.Limits, l.shown())
		}
		slices.SortStableFunc(shown.Limits, func(a, b Limit) int { return strings.Compare(a.ID, b.ID) })
		list = append(list, shown)
	}
	return list
}

// shown is the limit for people. Without an algorithm it is the fixed window of the reference
// service.
func (l *limit) shown() Limit {
	shown := Limit{
		ID: l.id, Rule: l.rule, Name: l.Name, Requests: l.RequestsPerUnit, Calendar: l.Calendar, TimeZone: l.TimeZone,
		Accounting: string(l.Accounting), Unlimited: l.Unlimited, Shadow: l.shadow, Quota: l.quota, Replaces: l.Replaces,
	}
	if !l.Unlimited {
		shown.Algorithm = stint.AlgorithmFixedWindow.String()
		if l.Algorithm != 0 {
			shown.Algorithm = l.Algorithm.String()
		}
		if l.Unit.Known() {
			shown.Unit = l.Unit.String()
		}
	}
	return shown
}

// An Explanation is what a request would be told, and why.
type Explanation struct {
	Allowed bool   `json:"allowed"`
	Domain  string `json:"domain"`
	// whether there is such a domain
	Known       bool                  `json:"known"`
	Descriptors []ExplainedDescriptor `json:"descriptors"`
}

// An ExplainedDescriptor is what is made of one descriptor.
type ExplainedDescriptor struct {
	// as in remote_address=192.0.2.1,path=/login
	Entries string `json:"entries"`
	Limit   *Limit `json:"limit"` // null if none holds
	// Outcome is admitted, exceeded, shadow (exceeded in shadow mode), quota (exceeded in quota mode), unlimited, replaced
	// or unmatched.
	Outcome string `json:"outcome"`
	// under which its state is kept
	Key          string `json:"key,omitempty"`
	Hits         int64  `json:"hits"`
	Remaining    int64  `json:"remaining"`
	ResetSeconds int64  `json:"resetSeconds"`
}

// Explain tells what ShouldRateLimit would, and takes nothing. Errors are those of ShouldRateLimit
// without codes. It goes through the same steps as a decision, with looks set, which peeks in place
// of taking. A limit that another one replaces is looked up once more, so that it can be shown as
// replaced.
func (s *Service) Explain(ctx context.Context, r *pb.RateLimitRequest) (x Explanation, err error) {
	t := s.tree.Load()
	if err := s.check(r, t); err != nil {
		return x, err
	}
	d := &decision{service: s, request: r, looks: true}
	if err := d.match(t); err != nil {
		return x, err
	}
	found := make([]*limit, len(r.Descriptors)) // those that others replace, too
	for i, given := range r.Descriptors {
		if of := t.domains[r.Domain]; of != nil {
			if found[i] = d.checks[i].limit; found[i] == nil && given.Limit == nil {
				entries, err := d.holdEntries(i, given, &check{})
				if err != nil {
					return x, err
				}
				found[i] = d.lookup.find(of, entries)
			}
		}
	}
	if err := d.decide(ctx); err != nil {
		return x, err
	}
	x = Explanation{Allowed: !d.exceeded() || s.config.Shadow, Domain: r.Domain, Known: t.domains[r.Domain] != nil}
	for i, given := range r.Descriptors {
		k := &d.checks[i]
		shown := ExplainedDescriptor{Entries: written(given), Hits: k.hits, Outcome: d.outcome(k, found[i])}
		if found[i] != nil {
			limit := found[i].shown()
			shown.Limit = &limit
		}
		if k.limit != nil {
			shown.Key, shown.Remaining, shown.ResetSeconds = k.key, k.remaining, seconds(k.until())
		}
		x.Descriptors = append(x.Descriptors, shown)
	}
	return x, nil
}

// outcome is what is made of a check, of which this limit was found. The cases are from what needs
// no limit to what a limit says.
func (d *decision) outcome(k *check, found *limit) string {
	switch {
	case k.unlimited:
		return "unlimited"
	case found == nil:
		return "unmatched"
	case k.limit == nil:
		return "replaced"
	case !k.over:
		return "admitted"
	case k.limit.shadow:
		return "shadow"
	case d.quota(k):
		return "quota"
	default:
		return "exceeded"
	}
}

// written is a descriptor in one line.
func written(given *common.RateLimitDescriptor) string {
	parts := make([]string, len(given.Entries))
	for i, e := range given.Entries {
		parts[i] = e.Key + "=" + e.Value
	}
	return strings.Join(parts, ",")
}
