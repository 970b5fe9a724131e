package listen

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/testtls"
)

const (
	nothing    = "GET /nope HTTP/1.1\r\nHost: localhost\r\n"
	authorised = "Authorization: Bearer a-token-of-admins\r\n"
)

// newAdminCrowd is a crowd of the admin listener: 404 for who shows a token, 401 for others.
func newAdminCrowd(t *testing.T, change func(*config.Config)) *crowd {
	t.Helper()
	return newCrowd(t, change, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		Authorise(r.Context())
		w.WriteHeader(http.StatusNotFound)
	}))
}

// asks sends a request on a connection of its own.
func (c *crowd) asks(request string) *bufio.Reader {
	c.t.Helper()
	conn, r := c.dial("")
	_, _ = io.WriteString(conn, request+"\r\n") // one that is refused may be closed by now
	return r
}

// Without a token an address has so many connections, and loses the oldest of them when the
// address connects again; who showed a token keeps all.
func TestAdminRoomOfStrangers(t *testing.T) {
	c := newAdminCrowd(t, func(c *config.Config) { c.HTTP.MaxConnectionsPerPeer = 2 })
	var known []net.Conn
	for range 4 {
		conn, r := c.dial("")
		_, _ = io.WriteString(conn, nothing+authorised+"\r\n")
		c.answers(r, http.StatusNotFound)
		known = append(known, conn)
	}
	first := c.asks(nothing)
	c.answers(first, http.StatusUnauthorized)
	c.answers(c.asks(nothing), http.StatusUnauthorized)
	c.answers(c.asks(nothing), http.StatusUnauthorized) // at once: none of them keeps others out
	c.refused(first)
	c.answers(c.asks(nothing+authorised), http.StatusNotFound)
	if c.closed(refusedPeer) != 0 || c.closed(madeRoom) != 2 {
		t.Errorf("%v refused and %v closed for room, want 0 and 2", c.closed(refusedPeer), c.closed(madeRoom))
	}
	for _, conn := range known {
		must.Get(io.WriteString(conn, nothing+authorised+"\r\n"))(t)
		c.answers(bufio.NewReader(conn), http.StatusNotFound)
	}
}

// However long strangers keep a private room busy, it is made by them, the oldest first.
func TestPrivateRoomIsMadeByStrangers(t *testing.T) {
	w := trackedBy(t, Admin, connLimiter{most: 4, private: true})
	add := func(state http.ConnState, known bool) *trackedConn {
		t.Helper()
		conn := enter(t, w)
		if known {
			Authorise(withConn(t.Context(), conn))
		}
		w.changed(conn, state)
		return conn
	}
	idle, busy := add(http.StateIdle, true), add(http.StateActive, true)
	older := add(http.StateActive, false)
	w.now.Add(2)
	w.changed(older, http.StateActive) // the next request of a pipeline
	newer := add(http.StateNew, false)
	add(http.StateActive, true)
	for conn, want := range map[*trackedConn]bool{idle: true, busy: true, older: false, newer: true} {
		if w.stays(conn) != want {
			t.Errorf("a connection stays: %v, want %v", !want, want)
		}
	}
}

// A peer is the silence of one address.
type peer struct {
	silence
	addr net.Addr
}

func (p peer) RemoteAddr() net.Addr { return p.addr }

// Strangers of a few addresses displace each other, however fast they come: who has not yet shown a token, since its
// network is slow, keeps its connection while another address has more of them.
func TestPrivateRoomOfASlowAdministrator(t *testing.T) {
	clients := must.Get(clientip.New(clientip.Config{}))(t)
	const most = 64
	w := trackedBy(t, Admin, connLimiter{most: most, perPeer: most / 2, private: true, clients: clients})
	admit := func(last byte) *trackedConn {
		t.Helper()
		conn := &trackedConn{Conn: peer{addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1}}}
		if !w.admit(conn) {
			t.Fatalf("a connection of 192.0.2.%d is refused", last)
		}
		return conn
	}
	late, early := admit(9), admit(10)
	w.changed(early, http.StateActive) // its head has come, and its token was not looked at yet
	for i := range 100 * most {
		admit(byte(i % 3)) // and sends nothing
	}
	for what, administrator := range map[string]*trackedConn{"came": late, "was looked at": early} {
		if !w.stays(administrator) {
			t.Errorf("an administrator's connection was closed before its token %s", what)
		}
	}
}

// Strangers who fill a private room in one moment, from several addresses and each with a request whose body never comes, keep
// nobody out: whoever comes next has room, and one who has shown a token keeps it.
func TestPrivateRoomFilledAtOnce(t *testing.T) {
	const most = 64
	w := trackedBy(t, Admin, connLimiter{most: most, private: true})
	var administrator *trackedConn
	for i := range 10 * most {
		if i == most {
			administrator = enter(t, w)
			Authorise(withConn(t.Context(), administrator))
			w.changed(administrator, http.StateActive)
		}
		w.changed(enter(t, w), []http.ConnState{http.StateNew, http.StateActive}[i%2])
	}
	if !w.stays(administrator) || len(w.conns) > most {
		t.Errorf("the administrator's connection stays: %v, of %d", w.stays(administrator), len(w.conns))
	}
}

// Of strangers that came in one tick the one that came first makes room, but those that have sent a head before those that have not: who
// has just come has the time to show a token.
func TestPrivateRoomIsMadeInOrder(t *testing.T) {
	const most = 32
	w := trackedBy(t, Admin, connLimiter{most: most, private: true})
	var conns []*trackedConn
	add := func(n int) {
		t.Helper()
		for range n {
			conns = append(conns, enter(t, w))
		}
	}
	add(most)
	for _, waits := range conns[most/2:] { // for a body
		w.changed(waits, http.StateActive)
	}
	add(most / 2)
	for i, conn := range conns {
		if stays := w.stays(conn); stays != (i < most/2 || i >= most) {
			t.Errorf("connection %d stays: %v", i, stays)
		}
	}
	add(most)
	for i, conn := range conns {
		if stays := w.stays(conn); stays != (i >= len(conns)-most) {
			t.Errorf("connection %d of %d that sent no head stays: %v", i, len(conns), stays)
		}
	}
}

// pipes is a listener with one connection that buffers nothing.
type pipes struct {
	net.Listener
	conns chan net.Conn
}

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// givenUp is a connection that tells when a write of it took too long.
type givenUp struct {
	net.Conn
	up chan struct{}
}

func (g givenUp) Write(p []byte) (int, error) {
	n, err := g.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		select {
		case g.up <- struct{}{}:
		default:
		}
	}
	return n, err
}

// What HTTP/2 sends for no request, such as its SETTINGS, has an end, too.
func TestUnreadFramesEndTheConnection(t *testing.T) {
	issuer := testtls.New(t, "root")
	listeners := openListeners(t, func(c *config.Config) {
		c.AdminTLS, c.HTTP.WriteTimeout = issuer.Files("server"), 50*time.Millisecond
	}, slog.New(slog.DiscardHandler))
	must.Get(listeners.Admin(t.Context(), handled(http.NotFoundHandler())))(t)
	admin := listeners.open[0]
	near, far := net.Pipe()
	l := pipes{admin.listener, make(chan net.Conn, 1)}
	given := givenUp{far, make(chan struct{}, 1)}
	l.conns <- given
	ended := make(chan error, 1)
	go func() { ended <- admin.http.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		close(l.conns)
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		_, _ = near.Close(), admin.http.Close()
	})
	client := issuer.Client("")
	client.NextProtos, client.MaxVersion = []string{"h2"}, tls.VersionTLS12 // in which nothing follows the handshake
	must.Do(t, tls.Client(near, client).HandshakeContext(t.Context()))
	select {
	case <-given.up:
	case <-time.After(5 * time.Minute):
		t.Error("the connection is kept")
	}
}
