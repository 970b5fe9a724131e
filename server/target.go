package server

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
)

// A target is what an algorithm's or a policy's name stands for, with everything
// that can be known about it before a request comes.
type target struct {
	name     string // the policy's name; "" for an algorithm's default
	rule     string // what activity has in the place of a rule
	policy   *stint.Policy
	headers  *httplimit.Headers
	capacity int64             // the least of its limits': the highest cost that can ever be admitted
	least    int32             // the limit that has it
	deciders []stint.Algorithm // the algorithm of each limit
}

// policyPrefix begins the names under which the state of configured policies is kept, apart from that of the
// defaults, which have none, of rules and of programs' limiters.
const policyPrefix = "policy/"

func newTarget(name string, fields httplimit.Fields, limits ...stint.Limit) (*target, error) {
	kept := ""
	if name != "" {
		kept = policyPrefix + name
	}
	policy, err := stint.NewPolicy(kept, limits...)
	if err != nil {
		return nil, err
	}
	t := &target{name: name, rule: cmp.Or(kept, "algorithm/"+limits[0].Algorithm.String()), policy: policy, headers: httplimit.NewHeaders(policy, fields), capacity: stint.MaxPermits + 1}
	for i, limit := range limits {
		if limit.Capacity < t.capacity {
			t.capacity, t.least = limit.Capacity, int32(i)
		}
		t.deciders = append(t.deciders, limit.Algorithm)
	}
	return t, nil
}

// algorithm is the deciding limit's.
func (t *target) algorithm(d *stint.Decision) stint.Algorithm { return t.deciders[d.Index] }

// targets finds what a request is about. It is immutable.
type targets struct {
	defaults [stint.AlgorithmSlidingWindowCounter + 1]*target
	policies map[string]*target
	all      []*target // the defaults and the policies, in a fixed order
	names    string    // of the policies, for error messages

	unknown UnknownAlgorithm
}

func newTargets(config *Config) (*targets, error) {
	ts := &targets{policies: map[string]*target{}, names: "none is configured", unknown: config.API.UnknownAlgorithm}
	for _, algorithm := range stint.Algorithms() {
		t, err := newTarget("", config.Headers, config.Defaults[algorithm])
		if err != nil {
			return nil, fmt.Errorf("defaults: %s: %w", algorithm, err)
		}
		ts.defaults[algorithm] = t
		ts.all = append(ts.all, t)
	}
	names := slices.Sorted(maps.Keys(config.Policies))
	for _, name := range names {
		t, err := newTarget(name, config.Headers, config.Policies[name]...)
		if err != nil {
			return nil, fmt.Errorf("policies: %s: %w", name, err)
		}
		ts.policies[name] = t
		ts.all = append(ts.all, t)
	}
	const most = 20
	if n := len(names); n > most {
		names = append(names[:most:most], fmt.Sprintf("and %d more", n-most))
	}
	if len(names) > 0 {
		ts.names = strings.Join(names, ", ")
	}
	return ts, nil
}

// find returns what the request names: its policy, its algorithm, or TOKEN_BUCKET. fallback says that TOKEN_BUCKET stands for
// an algorithm that does not exist.
func (ts *targets) find(q *request) (found *target, fallback bool, err error) {
	switch {
	case q.has(policyMember) && q.has(algorithmMember):
		return nil, false, badRequest(fmt.Sprintf("policy is %q beside algorithm %q; allowed: one of the two",
			clip(q.policy), clip(q.algorithm)))
	case q.has(policyMember):
		t, ok := ts.policies[q.policy]
		if !ok {
			return nil, false, stint.Invalid("policy", clip(q.policy), ts.names)
		}
		return t, false, nil
	case !q.has(algorithmMember) || q.algorithm == "TOKEN_BUCKET":
		return ts.defaults[stint.AlgorithmTokenBucket], false, nil
	default:
		algorithm, err := stint.ParseAlgorithm(clip(q.algorithm))
		switch {
		case err == nil:
			return ts.defaults[algorithm], false, nil
		case ts.unknown == FallBackOnUnknown:
			return ts.defaults[stint.AlgorithmTokenBucket], true, nil
		default:
			return nil, false, err
		}
	}
}

// cost is the permits that a check asks for, which its limits must be able to
// grant.
func (t *target) cost(q *request) (int64, error) {
	if !q.has(permitsMember) {
		return 1, nil
	}
	n, err := parseInteger(q.permits)
	if err != nil || n < 1 || n > t.capacity {
		return 0, stint.Invalid("permits", clip(q.permits), fmt.Sprintf("an integer from 1 to %d", t.capacity))
	}
	return n, nil
}
