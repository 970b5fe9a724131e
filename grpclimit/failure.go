package grpclimit

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
)

// A failure is why a call could not be decided. Who logs it in the process sees the
// cause; the status, which goes to the client, does not tell it.
type failure struct {
	status *status.Status
	cause  error
}

func (f *failure) Error() string              { return "grpclimit: " + f.cause.Error() }
func (f *failure) Unwrap() error              { return f.cause }
func (f *failure) GRPCStatus() *status.Status { return f.status }

// failed makes the error that ends a call of which err is all that is known.
func failed(ctx context.Context, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	var invalid *stint.InvalidError
	f := &failure{cause: err}
	switch {
	case errors.As(err, &invalid):
		// What came may be a secret; what is allowed is not.
		f.status = status.New(codes.InvalidArgument, fmt.Sprintf("%s; allowed: %s", invalid.Param, invalid.Allowed))
	case errors.Is(err, stint.ErrInvalid):
		f.status = status.New(codes.InvalidArgument, "the key or the cost is not allowed")
	case ctx.Err() != nil:
		f.status = status.FromContextError(ctx.Err())
	case errors.Is(err, stint.ErrOverloaded):
		f.status = status.New(codes.Unavailable, "too busy to decide the rate limit; try again later")
	case errors.Is(err, stint.ErrUnavailable):
		f.status = status.New(codes.Unavailable, "the rate limit could not be decided")
	case errors.Is(err, context.DeadlineExceeded):
		f.status = status.FromContextError(context.DeadlineExceeded)
	case errors.Is(err, context.Canceled):
		f.status = status.FromContextError(context.Canceled)
	default:
		f.status = status.New(codes.Internal, "the rate limit could not be applied")
	}
	return f
}
