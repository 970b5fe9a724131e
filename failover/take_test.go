package failover_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// counted is a store that watches itself, and counts how it is asked about policies, but for the one of probes.
type counted struct {
	stint.Store
	takes, decides int
	timeout        time.Duration // of the last operation
	err            error
	policies       []*stint.Policy
}

func (s *counted) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{Count: 1} }

func (s *counted) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	if s.takes++; s.err != nil {
		return stint.Decision{}, s.err
	}
	return s.Store.Take(ctx, policy, key, n)
}

func (s *counted) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if slices.Contains(s.policies, op.Policy) {
		s.decides, s.timeout = s.decides+1, op.Timeout
	}
	return s.Store.Decide(ctx, op)
}

func TestTakeIsForwarded(t *testing.T) {
	const own = 7 * time.Second
	named := func(name string) *stint.Policy {
		policy := must.Get(stint.NewPolicy(name, stint.FixedWindow(2, time.Hour)))(t)
		return policy
	}
	usual, slow := named("usual"), named("slow")
	inner := &counted{Store: memstore.New(memstore.Config{}), policies: []*stint.Policy{usual, slow}}
	store := must.Get(failover.New(inner, failover.Config{
		Timeout: time.Minute, Mode: failover.Closed,
		ForPolicy: func(p *stint.Policy) (failover.PolicyOptions, bool) {
			return failover.PolicyOptions{Mode: failover.Open, Timeout: own}, p == slow
		},
	}))(t)
	t.Cleanup(store.Close)
	for _, want := range []bool{true, true, false} {
		if d, err := store.Take(t.Context(), usual, "k", 1); err != nil || d.Allowed != want {
			t.Errorf("%v, %v; want allowed: %t", d, err, want)
		}
	}
	if inner.takes != 3 || inner.decides != 0 {
		t.Errorf("asked by %d takes and %d operations, want 3 and 0", inner.takes, inner.decides)
	}
	if d, err := store.Take(t.Context(), slow, "k", 1); err != nil || !d.Allowed || inner.timeout != own {
		t.Errorf("a policy with a timeout of its own: %v, %v, within %s; want it within %s", d, err, inner.timeout, own)
	}
	if _, err := store.Take(t.Context(), usual, "k", 0); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("0 permits: %v, want ErrInvalid", err)
	}
	inner.err = stint.ErrUnavailable
	if d, err := store.Take(t.Context(), usual, "k", 1); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("a store that can't decide, closed: %v, %v", d, err)
	}
}
