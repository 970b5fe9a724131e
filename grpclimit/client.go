package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// A Client limits the calls that a program makes: each waits until the limiter admits it, and until
// the time has passed that servers asked for with RetryInfo. It is safe for concurrent use; make it
// with [NewClient]. Pauses are kept by key, as the limiter counts: what one server asked of a key's
// call its next calls wait for, and those that wait for the limiter: a permit that a call gets during
// the pause is spent, and it gets another one afterwards, so that calls leave at the limit's pace again.
type Client struct {
	config      ClientConfig
	evaluations enforce.Evaluations
	pauses      enforce.Pauses
}

// NewClient makes a client's limits, or reports everything that is wrong with the configuration.
func NewClient(config ClientConfig) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.MaxWait = cmp.Or(config.MaxWait, DefaultMaxWait)
	return &Client{config: config, pauses: enforce.Pauses{Most: maxPauses, Longest: maxPause}}, nil
}

const (
	// maxPause is how long a server is believed at most.
	maxPause = 24 * time.Hour
	// maxPauses bounds how many keys pause at a time; of more, those whose pause ends first are
	// forgotten.
	maxPauses = 10_000
)

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
			wait, asked := c.notePause(out.key, err)
			if !asked || retries == 0 || !c.mayWait(ctx, wait) {
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
			c.notePause(out.key, err)
			return nil, err
		}
		return &pausedStream{ClientStream: stream, client: c, key: out.key}, nil
	}
}

// A pausedStream notes what the server asks for when it ends the stream.
type pausedStream struct {
	grpc.ClientStream
	client *Client
	key    string
}

// RecvMsg receives a message, or how the stream has ended.
func (h *pausedStream) RecvMsg(message any) error {
	err := h.ClientStream.RecvMsg(message)
	h.client.notePause(h.key, err)
	return err
}

// An outgoing call is what is known of a call before it leaves. The cost is that of plain limits;
// rules say by themselves what a call costs.
type outgoing struct {
	target, method string
	key            string
	cost           int64
}

// describe tells what a call is charged to, and how much. Its errors are those of the program's own
// functions, and end the call by their status.
func (c *Client) describe(
	ctx context.Context,
	conn *grpc.ClientConn,
	method string,
	request any,
) (out outgoing, err error) {
	out.method = method
	if conn != nil {
		out.target = conn.Target()
	}
	if out.key = out.target; c.config.Key != nil {
		out.key, err = c.config.Key(ctx, out.target, method)
	}
	if err == nil {
		out.cost, err = costOf(ctx, c.config.Cost, method, request)
	}
	if err != nil {
		return out, failed(ctx, err)
	}
	return out, nil
}

// mayWait reports whether a call may wait so long.
func (c *Client) mayWait(ctx context.Context, wait time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return wait <= c.config.MaxWait && (!bounded || wait <= time.Until(deadline))
}

// await waits until a call may leave. MaxWait bounds the whole of it, the server's pause and the
// limiter's turn together. If the server has asked for a pause by the time at which the limiter
// admits, that permit is spent, and the limiter is asked for another one after the pause: all who
// waited with one would leave at once.
func (c *Client) await(ctx context.Context, out outgoing) error {
	waiting, cancel := context.WithTimeout(ctx, c.config.MaxWait)
	defer cancel()
	for {
		if left, err := c.pauses.Await(waiting, out.key); err != nil {
			if ctx.Err() != nil {
				return failed(ctx, err)
			}
			return retryLater("the server asked to be called later", nil, left)
		}
		if err := c.decide(ctx, waiting, out); err != nil {
			return err
		}
		if c.pauses.Left(out.key) == 0 {
			return nil
		}
	}
}

// decide has the limiter or the rules decide, and waits for an admitted call's turn. The caller's
// own deadline is told apart from MaxWait: the former gives the context's error, the latter
// RESOURCE_EXHAUSTED or UNAVAILABLE.
func (c *Client) decide(ctx, waiting context.Context, out outgoing) error {
	e := c.evaluations.Get()
	defer c.evaluations.Put(e)
	v := &e.Verdict
	var err error
	if c.config.Rules != nil {
		err = c.decideByRules(ctx, waiting, out, e)
	} else {
		err = v.WaitPlain(waiting, c.config.Limiter, out.key, out.cost)
	}
	switch {
	case err != nil && v.Held > 0 && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return status.Errorf(codes.ResourceExhausted, "rules would hold the call longer than it waits, %s", c.config.MaxWait)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return failed(ctx, prefix.Errorf("%w: no decision within %s: %w", stint.ErrUnavailable, c.config.MaxWait, err))
	case err != nil:
		return failed(ctx, err)
	default:
		return denial(v)
	}
}

// targetAttribute is the attribute of an outgoing call that tells the connection's target.
const targetAttribute = "target"

// decideByRules has the rules decide, which hold the call no longer than waiting lasts.
func (c *Client) decideByRules(ctx, waiting context.Context, out outgoing, e *enforce.Evaluation) error {
	q, v := &e.Request, &e.Verdict
	v.Held = 0
	md, _ := metadata.FromOutgoingContext(ctx)
	describe(e, out.method, md)
	q.Host = out.target[strings.LastIndexByte(out.target, '/')+1:]
	q.Attributes = map[string]string{targetAttribute: out.target}
	if c.config.Describe != nil {
		if err := c.config.Describe(ctx, out.target, out.method, q); err != nil {
			return err
		}
		q.SetDefault(targetAttribute, out.target)
	}
	if err := c.config.Rules.Decide(waiting, q, v); err != nil || !v.Allowed {
		return err
	}
	err := sleepWithin(waiting, v.Decision.Delay)
	if err != nil && ctx.Err() == nil {
		v.Allowed, v.Decision.RetryAfter = false, v.Decision.Delay // a turn that is too far away
		return nil
	}
	return err
}

// notePause notes what the server asked for, if it did: a call that was refused with
// RESOURCE_EXHAUSTED or UNAVAILABLE and RetryInfo. The longest of several RetryInfo counts. A wait
// of 0 pauses nothing, and lets the call be made again at once.
func (c *Client) notePause(key string, err error) (wait time.Duration, asked bool) {
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
	c.pauses.Add(key, wait)
	return wait, asked
}

// DefaultMaxWait is how long a client's call waits at most when nothing else is said.
const DefaultMaxWait = time.Minute

// A TargetKeyFunc names what an outgoing call is charged to. target is that of the
// connection, as grpc.NewClient got it; fullMethod reads /package.Service/Method. It
// must be safe for concurrent use. Its errors are as those of a [KeyFunc].
type TargetKeyFunc func(ctx context.Context, target, fullMethod string) (string, error)

// A TargetDescribeFunc completes what rules know of an outgoing call. The description must not be
// kept. It must be safe for concurrent use.
type TargetDescribeFunc func(ctx context.Context, target, fullMethod string, r *rules.Request) error

// A ClientConfig says what a [Client] is made of.
type ClientConfig struct {
	// Limiter decides by plain limits when a call may leave. It must be nil when there are Rules,
	// and only then.
	Limiter *stint.Limiter
	// Rules decide in its place: all that match the call. They see the method POST, the full
	// method as the path, the target's endpoint as the host, the outgoing metadata as header,
	// and the attribute "target", which is the connection's; there is no client address. A call that they
	// deny fails at once, and waits only where a rule says so (rules.Wait). One that a leaky bucket
	// admits waits for its turn, whatever the rule says. Default: nil.
	Rules enforce.Decider
	// Describe completes what Rules know of a call, such as its user and further attributes. There is
	// a map of attributes, with "target", to which it may add; in one that it puts in its place
	// "target" is added where it is missing, to a copy. It must be nil without Rules. It is called again for a call
	// that a pause kept. Its errors are as those of a KeyFunc. Default: nil.
	Describe TargetDescribeFunc
	// Key names what a call is charged to; what a server asks of one call its key's other calls heed
	// as well. With Rules it is for the latter alone. Default: nil, the connection's target.
	Key TargetKeyFunc
	// Cost is what a call costs; a stream is charged where it starts, with no request.
	// A cost of 0 does not ask the limiter. It must be nil with Rules, which say what a call costs.
	// Default: nil, 1.
	Cost CostFunc
	// MaxWait bounds how long a call waits before it leaves, and before each time that
	// it leaves again. A call that would wait longer, or past its deadline, fails at
	// once with RESOURCE_EXHAUSTED. One whose limiter could not decide by then, since its
	// store was away, fails with UNAVAILABLE. Default: 0, which is DefaultMaxWait.
	MaxWait time.Duration
	// Retries is how often a unary call is made again that the server refused with
	// RetryInfo. Each time is charged. Default: 0, none.
	Retries int
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c ClientConfig) Validate() error {
	var faults []error
	switch {
	case c.Limiter == nil && c.Rules == nil:
		faults = append(faults, stint.Invalid("limiter", "nil", "a limiter made by stint.New or stint.NewLimiter, or rules"))
	case c.Limiter != nil && c.Rules != nil:
		faults = append(faults, stint.Invalid("rules", "set", "nil beside a limiter of plain limits"))
	}
	if c.Rules == nil && c.Describe != nil {
		faults = append(faults, stint.Invalid("describe", "set", "nil without rules"))
	}
	if c.Rules != nil && c.Cost != nil {
		faults = append(faults, stint.Invalid("cost", "set", "nil with rules, which say what a call costs"))
	}
	if c.MaxWait < 0 {
		faults = append(faults, stint.Invalid("max_wait", c.MaxWait, "0 or more"))
	}
	if c.Retries < 0 {
		faults = append(faults, stint.Invalid("retries", c.Retries, "0 or more"))
	}
	return prefix.Join(faults...)
}
