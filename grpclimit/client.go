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
	config  ClientConfig
	denials *denials
	pauses  pauses
}

// NewClient makes a client's limits, or reports everything that is wrong with the
// configuration.
func NewClient(config ClientConfig) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	denials, err := newDenials(config.Limiter.Policy())
	if err != nil {
		return nil, err
	}
	return &Client{config: config.withDefaults(), denials: denials}, nil
}

// UnaryClientInterceptor limits unary calls. With [ClientConfig.Retries] it makes
// those again that the server refused with RetryInfo, once the time has passed.
func (c *Client) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		key, cost, err := c.claim(ctx, conn, method, request)
		if err != nil {
			return err
		}
		for retries := c.config.Retries; ; retries-- {
			if err := c.await(ctx, key, cost); err != nil {
				return err
			}
			err := invoke(ctx, method, request, reply, conn, options...)
			wait, asked := c.heed(key, err)
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
		key, cost, err := c.claim(ctx, conn, method, nil)
		if err != nil {
			return nil, err
		}
		if err := c.await(ctx, key, cost); err != nil {
			return nil, err
		}
		stream, err := open(ctx, desc, conn, method, options...)
		if err != nil {
			c.heed(key, err)
			return nil, err
		}
		return &heedingStream{ClientStream: stream, client: c, key: key}, nil
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

// claim is what a call is charged to, and how much.
func (c *Client) claim(ctx context.Context, conn *grpc.ClientConn, method string, request any) (key string, cost int64, err error) {
	target := ""
	if conn != nil {
		target = conn.Target()
	}
	if key, err = c.config.Key(ctx, target, method); err != nil {
		return "", 0, failed(ctx, err)
	}
	if cost, err = c.config.Cost(ctx, method, request); err != nil {
		return "", 0, failed(ctx, err)
	}
	return key, cost, nil
}

// lasts reports whether a call may wait so long.
func (c *Client) lasts(ctx context.Context, wait time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return wait <= c.config.MaxWait && (!bounded || wait <= time.Until(deadline))
}

// await waits until a call may leave.
func (c *Client) await(ctx context.Context, key string, cost int64) error {
	waiting, cancel := context.WithTimeout(ctx, c.config.MaxWait)
	defer cancel()
	for wait := c.pauses.left(key); wait > 0; wait = c.pauses.left(key) {
		switch err := sleep(waiting, wait); {
		case err == nil:
		case ctx.Err() != nil:
			return failed(ctx, err)
		default:
			return asked(c.pauses.left(key))
		}
	}
	if cost == 0 {
		return nil
	}
	d, err := c.config.Limiter.WaitN(waiting, key, cost)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, stint.ErrNever):
		return c.denials.of(d)
	case errors.Is(err, stint.ErrDeadline):
		d.RetryAfter = max(d.RetryAfter, d.Delay) // an admitted turn that is too far away
		return c.denials.of(d)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return failed(ctx, fmt.Errorf("%w: no decision within %s", stint.ErrUnavailable, c.config.MaxWait))
	default:
		return failed(ctx, err)
	}
}
