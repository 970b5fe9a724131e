package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/httplimit"
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

// A KeyFunc names the client that a call is charged to. fullMethod reads
// /package.Service/Method; ctx carries the peer and the incoming metadata. It must
// be safe for concurrent use, and not block where a tap handle calls it.
//
// An error refuses the call: one with a gRPC status of its own by that, one that
// wraps stint.ErrInvalid with INVALID_ARGUMENT, stint.ErrUnavailable with
// UNAVAILABLE, any other with INTERNAL.
type KeyFunc func(ctx context.Context, fullMethod string) (string, error)

// A CostFunc says how many permits a call costs. request is the request of a unary
// call and the message of a message; it is nil where a stream starts and in a tap
// handle, which comes before the request. A cost of 0 admits without asking the
// limiter. Errors are as those of a KeyFunc.
type CostFunc func(ctx context.Context, fullMethod string, request any) (int64, error)

// A Config says what a [Server] of plain limits is made of.
type Config struct {
	// Limiter decides. It must not be nil.
	Limiter *stint.Limiter
	// Key names the client. Default: nil, the address of the peer, no proxy believed;
	// see [ByAddress].
	Key KeyFunc
	// Cost is what a call costs. Default: nil, 1.
	Cost CostFunc
	// Messages charges the client's messages on streams too, one by one as the handler
	// receives them, besides the start of the stream. Default: false, the start alone.
	Messages bool
	// Timeout bounds how long the store may take for one decision; a call that it does
	// not decide in time is refused with UNAVAILABLE. Default: 0, no bound but the
	// call's own deadline and what the store sets itself.
	Timeout time.Duration
	// NoMetadata leaves out the metadata about the limit. Default: false.
	NoMetadata bool
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c Config) Validate() error {
	var faults []error
	if c.Limiter == nil {
		faults = append(faults, stint.Invalid("limiter", "nil", "a limiter made by stint.New or stint.NewLimiter"))
	}
	if c.Timeout < 0 {
		faults = append(faults, stint.Invalid("timeout", c.Timeout, "0 or more"))
	}
	return errors.Join(faults...)
}

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

// names are the metadata that a call can carry.
var names = [...]string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"}

// told are the header fields that are told as metadata.
const told = httplimit.XRateLimit | httplimit.RetryAfter

// rate writes the metadata of decisions: the header fields that HTTP has for them.
type rate struct {
	fields [len(names)]string // names as HTTP spells them
}

func newRate() *rate {
	r := new(rate)
	for i, name := range names {
		r.fields[i] = http.CanonicalHeaderKey(name)
	}
	return r
}

// of is the metadata of a call, nil when there is nothing to say.
func (r *rate) of(c *call) metadata.MD {
	if r == nil || c.policy == nil && c.header == nil || c.decision.Degraded {
		return nil
	}
	header := c.header
	if header == nil {
		header = make(http.Header, len(names))
		httplimit.HeadersOf(c.policy, told).Write(header, c.decision, nil)
	}
	md := make(metadata.MD, len(names))
	for i, name := range names {
		if values := header[r.fields[i]]; values != nil {
			md[name] = values
		}
	}
	if len(md) == 0 {
		return nil
	}
	return md
}
