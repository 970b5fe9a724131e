package grpclimit

import (
	"context"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// A Client limits the calls that a program makes: each waits until the limiter admits it, and until
// the time has passed that servers asked for with RetryInfo. It is safe for concurrent use; make it
// with [NewClient]. What one server asked of a key's call its next calls of the key heed, and those that wait for the
// limiter: a permit that a call gets during the pause is spent, and it gets another one afterwards, so that calls
// leave at the limit's pace again.
type Client struct {
	config ClientConfig
	client adapt.Client
}

// NewClient makes a client's limits, or reports everything that is wrong with the configuration.
func NewClient(config ClientConfig) (*Client, error) {
	c := &Client{config: config, client: adapt.Client{
		Limiter: config.Limiter, Rules: config.Rules,
		Refuse: config.Refuse, MaxWait: config.MaxWait, MaxPause: config.MaxPause,
	}}
	faults := c.client.Faults(adapt.Functions{Cost: config.Cost != nil, Describe: config.Describe != nil})
	if config.Retries < 0 {
		faults = append(faults, stint.Invalid("Retries", config.Retries, "0 or more"))
	}
	if err := prefix.Join(faults...); err != nil {
		return nil, err
	}
	c.client.Complete()
	return c, nil
}

// UnaryClientInterceptor limits unary calls. With [ClientConfig.Retries] it makes
// those again that the server refused with RetryInfo, once the time has passed.
func (c *Client) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		out, err := c.describe(ctx, conn, method, request)
		if err != nil {
			return err
		}
		for retries := c.config.Retries; ; retries-- {
			if err := c.await(ctx, out); err != nil {
				return err
			}
			err := invoke(ctx, method, request, reply, conn, options...)
			wait, asked := c.notePause(out, err)
			if !asked || retries == 0 || !c.client.MayWait(ctx, wait) {
				return err
			}
		}
	}
}

// StreamClientInterceptor limits streams, each where it starts. A stream that the server refuses is
// not started again; its RetryInfo is heeded by the calls after it.
func (c *Client) StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		options ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		out, err := c.describe(ctx, conn, method, nil)
		if err != nil {
			return nil, err
		}
		if err := c.await(ctx, out); err != nil {
			return nil, err
		}
		stream, err := open(ctx, desc, conn, method, options...)
		if err != nil {
			c.notePause(out, err)
			return nil, err
		}
		return &pausedStream{ClientStream: stream, client: c, call: out}, nil
	}
}

// A pausedStream notes what the server asks for when it ends the stream.
type pausedStream struct {
	grpc.ClientStream
	client *Client
	call   *adapt.Call
}

// RecvMsg receives a message, or how the stream has ended.
func (h *pausedStream) RecvMsg(message any) error {
	err := h.ClientStream.RecvMsg(message)
	h.client.notePause(h.call, err)
	return err
}

// describe tells whom a call counts for, how much, and how it is described and refused. Its errors are those of the
// program's own functions, and end the call by their status.
func (c *Client) describe(
	ctx context.Context, conn *grpc.ClientConn, method string, request any,
) (call *adapt.Call, err error) {
	target := ""
	if conn != nil {
		target = conn.Target()
	}
	call = &adapt.Call{Server: target, Key: target, Cost: 1}
	if c.config.Key != nil {
		call.Key, err = c.config.Key(ctx, target, method)
	}
	if err == nil && c.config.Cost != nil {
		call.Cost, err = c.config.Cost(ctx, target, method, request)
	}
	if err != nil {
		return nil, failed(ctx, err)
	}
	call.Describe = func(e *adapt.Evaluation) error { return c.describeToRules(ctx, target, method, e) }
	call.Refused = c.refused
	return call, nil
}

// await waits until a call may leave.
func (c *Client) await(ctx context.Context, call *adapt.Call) error {
	if err := c.client.Await(ctx, call); err != nil {
		return failed(ctx, err)
	}
	return nil
}

// refused is the status of a call that may not leave.
func (c *Client) refused(refusal *adapt.Refusal) error {
	switch {
	case refusal.Verdict == nil:
		return retryLater("the server asked to be called later", nil, refusal.RetryAfter)
	case refusal.RetryAfter == 0:
		return status.Errorf(codes.ResourceExhausted, "rules would hold the call longer than it waits, %s", c.client.MaxWait)
	default:
		return denial(refusal.Verdict)
	}
}

// targetAttribute is the attribute of an outgoing call that tells the connection's target.
const targetAttribute = "target"

// describeToRules is a call as rules see it.
func (c *Client) describeToRules(ctx context.Context, target, method string, e *adapt.Evaluation) error {
	md, _ := metadata.FromOutgoingContext(ctx)
	describe(e, method, md)
	q := &e.Request
	q.Host = target[strings.LastIndexByte(target, '/')+1:]
	q.Attributes = map[string]string{targetAttribute: target}
	if c.config.Describe != nil {
		if err := c.config.Describe(ctx, target, method, q); err != nil {
			return err
		}
	}
	q.SetDefault(targetAttribute, target)
	return nil
}

// notePause notes what the server asked for, if it did: a call that was refused with
// RESOURCE_EXHAUSTED or UNAVAILABLE and RetryInfo. The longest of several RetryInfo counts, up to MaxPause. A
// wait of 0 pauses nothing, and lets the call be made again at once.
func (c *Client) notePause(call *adapt.Call, err error) (wait time.Duration, asked bool) {
	refused, ok := status.FromError(err)
	if err == nil || !ok || refused.Code() != codes.ResourceExhausted && refused.Code() != codes.Unavailable {
		return 0, false
	}
	for _, detail := range refused.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok && retry.GetRetryDelay().IsValid() {
			wait = max(wait, retry.GetRetryDelay().AsDuration())
			asked = true
		}
	}
	return c.client.Pause(call, wait), asked
}

// A ClientConfig says what a [Client] is made of. With the zero value calls only heed what servers say. Its functions
// must be safe for concurrent use. In them target is that of the connection, as grpc.NewClient got it, and fullMethod
// reads /package.Service/Method. Their errors are as those of a [Config].
type ClientConfig struct {
	// Limiter paces the calls by plain limits. Default: nil, only servers do, or Rules.
	Limiter *stint.Limiter
	// Rules pace the calls by all rules that match them, in place of Limiter. They see the method POST, the full
	// method as the path, the target's endpoint as the host, the outgoing metadata as header,
	// and the attribute "target", which is the connection's; there is no client address. A call that they
	// deny fails, and waits only where a rule says so (rules.Wait), whatever Refuse says. Default: nil.
	Rules enforce.Decider
	// Key is whom a call counts for with Limiter, 1 to 256 bytes; what a server asks of one call the
	// other calls of its key to the same target heed as well. Default: nil, the connection's target.
	Key func(ctx context.Context, target, fullMethod string) (string, error)
	// Cost is how many permits of Limiter a call takes; a stream is charged where it starts, with no request.
	// A cost of 0 does not ask it. Default: nil, 1.
	Cost func(ctx context.Context, target, fullMethod string, request any) (int64, error)
	// Describe completes what Rules know of a call, such as its user and further attributes. There is
	// a map of attributes, with "target", to which it may add; in one that it puts in its place
	// "target" is added where it is missing, to a copy. It is called again for a call that a pause kept. Default: nil.
	Describe func(ctx context.Context, target, fullMethod string, r *rules.Request) error
	// Refuse refuses a call that may not leave at once. Default: false, the call waits. A leaky bucket's turn
	// is waited for in either case.
	Refuse bool
	// MaxWait bounds how long a call waits before it leaves, for pauses, permits and turns together, and before each
	// time that it leaves again. One that would wait longer, or past its context's deadline, is refused at once, with
	// RESOURCE_EXHAUSTED. One whose limiter could not decide by then, since its store was away, fails with
	// UNAVAILABLE. Default: 0, a minute.
	MaxWait time.Duration
	// MaxPause is the longest pause that a server is granted; it is called again after
	// that, whatever it said. Default: 0, a day.
	MaxPause time.Duration
	// Retries is how often a unary call is made again that the server refused with
	// RetryInfo. Each time is charged. Default: 0, none.
	Retries int
}
