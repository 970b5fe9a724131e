package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
)

// A Server limits the calls that a grpc.Server gets. It is immutable and safe for
// concurrent use; make it with [New].
//
// A call is decided once: what the tap handle has decided, the interceptors of the
// same Server take over and don't decide again.
type Server struct {
	config  Config
	denials *denials
	rate    *rate // nil when no metadata is wanted
}

// New makes a server's limits, or reports everything that is wrong with the
// configuration.
func New(config Config) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Key == nil {
		byPeer, err := ByAddress(clientip.Config{})
		if err != nil {
			return nil, err
		}
		config.Key = byPeer
	}
	if config.Cost == nil {
		config.Cost = costOfOne
	}
	denials, err := newDenials(config.Limiter.Policy())
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, denials: denials}
	if !config.NoMetadata {
		s.rate = newRate(config.Limiter.Policy())
	}
	return s, nil
}

func costOfOne(context.Context, string, any) (int64, error) { return 1, nil }

// A call is what is known of one call. One goroutine at a time uses it.
type call struct {
	method   string
	key      string // "" until something was charged
	decided  bool   // whether the limiter was asked
	decision stint.Decision
}

// charge charges a call or a message of it. The error is what the call ends with.
func (s *Server) charge(ctx context.Context, c *call, request any) error {
	c.decided = false
	cost, err := s.config.Cost(ctx, c.method, request)
	if err != nil {
		return failed(ctx, err)
	}
	if cost == 0 {
		return nil
	}
	if c.key == "" {
		if c.key, err = s.config.Key(ctx, c.method); err != nil {
			return failed(ctx, err)
		}
	}
	c.decision, err = s.allow(ctx, c.key, cost)
	if err != nil {
		return failed(ctx, err)
	}
	c.decided = true
	if !c.decision.Allowed {
		return s.denials.of(c.decision)
	}
	return nil
}

// allow asks the limiter, and no longer than it may take.
func (s *Server) allow(ctx context.Context, key string, cost int64) (stint.Decision, error) {
	if s.config.Timeout == 0 {
		return s.config.Limiter.AllowN(ctx, key, cost)
	}
	bounded, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	d, err := s.config.Limiter.AllowN(bounded, key, cost)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return d, fmt.Errorf("%w: no decision within %s", stint.ErrUnavailable, s.config.Timeout)
	}
	return d, err
}

// hold waits for the turn that a leaky bucket gave. A turn that is not reached
// stays taken.
func hold(ctx context.Context, c *call) error {
	if !c.decided || c.decision.Delay <= 0 {
		return nil
	}
	if err := sleep(ctx, c.decision.Delay); err != nil {
		return failed(ctx, err)
	}
	return nil
}

// sleep waits, or returns at once when the context ends before that.
func sleep(ctx context.Context, d time.Duration) error {
	if deadline, bounded := ctx.Deadline(); bounded && d > time.Until(deadline) {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
