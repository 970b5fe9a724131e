package grpclimit

import (
	"context"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/ends"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/running"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/rules"
)

// A Server limits the calls that a grpc.Server gets. It is safe for concurrent use; make it with [New].
//
// A call is decided once: what the tap handle has decided, the interceptors of the
// same Server take over and don't decide again.
type Server struct {
	config  Config
	server  adapt.Server
	plain   adapt.Plain[charged]
	clients *clientip.Resolver
	// decide describes and decides a call or a message of it: byPlain or byRules. Where it may not hold, it returns at
	// once, but for what the store takes.
	decide      func(ctx context.Context, c *call, request any, mayHold bool, e *adapt.Evaluation) error
	evaluations adapt.Evaluations
	ends        ends.Queue // of holds, which failed
}

// New makes a server's limits, or reports everything that is wrong with the configuration.
//
// By rules, a call is decided by all that match it; one that matches none is admitted, unless the limiter denies by
// default. The interceptors hold a call as long as rules that wait do; the tap handle refuses it instead. A
// call whose turn of a leaky bucket comes after its deadline is denied. A denied call's
// QuotaFailure names the rule that denied: rule:ID, or rule:ID/LIMIT when the limit has a name. A
// call that is denied by no limit, since a rule bans it or it lacks what a rule asks for, gets no
// RetryInfo.
func New(config Config) (*Server, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Server{config: config, server: config.server(), clients: config.Clients}
	if s.clients == nil { // one that trusts nobody
		var err error
		if s.clients, err = clientip.New(clientip.Config{}); err != nil {
			return nil, err
		}
	}
	s.plain = s.plainOf()
	s.decide = s.byPlain
	if config.Rules != nil {
		s.decide = s.byRules
	}
	return s, nil
}

// byPlain decides by plain limits.
func (s *Server) byPlain(ctx context.Context, c *call, request any, _ bool, e *adapt.Evaluation) error {
	return s.plain.Decide(ctx, &s.server, charged{ctx, c, request, e}, c.cost, e)
}

// charged is a call, or a message of it, that is decided.
type charged struct {
	ctx context.Context //nolint:containedctx // it lives as long as the decision
	*call
	request any
	e       *adapt.Evaluation
}

// plainOf is what plain limits have to know of a call.
func (s *Server) plainOf() (p adapt.Plain[charged]) {
	if s.config.Cost != nil {
		p.Cost = func(of charged) (int64, error) {
			cost, err := s.config.Cost(of.ctx, of.method, of.request)
			of.free = err == nil && cost == 0
			return cost, err
		}
	}
	if s.config.LimiterOf != nil {
		p.LimiterOf = func(of charged) (*stint.Limiter, error) { return s.config.LimiterOf(of.ctx, of.method) }
		p.Keeps = func(err error) bool { // one with a status of its own
			_, ok := status.FromError(err)
			return err != nil && ok
		}
	}
	p.Key = func(of charged) (key string, err error) {
		if of.key == "" {
			of.key, err = s.key(of.ctx, of.method, of.e)
		}
		return of.key, err
	}
	p.NeedsEach = func(policy *stint.Policy) bool { return headersOf(policy).NeedsEach() }
	return p
}

// key is whom a call counts for.
func (s *Server) key(ctx context.Context, method string, e *adapt.Evaluation) (string, error) {
	if s.config.Key != nil {
		return s.config.Key(ctx, method)
	}
	return s.address(ctx, e), nil
}

// byRules decides by rules.
func (s *Server) byRules(ctx context.Context, c *call, _ any, mayHold bool, e *adapt.Evaluation) error {
	md, _ := metadata.FromIncomingContext(ctx)
	describe(e, c.method, md)
	if authority := md[":authority"]; len(authority) == 1 {
		e.Request.Host = authority[0]
	}
	e.Request.Address = s.address(ctx, e)
	if s.config.Describe != nil {
		if err := s.config.Describe(ctx, c.method, &e.Request); err != nil {
			return err
		}
	}
	return s.server.DecideByRules(ctx, mayHold, c.cost, e)
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
	cost   *running.Cost // of one that holds; nil: calls take
}

// charge charges a call or a message of it. The error is what the call ends with. The evaluation
// goes back to the pool when it returns; what the call needs later is copied.
func (s *Server) charge(ctx context.Context, c *call, request any, mayHold bool) error {
	e := s.evaluations.Get()
	defer s.evaluations.Put(e)
	v := &e.Verdict
	c.free, c.decision, c.each, c.policy, c.header = false, stint.Decision{}, nil, nil, nil
	if err := s.decide(ctx, c, request, mayHold, e); err != nil {
		return s.fail(ctx, c, err)
	}
	if s.config.Decided != nil {
		s.config.Decided(ctx, c.method, v)
	}
	c.decision, c.policy = v.Decision, v.Claim.Policy
	if v.Remote != nil {
		c.header = v.Remote.Header
	}
	if !v.Allowed && c.policy != nil && headersOf(c.policy).NeedsEach() {
		c.each = slices.Clone(v.Each)
	}
	if !v.Allowed && s.config.Denied != nil {
		if err := s.config.Denied(ctx, c.method, v); err != nil {
			return err
		}
	}
	return denial(v)
}

// fail tells of a call that was not decided, and is what it ends with.
func (s *Server) fail(ctx context.Context, c *call, err error) error {
	if s.config.Failed != nil {
		s.config.Failed(ctx, c.method, err)
	}
	return failed(ctx, err)
}

// hold waits for the turn that a leaky bucket gave, which the call's deadline allows. The turn of
// a call that ends meanwhile stays taken.
func (s *Server) hold(ctx context.Context, c *call) error {
	if err := sleepWithin(ctx, c.decision.Delay); err != nil {
		return s.fail(ctx, c, err)
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

// A Config says what a [Server] is made of: one of Limiter, LimiterOf and Rules; the rest has defaults. Its
// functions must be safe for concurrent use, and must not keep the verdicts and descriptions that they are given. They
// must not block where a tap handle calls them.
//
// In its functions fullMethod reads /package.Service/Method; ctx carries the peer and the incoming metadata. An
// error of one that finds something refuses the call: one with a gRPC status of its own by that, one that
// wraps stint.ErrInvalid with INVALID_ARGUMENT, stint.ErrUnavailable with
// UNAVAILABLE, any other with INTERNAL.
type Config struct {
	// Limiter decides by plain limits. Wrap a store that may be unreachable in one of package failover, which says what
	// happens then. Default: nil, LimiterOf or Rules do.
	Limiter *stint.Limiter
	// LimiterOf finds the limiter of a call, or of a message, for limits that depend on who asks, as those of a plan
	// do: stint.Limiter.With makes them quickly. A call whose limiter is nil, without an error, is not limited, and gets
	// no metadata. An error is answered as the store's: unless it has a status of its own, it wraps stint.ErrInvalid, or
	// is made to wrap stint.ErrUnavailable. Default: nil, Limiter or Rules decide.
	LimiterOf func(ctx context.Context, fullMethod string) (*stint.Limiter, error)
	// Rules decide by all that match a call: an enforce.Limiter, whose rules may be swapped while calls come,
	// or Rules of package client, which are those of a service. To rules a call is a request of method
	// POST to the host of its :authority, whose path is the full method, and whose header is the incoming
	// metadata. Default: nil, plain limits do.
	Rules enforce.Decider

	// Key is whom a call counts for by plain limits, 1 to 256 bytes. A stream is asked for once. Default:
	// nil, the client's address as Clients finds it.
	Key func(ctx context.Context, fullMethod string) (string, error)
	// Cost is how many permits a call takes by plain limits. request is the request of a unary call and the
	// message of a message; it is nil where a stream starts and in a tap handle, which comes before the
	// request. At 0 the call is admitted without asking for the limiter or the key. Default: nil, 1.
	Cost func(ctx context.Context, fullMethod string, request any) (int64, error)
	// Describe completes what Rules know of a call: its user and API key, as far as they are
	// known for certain, and its attributes, for which it makes a map. The rest is there, the address as Clients finds
	// it; it may change it. What the client merely claims, such as a user in the metadata, must have been
	// checked by then. Default: nil, calls have no user, API key and attributes.
	Describe func(ctx context.Context, fullMethod string, r *rules.Request) error
	// Clients finds the client's address: the peer's, or, where the peer is a trusted proxy, the one that the
	// incoming metadata of the configured names tell. All peers that have no address, as on a Unix socket, are the
	// client "unknown". It must be nil when there is a Key. Default: nil, one that trusts no proxy: a client is its peer.
	Clients *clientip.Resolver

	// Reserve holds what a call costs while its handler runs, in the place of taking it, and renews the
	// hold: so a call takes a place of stint.Concurrency, or what it may cost at most. When the handler is
	// done, or panics, the hold is committed with the cost that it has said by [Cost], or with what is
	// held. The handler's context ends, with stint.ErrLost as its cause, when the hold is lost.
	// Interceptors alone hold: a tap handle decides nothing then. It must have no ID. Default: nil, calls
	// take. Not with Messages.
	//
	// By rules, the handler says the cost of the limits whose cost requests may name, or of all if there is none.
	// Rules with a concurrency limit hold only so, and a rule's own reserve says how long and what expiry charges.
	// Rules that wait deny at once. Only an enforce.Limiter holds.
	//
	// Rules that count by answers hold only so as well. A call's status is what google/rpc/code.proto says that HTTP has
	// for its code: 401 for UNAUTHENTICATED, 499 for CANCELLED.
	//
	// A commit that fails is sent again in the background until the store forgets the hold: max(2 x TTL,
	// 60 s) after it expires. A Server repeats 10,000 at most; further ones are given up. Failed is told
	// of each, and Drain waits for them.
	Reserve *stint.Hold
	// Count says which calls plain limits count, by the codes that they end with: five failed logins, say. A call
	// holds what it costs while its handler runs, by Reserve or, without one, by a hold of a minute that is renewed. It
	// gets it back if Count says false, but for limits with a cost of their own. One that has no answer since its process
	// died is counted. A panic is INTERNAL; the error of a context that has ended is CANCELLED or DEADLINE_EXCEEDED.
	// Denied only by what calls under way hold, a call is told to come again after a second. Leaky buckets, CountDenied
	// and Lease can't give back, and are faults. Default: nil, all are counted. Not with Rules, whose rules say it by
	// Count, and not with Messages.
	Count func(code codes.Code) bool
	// Messages has the client's messages on streams decided too, one by one as the handler
	// receives them, besides the start of the stream. Default: false, the start alone.
	Messages bool
	// NoMetadata leaves out the metadata about the limit. Default: false.
	NoMetadata bool

	// Decided is told each verdict, before the call is handled or refused: for logs and
	// metrics. An admitting verdict whose Claim has no policy asked no limit, and one by plain limits has no Rule. A call
	// whose Decision.Delay is not 0 is held after that, for its turn of a leaky bucket: should it end meanwhile, it does
	// not reach the handler, and Failed is told too. Default: nil.
	Decided func(ctx context.Context, fullMethod string, v *enforce.Verdict)
	// Denied says what a call that the verdict denies ends with, whose Reason says why; one too that will have ended
	// before its turn of a leaky bucket, which is then left to others. The metadata of a denial goes with it. An error
	// of nil stands for the default. Default: nil, RESOURCE_EXHAUSTED with QuotaFailure and RetryInfo, or
	// UNAUTHENTICATED where the verdict is Unauthenticated.
	Denied func(ctx context.Context, fullMethod string, v *enforce.Verdict) error
	// Failed is told the error of each call that is not decided, before it is answered: for logs and metrics. It is
	// that of Key, Cost, Describe or LimiterOf, wraps stint.ErrInvalid for a value that no limit takes, wraps
	// stint.ErrUnavailable when the store could not decide, or is the context's of a call that ended while it was
	// held. Denials are none.
	//
	// It is told an enforce.EndError, too, when a call's hold could not be ended; if that is given up later, by a
	// context with the call's values. Default: nil.
	Failed func(ctx context.Context, fullMethod string, err error)
}

// server is by what the calls are decided.
func (c *Config) server() adapt.Server {
	s := adapt.Server{Limiter: c.Limiter, Rules: c.Rules, Reserve: c.Reserve}
	if c.Count != nil {
		s.Reserve, s.Count = adapt.Holding(c.Reserve), func(code int) bool { return c.Count(codes.Code(code)) } // #nosec G115
	}
	return s
}

// validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c *Config) validate() error {
	server := c.server()
	faults := server.Faults(adapt.Functions{
		LimiterOf: c.LimiterOf != nil, Key: c.Key != nil, Cost: c.Cost != nil, Describe: c.Describe != nil,
		Count: c.Count != nil,
	}, c.Clients != nil)
	if server.Reserve != nil && c.Messages {
		faults = append(faults, stint.Invalid("Messages", true, "false where calls hold what they cost"))
	}
	return prefix.Join(faults...)
}

// Cost is the cost of the call whose context it is, for handlers behind a [Server] with [Config.Reserve] to say what it
// turns out to be. Without one, what it is told has no effect.
func Cost(ctx context.Context) enforce.RunningCost { return enforce.CostOf(ctx) }

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
	if s.config.NoMetadata || c.policy == nil && c.header == nil || c.decision.Degraded {
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
