package grpclimit

import (
	"context"

	"google.golang.org/grpc/tap"
)

// TapHandle limits calls before grpc-go sets up their streams: a refused call costs
// no goroutine and its request is never read. Pass it to grpc.InTapHandle. It calls
// [Config.Cost] without a request, and also for methods that the server does not
// have.
//
// grpc-go runs it in the goroutine that reads the connection, under the
// connection's lock. While it waits for the store nothing else happens on that
// connection, so it suits stores in the process; for one that is far away, set
// [Config.Timeout] or use the interceptors. It can't hold a call until the turn that
// a leaky bucket gave: the interceptors of the same Server do that, and write the
// metadata, when they are installed besides. A call whose deadline is nearer than the turn is
// refused at once, and takes none. A call that rules would hold (rules.Wait) is refused at once,
// with RetryInfo; where such rules are to hold calls, use the interceptors alone. A refused call carries its details in
// the status and no metadata. Package tap is experimental, and a server that serves
// by grpc.Server.ServeHTTP does not call the handle.
//
// In grpc-go 1.85 a refused call that has a deadline leaves its timer in memory until
// then. Prefer the interceptors where clients can't be trusted to set near deadlines.
func (s *Server) TapHandle() tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		c := &call{method: info.FullMethodName}
		if err := s.charge(ctx, c, nil, false); err != nil {
			return ctx, err
		}
		return context.WithValue(ctx, tappedBy{s}, c), nil
	}
}

// tappedBy is under which key a context carries the call that a Server's tap handle
// has admitted.
type tappedBy struct{ server *Server }

// tappedCall is the call that the tap handle has decided, if it did: one that was free
// without its request is not decided yet.
func tappedCall(ctx context.Context, s *Server, method string) (*call, bool) {
	c, ok := ctx.Value(tappedBy{s}).(*call)
	return c, ok && c.decided && c.method == method
}
