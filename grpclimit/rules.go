package grpclimit

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// A DescribeFunc completes what rules know of a call: its user and API key, as far as they are
// known for certain, and its attributes, for which it makes a map. The rest is there, and it may
// change it; the description must not be kept. It must be safe for concurrent use, and not block
// where a tap handle calls it. Its errors are as those of a [KeyFunc]. What it sets decides whom a
// rule counts; what the client merely claims, such as a user in the metadata, must have been
// checked by then.
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
// The interceptors hold a call as long as rules that wait do; the tap handle refuses it instead. A
// call whose turn of a leaky bucket comes after its deadline is denied. A denied call's
// QuotaFailure names the rule that denied: rule:ID, or rule:ID/LIMIT when the limit has a name. A
// call that is denied by no limit, since a rule bans it or it lacks what a rule asks for, gets no
// RetryInfo.
func NewRules(config RulesConfig) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	address, err := keyOrPeer(config.Address)
	if err != nil {
		return nil, err
	}
	decide := func(ctx context.Context, c *call, _ any, mayHold bool, e *enforce.Evaluation) (err error) {
		md, _ := metadata.FromIncomingContext(ctx)
		describe(e, c.method, md)
		if authority := md[":authority"]; len(authority) == 1 {
			e.Request.Host = authority[0]
		}
		if e.Request.Address, err = address(ctx, c.method); err != nil {
			return err
		}
		if config.Describe != nil {
			if err := config.Describe(ctx, c.method, &e.Request); err != nil {
				return err
			}
		}
		decide := config.Limiter.Decide
		if !mayHold {
			decide = config.Limiter.DecideNow
		}
		err = decide(ctx, &e.Request, &e.Verdict)
		if err == nil && config.Decided != nil {
			config.Decided(ctx, c.method, &e.Verdict)
		}
		return err
	}
	return &Server{decide: decide, messages: config.Messages, silent: config.NoMetadata}, nil
}

// describe is a call as rules see it, without its host and its caller. Metadata gets the names that
// HTTP has for it; what begins with a colon is no field.
func describe(e *enforce.Evaluation, method string, md metadata.MD) {
	if e.Header == nil {
		e.Header = make(http.Header, len(md))
	}
	for name, values := range md {
		if !strings.HasPrefix(name, ":") {
			e.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	e.Request = rules.Request{Method: http.MethodPost, Path: method, Header: e.Header}
}
