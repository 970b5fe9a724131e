package grpclimit

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/tap"
)

// UnaryServerInterceptor limits unary calls. A call that a leaky bucket admits is
// held until its turn; one whose deadline is nearer is denied, and takes no turn.
func (s *Server) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c, err := s.admit(ctx, info.FullMethod, request)
		defer s.end(ctx, c)
		if err != nil {
			return nil, err
		}
		if c.cost == nil {
			return handler(ctx, request)
		}
		s.answered(c, codes.Internal) // of a panic
		response, err := handler(c.cost.Begin(ctx), request)
		s.answered(c, codeOf(err))
		return response, err
	}
}

// end ends what a call holds.
func (s *Server) end(ctx context.Context, c *call) {
	if c.cost == nil {
		return
	}
	s.ends.End(ctx, c.cost, s.tellers(ctx, c.method))
}

// tellers tell Failed of an end that failed; nil if nobody is told.
func (s *Server) tellers(ctx context.Context, method string) func() (now, later func(error)) {
	if s.config.Failed == nil {
		return nil
	}
	return func() (now, later func(error)) {
		again := context.WithoutCancel(ctx)
		return func(err error) { s.config.Failed(ctx, method, err) }, func(err error) { s.config.Failed(again, method, err) }
	}
}

// Drain returns when no commit or cancel is left that failed and is sent again. Call it when the grpc.Server has
// stopped, before the store is closed. What has not arrived when the context ends is given up, which
// [Config.Failed] is told; then the error wraps the context's.
func (s *Server) Drain(ctx context.Context) error { return s.ends.Drain(ctx) }

// StreamServerInterceptor limits streams: each at its start, and with [Config.Messages] each
// message of the client as well. A stream ends with the first message that is refused, whatever the
// handler makes of the error that its RecvMsg returns. A stream or message that a leaky bucket
// admits is held until its turn, or denied when the stream's deadline is nearer.
func (s *Server) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c, err := s.admit(stream.Context(), info.FullMethod, nil)
		defer s.end(stream.Context(), c)
		if err != nil {
			return err
		}
		if c.cost != nil {
			s.answered(c, codes.Internal) // of a panic
			err := handler(server, &holdingStream{ServerStream: stream, ctx: c.cost.Begin(stream.Context())})
			s.answered(c, codeOf(err))
			return err
		}
		if !s.config.Messages {
			return handler(server, stream)
		}
		limited := &limitedStream{ServerStream: stream, server: s, call: c}
		err = handler(server, limited)
		if refusal := limited.refusal.Load(); refusal != nil {
			return refusal.err
		}
		return err
	}
}

// admit charges a call that the tap handle has not decided, tells its client, and holds it until
// its turn. A call that the tap handle has decided already is not charged again, and has its
// metadata and its turn of a leaky bucket here.
func (s *Server) admit(ctx context.Context, method string, request any) (*call, error) {
	c, tapped := tappedCall(ctx, s, method)
	if !tapped {
		c = &call{method: method, cost: s.server.Running()}
		if err := s.charge(ctx, c, request, true); err != nil {
			s.sendTrailer(ctx, c)
			return c, err
		}
	}
	if md := s.rate(c); md != nil {
		_ = grpc.SetHeader(ctx, md) // fails where an interceptor before this one has sent the header
	}
	return c, s.hold(ctx, c)
}

// sendTrailer tells a client that is refused what was decided. A trailer, since the header may have
// been sent.
func (s *Server) sendTrailer(ctx context.Context, c *call) {
	if md := s.rate(c); md != nil {
		_ = grpc.SetTrailer(ctx, md) // what can't be told does not change the decision
	}
}

// A holdingStream is one of a call that holds what it costs.
type holdingStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // it is what a stream has
}

// Context carries the call's cost, and ends when its hold is lost.
func (h *holdingStream) Context() context.Context { return h.ctx }

// A limitedStream charges the messages that it receives. The refusal is kept apart from the
// handler's error, since a handler may swallow what RecvMsg returns and end the stream with OK.
type limitedStream struct {
	grpc.ServerStream
	server  *Server
	call    *call // used by RecvMsg alone, of which one runs at a time
	refusal atomic.Pointer[refusal]
}

// A refusal is the error that a stream ends with.
type refusal struct{ err error }

// RecvMsg receives a message and charges it. Once a message was refused no other is received.
func (l *limitedStream) RecvMsg(message any) error {
	if refusal := l.refusal.Load(); refusal != nil {
		return refusal.err
	}
	if err := l.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	err := l.server.charge(l.Context(), l.call, message, true)
	if err == nil {
		err = l.server.hold(l.Context(), l.call)
	} else {
		l.server.sendTrailer(l.Context(), l.call)
	}
	if err != nil {
		l.refusal.Store(&refusal{err: err})
	}
	return err
}

// TapHandle limits calls before grpc-go sets up their streams: a refused call costs no goroutine
// and its request is never read. Pass it to grpc.InTapHandle. It calls [Config.Cost] without a
// request, and also for methods that the server does not have.
//
// grpc-go runs it in the goroutine that reads the connection, under the connection's lock. While it
// waits for the store nothing else happens on that connection, so it suits stores in the process;
// wrap one that is far away by package failover, which bounds a decision in time, or use the
// interceptors. It can't hold a call until the turn that a leaky bucket gave: the interceptors of
// the same Server do that, and write the metadata, when they are installed besides. A call whose
// deadline is nearer than the turn is refused at once, and takes none. A call that rules would hold
// (rules.Wait) is refused at once, with RetryInfo; where such rules are to hold calls, use the
// interceptors alone. A refused call carries its details in the status and no metadata. Package tap
// is experimental, and a server that serves by grpc.Server.ServeHTTP does not call the handle.
//
// In grpc-go 1.85 a refused call that has a deadline leaves its timer in memory until
// then. Prefer the interceptors where clients can't be trusted to set near deadlines.
func (s *Server) TapHandle() tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		if s.server.Reserve != nil {
			return ctx, nil // the interceptors do
		}
		c := &call{method: info.FullMethodName}
		if err := s.charge(ctx, c, nil, false); err != nil {
			return ctx, err
		}
		return context.WithValue(ctx, tappedBy{s}, c), nil
	}
}

// tappedBy is under which key a context carries the call that a Server's tap handle has admitted.
// The server is part of the key, so that two Servers in one chain, say of different limits, both
// decide.
type tappedBy struct{ server *Server }

// tappedCall is the call that the tap handle has decided, if it did: one that was free
// without its request is not decided yet.
func tappedCall(ctx context.Context, s *Server, method string) (*call, bool) {
	c, ok := ctx.Value(tappedBy{s}).(*call)
	return c, ok && !c.free && c.method == method
}
