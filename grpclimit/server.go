package grpclimit

import (
	"context"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/ends"
	"github.com/stint-go/stint/internal/sleep"
)

// A Server limits the calls that a grpc.Server gets. It is safe for concurrent use; make it with [New] or [NewRules].
//
// A call is decided once: what the tap handle has decided, the interceptors of the
// same Server take over and don't decide again.
type Server struct {
	// decide describes and decides a call or a message of it. Where it may not hold, it returns at once, but
	// for what the store takes.
	decide func(ctx context.Context, c *call, request any, mayHold bool, e *enforce.Evaluation) error
	// reserves says that decide holds what a call costs, in the interceptors
	reserves    bool
	messages    bool
	silent      bool // whether no metadata is wanted
	evaluations enforce.Evaluations
	failed      func(ctx context.Context, fullMethod string, err error) // nil: nobody is told
	ends        ends.Queue                                              // of holds, which failed
}

// New makes a server's plain limits, or reports everything that is wrong with the configuration.
func New(config Config) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	key, err := keyOrPeer(config.Key)
	if err != nil {
		return nil, err
	}
	each := headersOf(config.Limiter.Policy()).NeedsEach()
	decide := func(ctx context.Context, c *call, request any, _ bool, e *enforce.Evaluation) error {
		cost, err := costOf(ctx, config.Cost, c.method, request)
		c.free = cost == 0
		if err == nil && !c.free && c.key == "" {
			c.key, err = key(ctx, c.method)
		}
		if err != nil {
			return err
		}
		if config.Reserve != nil {
			c.cost = new(enforce.RunningCost)
			return e.Verdict.ReservePlain(ctx, config.Limiter, c.key, cost, each, *config.Reserve, c.cost)
		}
		deadline, _ := ctx.Deadline()
		return e.Verdict.DecidePlain(ctx, config.Limiter, c.key, cost, each, deadline)
	}
	return &Server{
		decide: decide, reserves: config.Reserve != nil, messages: config.Messages, silent: config.NoMetadata,
		failed: config.Failed,
	}, nil
}

// keyOrPeer is the function, or by default one that takes the address of the peer.
func keyOrPeer(key KeyFunc) (KeyFunc, error) {
	if key != nil {
		return key, nil
	}
	return ByAddress(clientip.Config{})
}

// costOf is what a function says that a call costs, 1 without one.
func costOf(ctx context.Context, cost CostFunc, method string, request any) (int64, error) {
	if cost == nil {
		return 1, nil
	}
	return cost(ctx, method, request)
}

// A call is what is known of one call. One goroutine at a time uses it. A stream with messages is
// one call, whose decision is that of the last message.
type call struct {
	method string
	key    string // "" until something was charged
	// whether it was admitted without asking a limit, as it costs nothing
	free     bool
	decision stint.Decision
	// of a denial by a policy whose Retry-After depends on them
	each []stint.Outcome
	// whose the decision is, nil when no limit was asked
	policy *stint.Policy
	// of a service that decided, nil when none did
	header http.Header
	cost   *enforce.RunningCost // of one that holds; nil: calls take
}

// charge charges a call or a message of it. The error is what the call ends with. The evaluation
// goes back to the pool when it returns; what the call needs later is copied.
func (s *Server) charge(ctx context.Context, c *call, request any, mayHold bool) error {
	e := s.evaluations.Get()
	defer s.evaluations.Put(e)
	v := &e.Verdict
	c.free, c.decision, c.each, c.policy, c.header = false, stint.Decision{}, nil, nil, nil
	if err := s.decide(ctx, c, request, mayHold, e); err != nil {
		return failed(ctx, err)
	}
	c.decision, c.policy = v.Decision, v.Claim.Policy
	if v.Remote != nil {
		c.header = v.Remote.Header
	}
	if !v.Allowed && c.policy != nil && headersOf(c.policy).NeedsEach() {
		c.each = slices.Clone(v.Each)
	}
	return denial(v)
}

// hold waits for the turn that a leaky bucket gave, which the call's deadline allows. The turn of
// a call that ends meanwhile stays taken.
func hold(ctx context.Context, c *call) error {
	if err := sleepWithin(ctx, c.decision.Delay); err != nil {
		return failed(ctx, err)
	}
	return nil
}

// sleepWithin waits, or returns at once when the context ends before that. A turn after the
// deadline is not waited for, as its answer would come too late for anybody.
func sleepWithin(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
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

// A CostFunc says how many permits a call costs. request is the request of a unary call and the
// message of a message; it is nil where a stream starts and in a tap handle, which comes before the
// request. A cost of 0 admits without asking the limiter. Errors are as those of a KeyFunc.
type CostFunc func(ctx context.Context, fullMethod string, request any) (int64, error)

// A Config says what a [Server] of plain limits is made of.
type Config struct {
	// Limiter decides. It must not be nil.
	Limiter *stint.Limiter
	// Key names the client. Default: nil, the address of the peer, no proxy believed; see [ByAddress].
	Key KeyFunc
	// Cost is what a call costs. Default: nil, 1.
	Cost CostFunc
	// Reserve holds what a call costs while its handler runs, in the place of taking it, and renews the
	// hold: so a call takes a place of stint.Concurrency, or what it may cost at most. When the handler is
	// done, or panics, the hold is committed with the cost that it has said by [Cost], or with what is
	// held. The handler's context ends, with stint.ErrLost as its cause, when the hold is lost.
	// Interceptors alone hold: a tap handle decides nothing then. It must have no ID. Default: nil, calls
	// take. Not with Messages.
	//
	// A commit that fails is sent again in the background until the store forgets the hold: max(2 x TTL,
	// 60 s) after it expires. A Server repeats 10,000 at most; further ones are given up. Failed is told
	// of each, and Drain waits for them.
	Reserve *stint.Hold
	// Failed is told when a call's hold could not be committed: an enforce.EndError, which carries the
	// hold. Where that is Repeated and given up in the end, it is told again, in another goroutine.
	// Default: nil, nobody is told.
	Failed func(ctx context.Context, fullMethod string, err error)
	// Messages charges the client's messages on streams too, one by one as the handler
	// receives them, besides the start of the stream. Default: false, the start alone.
	Messages bool
	// NoMetadata leaves out the metadata about the limit. Default: false.
	NoMetadata bool
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c Config) Validate() error {
	if c.Limiter == nil {
		return stint.Invalid("limiter", "nil", "a limiter made by stint.New or stint.NewLimiter")
	}
	places := slices.ContainsFunc(c.Limiter.Policy().Limits(), func(l stint.Limit) bool {
		return l.Algorithm == stint.AlgorithmConcurrency
	})
	switch {
	case c.Reserve == nil && places:
		return stint.Invalid("reserve", "nil", "a hold, since the limiter has a concurrency limit")
	case c.Reserve != nil && c.Reserve.ID != "":
		return stint.Invalid("reserve.id", c.Reserve.ID, "none: each call has a hold of its own")
	case c.Reserve != nil && c.Messages:
		return stint.Invalid("messages", true, "false where calls hold what they cost")
	}
	return nil
}

// Cost is the cost of the call whose context it is, for handlers behind a [Server] with [Config.Reserve] to say what it
// turns out to be. Without one, what it is told has no effect.
func Cost(ctx context.Context) *enforce.RunningCost { return enforce.CostOf(ctx) }

// names are the metadata that a call can carry, and the header fields that HTTP has for them.
// Metadata keys are in lower case (gRPC over HTTP/2), and httplimit's in the canonical form of
// net/http.
var names = [...]struct{ metadata, field string }{
	{"x-ratelimit-limit", "X-Ratelimit-Limit"},
	{"x-ratelimit-remaining", "X-Ratelimit-Remaining"},
	{"x-ratelimit-reset", "X-Ratelimit-Reset"},
	{"retry-after", "Retry-After"},
}

// rate is the metadata of a call's decision, nil when there is nothing to say. It asks httplimit
// for the values, so that both transports say the same of one decision.
func (s *Server) rate(c *call) metadata.MD {
	if s.silent || c.policy == nil && c.header == nil || c.decision.Degraded {
		return nil
	}
	header := c.header
	if header == nil {
		header = make(http.Header, len(names))
		headersOf(c.policy).Write(header, c.decision, c.each)
	}
	var md metadata.MD
	for _, name := range names {
		if values := header[name.field]; values != nil {
			if md == nil {
				md = make(metadata.MD, len(names))
			}
			md[name.metadata] = values
		}
	}
	return md
}

// headersOf are httplimit's of a policy, in the fields that a call's metadata have.
func headersOf(policy *stint.Policy) *httplimit.Headers {
	return httplimit.HeadersOf(policy, httplimit.XRateLimit|httplimit.RetryAfter)
}
