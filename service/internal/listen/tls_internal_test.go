package listen

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/certificates"
	"github.com/stint-go/stint/service/internal/testtls"
)

// A TLS connection is watched like others, without a bound on the time of a request where
// requests overlap.
func TestWatchOfTLS(t *testing.T) {
	i := testtls.New(t, "root")
	files := must.Get(certificates.Open("tls", HTTP, i.Files("server"), slog.New(slog.DiscardHandler), time.Now))(t)
	for _, test := range []struct {
		protocol string
		state    http.ConnState
		after    int64
		stays    bool
	}{
		{"h2", http.StateActive, 1000, true},
		{"h2", http.StateIdle, 1000, false},
		{"h2", http.StateNew, 1000, false},
		{"http/1.1", http.StateActive, 1000, false},
		{"http/1.1", http.StateActive, 1, true},
	} {
		w := trackedBy(t, HTTP, connLimiter{most: 1})
		near, far := net.Pipe()
		conn := &trackedConn{Conn: near}
		secure := tls.Server(conn, files.Config())
		config := i.Client("")
		config.NextProtos = []string{test.protocol}
		client := tls.Client(far, config)
		shaken := make(chan error, 1)
		go func() { shaken <- client.HandshakeContext(t.Context()) }()
		must.Do(t, errors.Join(secure.HandshakeContext(t.Context()), <-shaken))
		if !w.admit(conn) {
			t.Fatal("there is no room")
		}
		w.changed(secure, test.state)
		w.sweep(test.after)
		if stays := w.stays(conn); stays != test.stays {
			t.Errorf("%s, %v, after %d ticks: it stays: %v", test.protocol, test.state, test.after, stays)
		}
		w.changed(secure, http.StateClosed)
		if len(w.conns) > 0 {
			t.Errorf("%s, %v: a closed connection is kept", test.protocol, test.state)
		}
		_, _ = near.Close(), far.Close()
	}
}
