package listen

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/kernel"
)

// A slowListener accepts nothing before it is opened, as a process without a processor does.
type slowListener struct {
	*net.TCPListener
	opened, closed chan struct{}
	close          func() error
	asked          chan struct{} // is sent to each time that the drain looks at the socket
}

func (l *slowListener) Accept() (net.Conn, error) {
	select {
	case <-l.opened:
		return l.TCPListener.Accept()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *slowListener) Close() error { return l.close() }

func (l *slowListener) SyscallConn() (syscall.RawConn, error) {
	l.asked <- struct{}{}
	return l.TCPListener.SyscallConn()
}

// A stopping is a service that is stopped while it accepts no connections.
type stopping struct {
	*drained
	listener *slowListener
}

// stopSlow stops a service. A request waits in its backlog, on the connection that it returns.
func stopSlow(t *testing.T, with ...func(*Listeners)) (*stopping, net.Conn) {
	ln := must.Get(listen(t.Context(), "listen", "127.0.0.1:0"))(t)
	l := &slowListener{
		TCPListener: ln.(*net.TCPListener),
		opened:      make(chan struct{}), closed: make(chan struct{}), asked: make(chan struct{}),
	}
	l.close = sync.OnceValue(func() error { close(l.closed); return ln.Close() })
	with = append(with, func(all *Listeners) {
		all.Listen = func(context.Context, string, string) (net.Listener, error) { return l, nil }
	})
	patient := func(c *config.Config) { c.AdminListen, c.Drain.KeepAlive, c.Drain.Timeout = "", time.Hour, time.Hour }
	s := &stopping{newDrained(t, patient, with...), l}
	conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String()))(t)
	t.Cleanup(func() { _ = conn.Close() })
	s.ask(conn)
	s.stop()
	// The first look is the one that drops what is new, or the first at the backlog. The last one begins after the one
	// before it found the connection.
	for range 4 {
		if !s.looks() {
			t.Fatal("the listener is closed with a connection in its backlog")
		}
	}
	return s, conn
}

// looks reports whether the socket is looked at before it is closed.
func (s *stopping) looks() bool {
	select {
	case <-s.listener.asked:
		return true
	case <-s.listener.closed:
		return false
	}
}

// accept lets the service accept connections, and ends when its listener is closed.
func (s *stopping) accept() {
	close(s.listener.opened)
	for s.looks() {
	}
}

func (s *stopping) ask(conn net.Conn) {
	s.Helper()
	must.Get(io.WriteString(conn, "GET /actuator/info HTTP/1.1\r\nHost: h\r\n\r\n"))(s)
}

// answered fails the test unless the request of the connection is answered, as its last one.
func (s *stopping) answered(conn net.Conn) {
	s.Helper()
	response := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(s)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK || !response.Close {
		s.Errorf("%s, Close %t; want 200 with Connection: close", response.Status, response.Close)
	}
}

// A connection that the kernel made and the process did not accept yet when the service is stopped has its request
// answered. No connection is made after it.
func TestBacklogIsAnswered(t *testing.T) {
	t.Parallel()
	s, conn := stopSlow(t)
	addr := s.listener.Addr()
	late, err := (&net.Dialer{Timeout: 50 * time.Millisecond}).DialContext(t.Context(), "tcp", addr.String())
	if err == nil {
		_ = late.Close()
		t.Error("a connection is made while the service stops to accept")
	} else if !os.IsTimeout(err) {
		t.Error(err)
	}
	s.accept()
	s.answered(conn)
	s.ends()
	s.refuses(addr)
}

// Where the system goes on making connections, those are answered, too, and the listener is closed when none is left.
func TestBacklogIsAnsweredWithoutHelp(t *testing.T) {
	t.Parallel()
	s, conn := stopSlow(t, func(l *Listeners) { l.dropNew = func(syscall.Conn) error { return errors.ErrUnsupported } })
	addr := s.listener.Addr()
	late := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", addr.String()))(t)
	defer func() { _ = late.Close() }()
	s.ask(late)
	s.accept()
	s.answered(conn)
	s.answered(late)
	s.ends()
	s.refuses(addr)
}

// A listener whose backlog is never empty is closed all the same.
func TestBacklogIsNotAwaitedForever(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]func(*Listeners){
		"dropped": func(*Listeners) {},
		"refused": func(l *Listeners) { l.dropNew = func(syscall.Conn) error { return errors.ErrUnsupported } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := stopSlow(t, with)
			looks := 4
			for s.looks() {
				looks++
			}
			if looks < mostLooks || looks > mostLooks+1 {
				t.Errorf("the socket is looked at %d times; want %d", looks, mostLooks)
			}
			s.ends()
			s.refuses(s.listener.Addr())
		})
	}
}

// A connection that comes about after the service stopped to accept new ones, as one does whose handshake had begun,
// has all of its packets kept.
func TestLateConnectionIsAnswered(t *testing.T) {
	t.Parallel()
	s, conn := stopSlow(t)
	// The client's packets are kept while the connection is made, and dropped after that.
	passes := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error { return setTTL(raw, 255) }}
	late := must.Get(passes.DialContext(t.Context(), "tcp", s.listener.Addr().String()))(t)
	defer func() { _ = late.Close() }()
	raw := must.Get(late.(syscall.Conn).SyscallConn())(t)
	must.Do(t, setTTL(raw, 64))
	s.ask(late)
	s.accept()
	s.answered(conn)
	s.answered(late)
	s.ends()
}

// setTTL sets the time to live of the packets that a socket sends.
func setTTL(raw syscall.RawConn, ttl int) (err error) {
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TTL, ttl) })
	return errors.Join(err, failed)
}

// A socket of IPv6 makes no more connections of either version.
func TestNothingNewOverIPv6(t *testing.T) {
	t.Parallel()
	ln := must.Get(listen(t.Context(), "listen", "[::]:0"))(t)
	defer func() { _ = ln.Close() }()
	must.Do(t, kernel.DropNew(ln.(syscall.Conn)))
	_, port := must.Two(net.SplitHostPort(ln.Addr().String()))(t)
	for _, host := range []string{"127.0.0.1", "::1"} {
		d := net.Dialer{Timeout: 50 * time.Millisecond}
		conn, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s: a connection is made", host)
		}
	}
}
