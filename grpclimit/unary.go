package grpclimit

import (
	"context"

	"google.golang.org/grpc"
)

// UnaryServerInterceptor limits unary calls. A call that a leaky bucket admits is
// held until its turn; one whose deadline is nearer is denied, and takes no turn.
func (s *Server) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c, tapped := tappedCall(ctx, s, info.FullMethod)
		if !tapped {
			c = &call{method: info.FullMethod}
			if err := s.charge(ctx, c, request, true); err != nil {
				if md := s.rate.of(c); md != nil {
					_ = grpc.SetTrailer(ctx, md) // what can't be told does not change the decision
				}
				return nil, err
			}
		}
		if md := s.rate.of(c); md != nil {
			_ = grpc.SetHeader(ctx, md) // as above: an interceptor before this one has sent the header
		}
		if err := hold(ctx, c); err != nil {
			return nil, err
		}
		return handler(ctx, request)
	}
}
