package grpclimit

import (
	"context"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/sleep"
)

// A Server limits the calls that a grpc.Server gets. It is immutable and safe for
// concurrent use; make it with [New] or [NewRules].
//
// A call is decided once: what the tap handle has decided, the interceptors of the
// same Server take over and don't decide again.
type Server struct {
	gate     gate
	messages bool
	rate     *rate // nil when no metadata is wanted
}

// A gate decides calls. The error is what a call ends with. Where it may not hold, it returns at
// once, but for what the store takes.
type gate interface {
	charge(ctx context.Context, c *call, request any, mayHold bool) error
}

// New makes a server's plain limits, or reports everything that is wrong with the
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
	denials, err := denialsOf(config.Limiter.Policy())
	if err != nil {
		return nil, err
	}
	return newServer(&plain{config: config, denials: denials}, config.Messages, config.NoMetadata), nil
}

func newServer(gate gate, messages, noMetadata bool) *Server {
	s := &Server{gate: gate, messages: messages}
	if !noMetadata {
		s.rate = newRate()
	}
	return s
}

func costOfOne(context.Context, string, any) (int64, error) { return 1, nil }

// A call is what is known of one call. One goroutine at a time uses it.
type call struct {
	method   string
	key      string // "" until something was charged
	decided  bool   // whether there is a decision
	decision stint.Decision
	policy   *stint.Policy // whose the decision is, nil when no limit was asked
	header   http.Header   // of a service that decided, nil when none did
}

// charge charges a call or a message of it. The error is what the call ends with.
func (s *Server) charge(ctx context.Context, c *call, request any, mayHold bool) error {
	c.decided, c.policy, c.header = false, nil, nil
	return s.gate.charge(ctx, c, request, mayHold)
}

// hold waits for the turn that a leaky bucket gave, which the call's deadline allows. The turn of
// a call that ends meanwhile stays taken.
func hold(ctx context.Context, c *call) error {
	if !c.decided || c.decision.Delay <= 0 {
		return nil
	}
	if err := sleepWithin(ctx, c.decision.Delay); err != nil {
		return failed(ctx, err)
	}
	return nil
}

// sleepWithin waits, or returns at once when the context ends before that.
func sleepWithin(ctx context.Context, d time.Duration) error {
	if deadline, bounded := ctx.Deadline(); bounded && d > time.Until(deadline) {
		return context.DeadlineExceeded
	}
	return sleep.For(ctx, d)
}
