package grpclimit

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint"
)

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
