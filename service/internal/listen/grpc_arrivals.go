package listen

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	rpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/stint-go/stint/clientip"
)

const (
	// grpcAwaited is how many calls may wait for their messages, of which grpc-go holds what has come, before another
	// one ends one of them.
	grpcAwaited = 2048
	// mostWatches is how many may watch the health service on all connections before another one ends one of them. On one
	// connection grpc-go bounds them, as it does all calls: grpcStreams.
	mostWatches = 2048
)

// arrivals bounds how many calls of gRPC wait for their messages, and how long, which grpc-go does not. A call
// without a message costs memory for as long as its client likes.
//
// No call is refused for others that wait. Beyond grpcAwaited calls, another call ends one that waits: the oldest of
// its own connection, if that has more than its share, or else the oldest of all. So a client that sends whole
// messages loses none, since they come at once. A connection's share is
//
//	max(1, grpcAwaited / (1 + connections))
//
// It is safe for concurrent use.
type arrivals struct {
	// most is how long a message may take after its header fields.
	most time.Duration
	// connections is how many there are.
	connections func() int
	watches     watches

	mu sync.Mutex
	// Calls that wait now are a ring, in the order of their coming: first.next is the oldest, first.previous the
	// newest.
	first  call
	awaits int
}

// A call is one whose message is awaited, or one that watches the health.
type call struct {
	ctx  context.Context //nolint:containedctx // its own, of any length
	stop context.CancelFunc
	// first reports whether the message came before the end; it is context.AfterFunc's stop.
	first    func() bool
	arrivals *arrivals
	from     *rpcAddr
	// why is the error of a call that was refused or ended for another one; nil is none.
	why atomic.Pointer[error]
	// next and previous are its neighbours among those that wait; nil when it does not. arrivals' lock guards them.
	next, previous *call
	reply          any // what it is answered
}

// callKey is where the context of a call has the call.
type callKey struct{}

var (
	errTooManyAwaited = status.Error(codes.ResourceExhausted, "too many calls wait for their messages")
	errTooManyWatches = status.Error(codes.ResourceExhausted, "too many calls watch the health")
)

// newArrivals makes the bounds on calls of a listener.
func newArrivals(most time.Duration, connections func() int, clients *clientip.Resolver) *arrivals {
	a := &arrivals{
		most: most, connections: connections, watches: watches{clients: clients, of: map[string]map[*call]struct{}{}},
	}
	a.first.next, a.first.previous = &a.first, &a.first
	return a
}

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
	if from.frames != nil {
		from.frames.call()
	}
	c := &call{ctx: ctx, arrivals: a, from: from}
	ctx = context.WithValue(ctx, callKey{}, c)
	if info.FullMethodName == healthpb.Health_Watch_FullMethodName {
		ctx, c.stop = context.WithCancel(ctx)
		a.watches.begin(ctx, c)
		return ctx, nil
	}
	ctx, c.stop = context.WithTimeout(ctx, a.most)
	a.await(c)
	c.first = context.AfterFunc(ctx, c.ended) // with the call at the latest
	return ctx, nil
}

// await counts a call, and ends another one if there are too many.
func (a *arrivals) await(c *call) {
	a.mu.Lock()
	var victim *call
	if a.awaits >= grpcAwaited {
		victim = a.first.next
		if c.from.awaited > 0 && c.from.awaited >= grpcAwaited/(1+a.connections()) {
			for victim.from != c.from {
				victim = victim.next
			}
		}
		a.leave(victim)
	}
	c.previous, c.next = a.first.previous, &a.first
	c.previous.next, c.next.previous = c, c
	a.awaits++
	c.from.awaited++
	a.mu.Unlock()
	if victim != nil {
		victim.end(&errTooManyAwaited)
	}
}

// leave no longer counts a call; mu is held. It may be called again.
func (a *arrivals) leave(c *call) {
	if c.next == nil {
		return
	}
	c.previous.next, c.next.previous = c.next, c.previous
	c.previous, c.next = nil, nil
	a.awaits--
	c.from.awaited--
}

// end ends a call for a reason.
func (c *call) end(why *error) {
	c.refuse(why)
	c.stop()
}

// refuse has a call's handler end it for a reason. To end it in the tap would keep its timer.
func (c *call) refuse(why *error) {
	c.why.Store(why)
	if c.from.frames != nil {
		c.from.frames.lose()
	}
}

// refused is why a call has ended for others; nil if it has not.
func (c *call) refused() error {
	if why := c.why.Load(); why != nil {
		return *why
	}
	return nil
}

// explained is the error of a call's handler, or why the call was ended.
func (c *call) explained(err error) error {
	if err != nil {
		if why := c.refused(); why != nil {
			return why
		}
	}
	return err
}

// begin notes that a call's handler runs, and done that it has returned.
func (c *call) begin() {
	if c.from.frames != nil {
		c.from.frames.streams.begin()
	}
}

func (c *call) done() {
	if c.from.frames != nil {
		c.from.frames.streams.ended()
	}
}

// ended no longer counts a call that waits.
func (c *call) ended() {
	c.arrivals.mu.Lock()
	c.arrivals.leave(c)
	c.arrivals.mu.Unlock()
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

// watches bounds how many calls watch the health. Beyond mostWatches, another one ends one of the address that has
// most; an address that has most itself is refused.
type watches struct {
	clients *clientip.Resolver

	mu  sync.Mutex
	all int
	of  map[string]map[*call]struct{} // by the address, as clients are counted
}

// begin counts a call that watches, until its context ends, or refuses it.
func (w *watches) begin(ctx context.Context, c *call) {
	address := ""
	if c.from.conn != nil {
		address = w.clients.Key(c.from.String(), nil)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= mostWatches && !w.makeRoom(address) {
		c.refuse(&errTooManyWatches)
		return
	}
	if w.of[address] == nil {
		w.of[address] = map[*call]struct{}{}
	}
	w.of[address][c] = struct{}{}
	w.all++
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.leave(address, c)
	})
}

// makeRoom ends a call of the address that has most, and reports whether it did; mu is held.
func (w *watches) makeRoom(address string) bool {
	most := address
	for other, calls := range w.of {
		if len(calls) > len(w.of[most]) {
			most = other
		}
	}
	if most == address {
		return false
	}
	for c := range w.of[most] {
		w.leave(most, c)
		c.end(&errTooManyWatches)
		break
	}
	return true
}

// leave no longer counts a call; mu is held. It may be called again.
func (w *watches) leave(address string, c *call) {
	if _, counted := w.of[address][c]; !counted {
		return
	}
	delete(w.of[address], c)
	if len(w.of[address]) == 0 {
		delete(w.of, address)
	}
	w.all--
}
