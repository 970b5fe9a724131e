package grpclimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/stint-go/stint"
)

// A plain gate decides by the limits of one policy.
type plain struct {
	config  Config
	denials *denials
}

func (p *plain) charge(ctx context.Context, c *call, request any, _ bool) error {
	cost, err := p.config.Cost(ctx, c.method, request)
	if err != nil {
		return failed(ctx, err)
	}
	if cost == 0 {
		return nil
	}
	if c.key == "" {
		if c.key, err = p.config.Key(ctx, c.method); err != nil {
			return failed(ctx, err)
		}
	}
	c.decision, err = p.allow(ctx, c.key, cost)
	if errors.Is(err, stint.ErrDeadline) {
		c.decision.Allowed, c.decision.RetryAfter, err = false, c.decision.Delay, nil // a turn that the call does not last for
	}
	if err != nil {
		return failed(ctx, err)
	}
	c.decided, c.policy = true, p.config.Limiter.Policy()
	if !c.decision.Allowed {
		return p.denials.of(c.decision)
	}
	return nil
}

// allow asks the limiter, and no longer than it may take. The turn of a leaky bucket has to come
// before the call's own deadline.
func (p *plain) allow(ctx context.Context, key string, cost int64) (stint.Decision, error) {
	deadline, _ := ctx.Deadline()
	if p.config.Timeout == 0 {
		return p.config.Limiter.AllowBefore(ctx, deadline, key, cost, nil)
	}
	bounded, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	d, err := p.config.Limiter.AllowBefore(bounded, deadline, key, cost, nil)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, stint.ErrDeadline) && ctx.Err() == nil {
		return d, fmt.Errorf("%w: no decision within %s", stint.ErrUnavailable, p.config.Timeout)
	}
	return d, err
}
