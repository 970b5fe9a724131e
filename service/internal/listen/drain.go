package listen

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/kernel"
)

// drain is what Stop does with the connections.
func (l *Listeners) drain(ctx context.Context, last func(context.Context)) error {
	l.draining.Store(true) // from now on answers end their connections
	wait := !l.failed
	if wait && l.config.Drain.Delay > 0 {
		_ = sleep.For(ctx, l.config.Drain.Delay) // or until there is no more time
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.Drain.Timeout)
	defer cancel()
	var failed error
	if wait {
		failed = l.stopAccepting(ctx)
		l.awaitKept(ctx)
	}
	stopped := make(chan error, len(l.open))
	for _, f := range l.open {
		go func() {
			err := f.server.Shutdown(ctx)
			if err != nil {
				err = prefix.Errorf("requests were cut off after %s: %w", l.config.Drain.Timeout, err)
			}
			stopped <- err
		}()
	}
	for range l.open {
		failed = errors.Join(failed, <-stopped)
	}
	last(ctx)
	return failed
}

// handshake is the time that a connection has to come about after the service stopped to accept new
// ones.
const handshake = 200 * time.Millisecond

// mostLooks bounds how often a backlog is looked at where the system goes on making connections: for 5 seconds.
const mostLooks = 500

// stopAccepting closes each listener when every connection that the kernel has made for it is accepted: it resets
// those that it finds in the backlog of a socket that is closed. Where a system can't be kept from making more of
// them, a backlog that is found empty may have one again when the socket is closed. Systems other than Linux do not say
// what is in the backlog, so there the listeners are closed at once.
func (l *Listeners) stopAccepting(ctx context.Context) (failed error) {
	dropped := false
	for _, f := range l.open {
		f.tracker.stopping.Store(true)
		if f.socket != nil && l.dropNew(f.socket) == nil {
			dropped = true
		}
	}
	if dropped {
		_ = sleep.For(ctx, handshake) // then, or when time is over, the listeners are closed
	}
	for _, f := range l.open {
		if f.socket != nil {
			awaitBacklog(ctx, f.socket)
		}
		failed = errors.Join(failed, f.listener.Close())
	}
	return failed
}

// awaitBacklog waits until a listening socket has no connection that was not accepted, for mostLooks at most.
func awaitBacklog(ctx context.Context, socket syscall.Conn) {
	for range mostLooks {
		if n, err := kernel.Backlog(socket); n == 0 || err != nil || sleep.For(ctx, drainGap) != nil {
			return
		}
	}
}

// awaitKept waits until the connections are gone, as each is after its next answer, for DrainKeepAlive at most.
// http.Server.Shutdown would close those that are idle at once, with what their clients are about to send.
func (l *Listeners) awaitKept(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.config.Drain.KeepAlive)
	defer cancel()
	for open := 1; open > 0 && sleep.For(ctx, drainGap) == nil; {
		open = 0
		for _, f := range l.open {
			open += f.tracker.open()
		}
	}
}

// drainGap is the time between two counts of the connections that are left.
const drainGap = 10 * time.Millisecond

// IsLoopback reports whether the address is reached from this machine only. A socket of the file
// system is not: who may use it is a matter of permissions, and gRPC's alone.
func IsLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
