package server

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	rpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

const (
	// grpcAwaited is how many calls may wait for their messages, of which grpc-go holds what has come, before a
	// connection that has more than its share of them gets no further one.
	grpcAwaited = 2048
	// grpcWatches is how many may watch the health service at once, on all connections.
	grpcWatches = 256
)

// arrivals bounds how many calls of gRPC wait for their messages, and how long, which grpc-go does
// not. Those who watch the health service ask once and wait; there may only be so many. A call
// without a message costs memory for as long as its client likes. Beyond grpcAwaited calls a
// connection may have its share only:
//
//	awaited of the connection < grpcAwaited / (1 + connections)
//
// It is safe for concurrent use.
type arrivals struct {
	// most is how long a message may take after its header fields.
	most time.Duration
	// connections is how many there are.
	connections func() int
	awaited     atomic.Int64 // calls that wait now
	watches     atomic.Int64
}

// An rpcAddr is the address at the other end of a connection of gRPC, by which its calls find the
// connection.
type rpcAddr struct {
	net.Addr
	conn    *trackedConn // nil in tests
	awaited atomic.Int64 // its calls that wait for their messages
}

// A call is one whose message is awaited.
type call struct {
	ctx  context.Context //nolint:containedctx // its own, of any length
	stop context.CancelFunc
	// first reports whether the message came before the end; it is context.AfterFunc's stop, so
	// exactly one of arrived and the end counts the call down.
	first    func() bool
	arrivals *arrivals
	from     *rpcAddr
}

// callKey is where the context of a call whose message is awaited has the call.
type callKey struct{}

// begin is grpc-go's tap: it is handed each call when its header fields have come, by the goroutine that reads the
// connection.
func (a *arrivals) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	from := &rpcAddr{}
	if peer, ok := rpcpeer.FromContext(ctx); ok {
		if known, ok := peer.Addr.(*rpcAddr); ok {
			from = known
		}
	}
	if from.conn != nil {
		from.conn.took()
	}
	if info.FullMethodName == healthpb.Health_Watch_FullMethodName {
		return ctx, a.watch(ctx)
	}
	awaited := &call{ctx: ctx, arrivals: a, from: from}
	if a.awaited.Load() >= grpcAwaited && awaited.from.awaited.Load() >= grpcAwaited/int64(1+a.connections()) {
		return ctx, status.Error(codes.ResourceExhausted, "too many calls of this connection wait for their messages")
	}
	a.awaited.Add(1)
	awaited.from.awaited.Add(1)
	ctx, awaited.stop = context.WithTimeout(context.WithValue(ctx, callKey{}, awaited), a.most)
	awaited.first = context.AfterFunc(ctx, awaited.ended) // with the call at the latest
	return ctx, nil
}

// ended no longer counts a call.
func (c *call) ended() {
	c.arrivals.awaited.Add(-1)
	c.from.awaited.Add(-1)
}

// arrived ends the wait for a call's message, and is the call's own context: deciding has another
// bound.
func arrived(ctx context.Context) context.Context {
	if awaited, ok := ctx.Value(callKey{}).(*call); ok {
		if awaited.first() {
			awaited.ended()
		}
		awaited.stop()
		return awaited.ctx
	}
	return ctx
}

// watch lets one more watch the health until its context ends.
func (a *arrivals) watch(ctx context.Context) error {
	if a.watches.Add(1) > grpcWatches {
		a.watches.Add(-1)
		return status.Errorf(codes.ResourceExhausted,
			"%d calls watch the health already, which is as many as may", grpcWatches)
	}
	context.AfterFunc(ctx, func() { a.watches.Add(-1) })
	return nil
}
