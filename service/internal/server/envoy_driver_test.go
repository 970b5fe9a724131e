package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// An envoyDriver is Envoy: it finds the rules that match, and asks the rate limit service about a descriptor for each of
// their limits, RULE.N=CLIENT with the cost. The domain has the limits of the rules, and those of policies.
type envoyDriver struct {
	t        *testing.T
	service  *rls.Service
	set      *rules.Set
	policies map[string][]stint.Limit
}

func newEnvoyDriver(t *testing.T, s *store, settings *config.Config) driver {
	t.Helper()
	d := &envoyDriver{t: t, set: compile(t, settings.Rules), policies: settings.Policies}
	var descriptors []map[string]any
	for _, rule := range settings.Rules {
		list := rule.Limits
		if rule.Banned || rule.Unlimited {
			list = make([]stint.Limit, 1)
		}
		for i, limit := range list {
			descriptors = append(descriptors, d.descriptor(&rule, "", fmt.Sprint(rule.ID, ".", i), limit, rule.Banned, rule.Unlimited))
		}
		for _, o := range rule.Overrides {
			if list = o.Limits; o.Banned || o.Unlimited {
				list = make([]stint.Limit, 1)
			}
			for i, limit := range list {
				descriptors = append(descriptors, d.descriptor(&rule, o.Key, fmt.Sprint(rule.ID, ".", i), limit, o.Banned, o.Unlimited))
			}
		}
	}
	for name, limits := range settings.Policies {
		for i, limit := range limits {
			descriptors = append(descriptors, d.descriptor(&rules.Rule{}, "", fmt.Sprint(name, ".", i), limit, false, false))
		}
	}
	text := must.Get(json.Marshal(map[string]any{"domain": "d", "descriptors": descriptors}))(t)
	domain, _, err := domains.Parse("case.yaml", text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	d.service = must.Get(rls.New(rls.Config{Store: s}))(t)
	must.Do(t, d.service.Swap([]*domains.Domain{domain}))
	return d
}

// descriptor is one of a limit, for one client or for all.
func (d *envoyDriver) descriptor(rule *rules.Rule, client, key string, limit stint.Limit, banned, unlimited bool) map[string]any {
	d.t.Helper()
	unit, most := limit.Window, limit.Capacity
	if limit.IsBucket() {
		if unit = limit.Rate.Period; limit.Rate.Permits != limit.Capacity {
			d.t.Fatalf("%s: a bucket that is not filled in a unit has no descriptor", key)
		}
	}
	one := map[string]any{"key": key, "shadow_mode": rule.OnExceed == rules.Shadow}
	if client != "" {
		one["value"] = client
	}
	switch name := map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day"}[unit]; {
	case banned:
		one["rate_limit"] = map[string]any{"unit": "day", "requests_per_unit": 0}
	case unlimited:
		one["rate_limit"] = map[string]any{"unlimited": true}
	case name == "" || limit.FirstRequest || limit.MinInterval > 0 || limit.CountDenied || rule.OnExceed == rules.Wait || rule.OnExceed == rules.Mark:
		d.t.Fatalf("%s: the limit has no descriptor", key)
	default:
		one["rate_limit"] = map[string]any{"unit": name, "requests_per_unit": most, "algorithm": limit.Algorithm.String()}
	}
	return one
}

// tells is whether the request is admitted, what is left of which limit, and by which rule it is denied.
func (d *envoyDriver) tells(all said) said {
	s := all.only("verdict", "left")
	word, by, _ := strings.Cut(s["verdict"], " by ")
	switch word {
	case "overloaded", "unavailable", "invalid":
		return s
	case "denied":
		by, _, _ = strings.Cut(by, "/")
		s["verdict"] = word + " by " + by
	default:
		s["verdict"] = word
	}
	if all["since"] == "banned" {
		s["left"] = "0 of 0"
	}
	return s
}

func (d *envoyDriver) evaluate(w question) said {
	d.t.Helper()
	var r rules.Request
	var m rules.Matches
	describe(w, &r)
	must.Do(d.t, d.set.Match(&r, &m))
	var list []*common.RateLimitDescriptor
	for i := range m.Len() {
		var matched rules.Matched
		must.Do(d.t, m.At(i, stint.VerbTake, &matched))
		client, n := matched.Client, 1
		if matched.Outcome == rules.Limited {
			n = matched.Claim.Policy.Len()
		} else if client = r.User; client == "" {
			client = r.Address
		}
		for limit := range n {
			list = append(list, descriptorOf(matched.Rule.ID, client, limit, max(matched.Claim.Permits, 1)))
		}
	}
	return d.ask(list)
}

func (d *envoyDriver) check(policy, key string, permits int64) said {
	var list []*common.RateLimitDescriptor
	for i := range d.policies[policy] {
		list = append(list, descriptorOf(policy, key, i, permits))
	}
	return d.ask(list)
}

// descriptorOf is one of a limit of a rule, with a cost.
func descriptorOf(rule, client string, limit int, permits int64) *common.RateLimitDescriptor {
	return &common.RateLimitDescriptor{
		Entries:    []*common.RateLimitDescriptor_Entry{{Key: fmt.Sprint(rule, ".", limit), Value: client}},
		HitsAddend: wrapperspb.UInt64(uint64(permits)),
	}
}

// ask asks about descriptors. The one that denies longest tells, or the one with the least left.
func (d *envoyDriver) ask(list []*common.RateLimitDescriptor) said {
	d.t.Helper()
	if list == nil {
		return said{"verdict": "admitted"}
	}
	response, err := d.service.ShouldRateLimit(d.t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: list})
	if err != nil {
		return said{"verdict": map[codes.Code]string{
			codes.InvalidArgument: "invalid", codes.Unavailable: "unavailable", codes.ResourceExhausted: "overloaded",
		}[status.Code(err)]}
	}
	decides := -1
	for i, s := range response.Statuses {
		if s.CurrentLimit == nil {
			continue
		}
		over := s.Code == pb.RateLimitResponse_OVER_LIMIT
		if shadow := d.shadow(list[i]); shadow {
			continue
		}
		if decides < 0 {
			decides = i
			continue
		}
		least := response.Statuses[decides]
		switch was := least.Code == pb.RateLimitResponse_OVER_LIMIT; {
		case over && !was, over && was && s.DurationUntilReset.AsDuration() > least.DurationUntilReset.AsDuration(),
			!over && !was && s.LimitRemaining < least.LimitRemaining:
			decides = i
		}
	}
	s := said{"verdict": "admitted"}
	if decides >= 0 {
		one := response.Statuses[decides]
		s["left"] = fmt.Sprintf("%d of %d", one.LimitRemaining, one.CurrentLimit.RequestsPerUnit)
	}
	if response.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		rule := list[decides].Entries[0].Key
		s["verdict"] = "denied by " + rule[:strings.LastIndexByte(rule, '.')]
	}
	return s
}

// shadow reports whether a descriptor is of a rule in shadow.
func (d *envoyDriver) shadow(one *common.RateLimitDescriptor) bool {
	key := one.Entries[0].Key
	rule, _ := d.set.Rule(key[:strings.LastIndexByte(key, '.')])
	return rule.OnExceed == rules.Shadow
}
