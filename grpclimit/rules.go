package grpclimit

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// A DescribeFunc completes what rules know of a call: its user and API key, as far as they are known
// for certain, and its attributes, for which it makes a map. The rest is there, and it may change
// it; the description must not be kept. It must be safe for concurrent use, and not block
// where a tap handle calls it. Its errors are as those of a [KeyFunc].
type DescribeFunc func(ctx context.Context, fullMethod string, r *rules.Request) error

// A RulesConfig says what a [Server] by rules is made of. To rules a call is a request of method
// POST to the host of its :authority, whose path is the full method, /package.Service/Method,
// and whose header is the incoming metadata.
type RulesConfig struct {
	// Limiter decides by all rules that match a call: an enforce.Limiter, whose rules may be
	// swapped while calls come, or client.Rules, which are those of a service. It must not be nil.
	Limiter enforce.Decider
	// Describe completes what rules know of a call. Default: nil, calls have no user, API key and
	// attributes.
	Describe DescribeFunc
	// Address finds the client's address. Default: nil, that of the peer, no proxy believed;
	// see [ByAddress].
	Address KeyFunc
	// Messages has the rules decide the client's messages on streams too, one by one as the
	// handler receives them, besides the start of the stream. Default: false, the start alone.
	Messages bool
	// Decided is told each verdict, before the call is handled or refused; it must not keep it,
	// and be safe for concurrent use. An admitting verdict has no Rule when no limit was asked. A call
	// whose Decision.Delay is not 0 is held after that, for its turn of a leaky bucket, and does not reach the
	// handler should it end meanwhile. Default: nil.
	Decided func(ctx context.Context, fullMethod string, v *enforce.Verdict)
	// NoMetadata leaves out the metadata about the limit. Default: false.
	NoMetadata bool
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c RulesConfig) Validate() error {
	if c.Limiter == nil {
		return stint.Invalid("limiter", "nil", "a limiter made by enforce.New, or a client's Rules")
	}
	return nil
}

// NewRules makes a server's limits by rules, or reports everything that is wrong with the
// configuration. A call is decided by all rules that match it; one that matches none is admitted.
// The interceptors hold a call as long as rules that wait do; the tap handle refuses it instead. A call whose
// turn of a leaky bucket comes after its deadline is denied. A denied call's QuotaFailure
// names the rule that denied: rule:ID, or rule:ID/LIMIT when the limit has a name. A call that is
// denied by no limit, since a rule bans it or it lacks what a rule asks for, gets no RetryInfo.
func NewRules(config RulesConfig) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Address == nil {
		byPeer, err := ByAddress(clientip.Config{})
		if err != nil {
			return nil, err
		}
		config.Address = byPeer
	}
	return newServer(&ruled{config: config}, config.Messages, config.NoMetadata), nil
}

// A ruled gate decides by rules.
type ruled struct {
	config      RulesConfig
	evaluations evaluations
}

func (g *ruled) charge(ctx context.Context, c *call, _ any, mayHold bool) error {
	e := g.evaluations.get()
	defer g.evaluations.put(e)
	e.receive(ctx, c.method)
	var err error
	if e.request.Address, err = g.config.Address(ctx, c.method); err != nil {
		return failed(ctx, err)
	}
	if g.config.Describe != nil {
		if err := g.config.Describe(ctx, c.method, &e.request); err != nil {
			return failed(ctx, err)
		}
	}
	decide := g.config.Limiter.Decide
	if !mayHold {
		decide = g.config.Limiter.DecideNow
	}
	if err := decide(ctx, &e.request, &e.verdict); err != nil {
		return failed(ctx, err)
	}
	if g.config.Decided != nil {
		g.config.Decided(ctx, c.method, &e.verdict)
	}
	c.decided, c.decision, c.policy = true, e.verdict.Decision, e.verdict.Claim.Policy
	if remote := e.verdict.Remote; remote != nil {
		c.header = remote.Header
	}
	return e.denial(ctx)
}

// follow has the rules decide an outgoing call, which they hold no longer than waiting lasts.
func (c *Client) follow(ctx, waiting context.Context, out outgoing) error {
	e := c.evaluations.get()
	defer c.evaluations.put(e)
	e.send(ctx, out)
	if c.config.Describe != nil {
		if err := c.config.Describe(ctx, out.target, out.method, &e.request); err != nil {
			return failed(ctx, err)
		}
		e.request.SetDefault(targetAttribute, out.target)
	}
	v := &e.verdict
	if err := c.config.Rules.Decide(waiting, &e.request, v); err != nil {
		if v.Held > 0 && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return heldTooLong(c.config.MaxWait)
		}
		return c.undecided(ctx, err)
	}
	if err := e.denial(ctx); err != nil || v.Decision.Delay <= 0 {
		return err
	}
	if err := sleepWithin(waiting, v.Decision.Delay); err != nil {
		if ctx.Err() != nil {
			return failed(ctx, err)
		}
		v.Allowed, v.Decision.RetryAfter = false, v.Decision.Delay // a turn that is too far away
		return e.denial(ctx)
	}
	return nil
}

// targetAttribute is the attribute of an outgoing call that tells the connection's target.
const targetAttribute = "target"

// An evaluation is what deciding one call by rules needs for a moment. The zero value is ready to
// use, and one that is used again saves its allocations.
type evaluation struct {
	request rules.Request
	verdict enforce.Verdict
	header  http.Header
}

// receive describes an incoming call, but for who makes it.
func (e *evaluation) receive(ctx context.Context, method string) {
	md, _ := metadata.FromIncomingContext(ctx)
	e.request = rules.Request{Method: http.MethodPost, Path: method, Header: e.headerOf(md)}
	if authority := md[":authority"]; len(authority) == 1 {
		e.request.Host = authority[0]
	}
}

// send describes an outgoing call, but for who makes it.
func (e *evaluation) send(ctx context.Context, out outgoing) {
	md, _ := metadata.FromOutgoingContext(ctx)
	e.request = rules.Request{
		Method: http.MethodPost, Path: out.method, Header: e.headerOf(md),
		Host:       out.target[strings.LastIndexByte(out.target, '/')+1:],
		Attributes: map[string]string{targetAttribute: out.target},
	}
}

// headerOf is metadata with the names that HTTP has for them. What begins with a colon is no field.
func (e *evaluation) headerOf(md metadata.MD) http.Header {
	if e.header == nil {
		e.header = make(http.Header, len(md))
	}
	for name, values := range md {
		if !strings.HasPrefix(name, ":") {
			e.header[http.CanonicalHeaderKey(name)] = values
		}
	}
	return e.header
}

// denial is the status of a denied call, nil for an admitted one.
func (e *evaluation) denial(ctx context.Context) error {
	v := &e.verdict
	switch {
	case v.Allowed:
		return nil
	case v.Claim.Policy == nil:
		return deniedBy(v)
	}
	denials, err := denialsOf(v.Claim.Policy)
	if err != nil {
		return failed(ctx, err)
	}
	return denials.of(v.Decision)
}

// few is how many rules and fields an evaluation may have met whose room is kept.
const few = 256

// evaluations keeps them to be used again. The zero value is ready.
type evaluations struct{ pool sync.Pool }

func (p *evaluations) get() *evaluation {
	if e, ok := p.pool.Get().(*evaluation); ok {
		return e
	}
	return new(evaluation)
}

// put forgets the call.
func (p *evaluations) put(e *evaluation) {
	keep := len(e.header)+len(e.verdict.Matched) <= few
	e.request = rules.Request{}
	clear(e.header)
	if keep {
		p.pool.Put(e)
	}
}
