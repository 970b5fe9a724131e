package grpclimit

import (
	"sync/atomic"

	"google.golang.org/grpc"
)

// StreamServerInterceptor limits streams: each at its start, and with
// [Config.Messages] each message of the client as well. A stream ends with the
// first message that is refused, whatever the handler makes of the error that its
// RecvMsg returns. A stream or message that a leaky bucket admits is held until its
// turn, or denied when the stream's deadline is nearer.
func (s *Server) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := stream.Context()
		c, tapped := tappedCall(ctx, s, info.FullMethod)
		if !tapped {
			c = &call{method: info.FullMethod}
			if err := s.charge(ctx, c, nil, true); err != nil {
				s.tellRefusal(stream, c)
				return err
			}
		}
		if md := s.rate.of(c); md != nil {
			_ = stream.SetHeader(md) // fails where an interceptor before this one has sent the header
		}
		if err := hold(ctx, c); err != nil {
			return err
		}
		if !s.messages {
			return handler(server, stream)
		}
		limited := &limitedStream{ServerStream: stream, server: s, call: c}
		err := handler(server, limited)
		if refusal := limited.refusal.Load(); refusal != nil {
			return refusal.err
		}
		return err
	}
}

func (s *Server) tellRefusal(stream grpc.ServerStream, c *call) {
	if md := s.rate.of(c); md != nil {
		stream.SetTrailer(md)
	}
}

// A limitedStream charges the messages that it receives.
type limitedStream struct {
	grpc.ServerStream
	server  *Server
	call    *call // used by RecvMsg alone, of which one runs at a time
	refusal atomic.Pointer[refusal]
}

// A refusal is the error that a stream ends with.
type refusal struct{ err error }

// RecvMsg receives a message and charges it. Once a message was refused no other
// is received.
func (l *limitedStream) RecvMsg(message any) error {
	if refusal := l.refusal.Load(); refusal != nil {
		return refusal.err
	}
	if err := l.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	err := l.server.charge(l.Context(), l.call, message, true)
	if err == nil {
		err = hold(l.Context(), l.call)
	} else {
		l.server.tellRefusal(l.ServerStream, l.call)
	}
	if err != nil {
		l.refusal.Store(&refusal{err: err})
	}
	return err
}
