package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// dial connects to an address.
func (d *dialConfig) dial(ctx context.Context, address string) (*socket, error) {
	near, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(near, d.network, address)
	if err == nil && d.tls {
		conn, err = d.secure(ctx, conn, address)
	}
	if err != nil {
		return nil, err
	}
	return newSocket(conn, address), nil
}

// secure speaks TLS over a connection to an address.
func (d *dialConfig) secure(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	config, err := d.files.config(host)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// A socket knows how far this process has come with it, and why it was given up.
type socket struct {
	net.Conn
	address string // that it was made to

	gone   chan struct{} // closed when it is closed
	closed sync.Once
	why    atomic.Pointer[error] // it was given up; nil for not

	epoch time.Time
	// when something was last written, in nanoseconds since epoch
	wrote   atomic.Int64
	read    atomic.Int64 // when something was last read
	reads   atomic.Uint64
	reading atomic.Bool // whether somebody waits for something to read
}

// newSocket watches a connection from now on: gone is closed with it, and epoch is when it began.
func newSocket(conn net.Conn, address string) *socket {
	return &socket{Conn: conn, address: address, gone: make(chan struct{}), epoch: time.Now()}
}

// Read implements [net.Conn].
func (t *socket) Read(text []byte) (int, error) {
	t.reading.Store(true)
	n, err := t.Conn.Read(text)
	t.read.Store(int64(time.Since(t.epoch)))
	t.reads.Add(1)
	t.reading.Store(false)
	return n, t.fault(err)
}

// Write implements [net.Conn].
func (t *socket) Write(text []byte) (int, error) {
	t.wrote.Store(int64(time.Since(t.epoch)))
	n, err := t.Conn.Write(text)
	return n, t.fault(err)
}

// fault says why a connection failed.
func (t *socket) fault(err error) error {
	if why := t.why.Load(); why != nil && err != nil {
		return *why
	}
	return err
}

// Close implements [net.Conn].
func (t *socket) Close() error {
	t.closed.Do(func() { close(t.gone) })
	return t.Conn.Close()
}

// giveUp closes a connection that leads to the wrong server. Calls under way on it fail
// with the reason.
func (t *socket) giveUp(why error) {
	why = fmt.Errorf("the connection was given up: %v", why) //nolint:errorlint // not the reply to what is under way
	t.why.CompareAndSwap(nil, &why)
	_ = t.Close() // it is of no use
}

// watch waits until the socket is closed, and gives it up if the context ends before.
func (t *socket) watch(ctx context.Context) {
	select {
	case <-t.gone:
	case <-ctx.Done():
		t.giveUp(errClosed)
	}
}

// open reports whether it has not been closed.
func (t *socket) open() bool {
	select {
	case <-t.gone:
		return false
	default:
		return true
	}
}

// unread reports whether something has arrived that was not read.
func (t *socket) unread() bool {
	conn := t.Conn
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	return ok && hasUnread(socket)
}
