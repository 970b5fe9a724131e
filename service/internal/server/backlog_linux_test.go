package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
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

// A connection that the kernel made and the process did not accept yet when the service is stopped has its request
// answered. No connection is made after it.
func TestBacklogIsAnswered(t *testing.T) {
	t.Parallel()
	ln, err := listen(t.Context(), "listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &slowListener{TCPListener: ln.(*net.TCPListener), opened: make(chan struct{}), closed: make(chan struct{}), asked: make(chan struct{})}
	l.close = sync.OnceValue(func() error { close(l.closed); return ln.Close() })
	d := newDrained(t, func(c *Config) { c.AdminListen = "" }, func(s *Server) {
		s.listen = func(context.Context, string, string) (net.Listener, error) { return l, nil }
	})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /actuator/info HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	d.stop()
	looks := func() bool { // reports whether the socket is looked at before it is closed
		select {
		case <-l.asked:
			return true
		case <-l.closed:
			return false
		}
	}
	// The first look is the filter's. The last one begins after the one before it found the connection.
	for range 4 {
		if !looks() {
			t.Fatal("the listener is closed with a connection in its backlog")
		}
	}
	late, err := (&net.Dialer{Timeout: 50 * time.Millisecond}).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err == nil {
		_ = late.Close()
		t.Error("a connection is made while the service stops to accept")
	} else if !os.IsTimeout(err) {
		t.Error(err)
	}
	close(l.opened)
	go func() {
		for looks() {
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("%s, Close %t; want 200 with Connection: close", response.Status, response.Close)
	}
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	d.refuses(ln.Addr())
}
