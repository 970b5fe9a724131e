package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/stint-go/stint"
)

// A Client limits the calls that a program makes: each waits until the limiter
// admits it, and until the time has passed that servers asked for with RetryInfo. It
// is safe for concurrent use; make it with [NewClient].
type Client struct {
	config      ClientConfig
	denials     *denials // nil with rules
	evaluations evaluations
	pauses      pauses
}

// NewClient makes a client's limits, or reports everything that is wrong with the
// configuration.
func NewClient(config ClientConfig) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	c := &Client{config: config.withDefaults()}
	if config.Limiter == nil {
		return c, nil
	}
	var err error
	c.denials, err = denialsOf(config.Limiter.Policy())
	return c, err
}

// UnaryClientInterceptor limits unary calls. With [ClientConfig.Retries] it makes
// those again that the server refused with RetryInfo, once the time has passed.
func (c *Client) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		out, err := c.describe(ctx, conn, method, request)
		if err != nil {
			return err
		}
		for retries := c.config.Retries; ; retries-- {
			if err := c.await(ctx, out); err != nil {
				return err
			}
			err := invoke(ctx, method, request, reply, conn, options...)
			wait, asked := c.heed(out.key, err)
			if !asked || retries == 0 || !c.lasts(ctx, wait) {
				return err
			}
		}
	}
}

// StreamClientInterceptor limits streams, each where it starts. A stream that the
// server refuses is not started again; its RetryInfo is heeded by the calls after
// it.
func (c *Client) StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		out, err := c.describe(ctx, conn, method, nil)
		if err != nil {
			return nil, err
		}
		if err := c.await(ctx, out); err != nil {
			return nil, err
		}
		stream, err := open(ctx, desc, conn, method, options...)
		if err != nil {
			c.heed(out.key, err)
			return nil, err
		}
		return &heedingStream{ClientStream: stream, client: c, key: out.key}, nil
	}
}

// A heedingStream heeds what the server asks for when it ends the stream.
type heedingStream struct {
	grpc.ClientStream
	client *Client
	key    string
}

// RecvMsg receives a message, or how the stream has ended.
func (h *heedingStream) RecvMsg(message any) error {
	err := h.ClientStream.RecvMsg(message)
	h.client.heed(h.key, err)
	return err
}

// An outgoing call is what is known of a call before it leaves.
type outgoing struct {
	target, method string
	key            string
	cost           int64
}

// describe tells what a call is charged to, and how much.
func (c *Client) describe(ctx context.Context, conn *grpc.ClientConn, method string, request any) (out outgoing, err error) {
	out.method = method
	if conn != nil {
		out.target = conn.Target()
	}
	if out.key, err = c.config.Key(ctx, out.target, method); err != nil {
		return out, failed(ctx, err)
	}
	if out.cost, err = c.config.Cost(ctx, method, request); err != nil {
		return out, failed(ctx, err)
	}
	return out, nil
}

// lasts reports whether a call may wait so long.
func (c *Client) lasts(ctx context.Context, wait time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return wait <= c.config.MaxWait && (!bounded || wait <= time.Until(deadline))
}

// await waits until a call may leave.
func (c *Client) await(ctx context.Context, out outgoing) error {
	waiting, cancel := context.WithTimeout(ctx, c.config.MaxWait)
	defer cancel()
	for wait := c.pauses.left(out.key); wait > 0; wait = c.pauses.left(out.key) {
		switch err := sleepWithin(waiting, wait); {
		case err == nil:
		case ctx.Err() != nil:
			return failed(ctx, err)
		default:
			return asked(c.pauses.left(out.key))
		}
	}
	switch {
	case c.config.Rules != nil:
		return c.follow(ctx, waiting, out)
	case out.cost == 0:
		return nil
	}
	d, err := c.config.Limiter.WaitN(waiting, out.key, out.cost)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, stint.ErrNever):
		return c.denials.of(d)
	case errors.Is(err, stint.ErrDeadline):
		d.RetryAfter = max(d.RetryAfter, d.Delay) // an admitted turn that is too far away
		return c.denials.of(d)
	default:
		return c.undecided(ctx, err)
	}
}

// undecided is the error of a call that the limiter did not decide.
func (c *Client) undecided(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: no decision within %s", stint.ErrUnavailable, c.config.MaxWait)
	}
	return failed(ctx, err)
}
