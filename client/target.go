package client

import (
	"fmt"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
)

// A target is what a policy is to the service, with everything that can be known
// about it before an operation comes.
type target struct {
	algorithm, policy string // one of them is empty
	unknown           error  // why the service can't be asked for the policy
	noTry             error  // why it can't be asked to try
	noEach            error  // why it can't be asked for each limit's outcome
}

// targetOf returns the policy's target, which the policy carries.
func (c *Client) targetOf(policy *stint.Policy) *target {
	t, _ := policy.Prepared(c, func() any { return c.newTarget(policy) }).(*target)
	return t
}

func (c *Client) newTarget(policy *stint.Policy) *target {
	t := &target{policy: policy.Name()}
	if t.policy == "" {
		t.algorithm = policy.Limit(0).Algorithm.String()
		if policy.Len() > 1 || !slices.Contains(c.defaults, policy.Limit(0)) {
			t.unknown = stint.Invalid("policy", unnamed(policy),
				"a policy with the name that it has in the service, or the service's default limit of an algorithm")
		}
	}
	if slices.ContainsFunc(policy.Limits(), func(l stint.Limit) bool { return l.CountDenied }) {
		t.noTry = stint.Invalid("verb", stint.Try, "take, peek, reset or settle: the service has no try, and take counts denied requests of this policy")
	}
	if n := policy.Len(); n > 1 {
		t.noEach = stint.Invalid("each", fmt.Sprintf("of %d limits", n), "none, or a policy of one limit: the service tells the deciding limit's outcome")
	}
	return t
}

// unnamed describes a policy without a name that the service can't be asked for.
func unnamed(policy *stint.Policy) string {
	if n := policy.Len(); n > 1 {
		return fmt.Sprintf("one of %d limits without a name", n)
	}
	limit := policy.Limit(0)
	return fmt.Sprintf("a %s of %d without a name, which is not the default", limit.Algorithm, limit.Capacity)
}

// phrase writes an operation as a request, or says why it can't be.
func (c *Client) phrase(op *stint.Op) (api.Request, error) {
	if err := op.Validate(); err != nil {
		return api.Request{}, err
	}
	if err := checkKey(op.Key); err != nil {
		return api.Request{}, err
	}
	if n := len(op.And); n > 0 {
		return api.Request{}, stint.Invalid("claims", n+1, "1: the service decides for one key at a time")
	}
	t := c.targetOf(op.Policy)
	for _, fault := range []struct {
		applies bool
		err     error
	}{
		{true, t.unknown},
		{op.Verb == stint.Try, t.noTry},
		{op.Each != nil, t.noEach},
	} {
		if fault.applies && fault.err != nil {
			return api.Request{}, fault.err
		}
	}
	if op.Verb == stint.Reset && op.Each != nil {
		return api.Request{}, stint.Invalid("each", "of a reset", "none: the service tells nothing of what it made as new")
	}
	request := api.Request{Key: op.Key, Algorithm: t.algorithm, Policy: t.policy}
	if op.Verb != stint.Reset {
		request.Permits = op.Permits
	}
	return request, nil
}
