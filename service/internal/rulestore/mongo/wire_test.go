package mongo_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// A wire stands between a store and the server, and breaks at a command: as if the process had
// died there.
type wire struct {
	t      testing.TB
	server string // host:port
	url    string // through the wire

	mu      sync.Mutex // guards what follows
	left    int        // commands on stint's collections before the one at which it breaks
	reaches bool       // whether the server still gets that one
	broken  bool
	ends    []net.Conn
}

func newWire(t testing.TB, address string, left int, reaches bool) *wire {
	t.Helper()
	target := must.Get(url.Parse(address))(t)
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	w := &wire{t: t, server: target.Host, left: left, reaches: reaches}
	w.url = strings.Replace(address, target.Host, l.Addr().String(), 1) + "?serverSelectionTimeoutMS=20"
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { w.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.breakNow()
		group.Wait()
	})
	return w
}

func (w *wire) breakNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = true
	for _, end := range w.ends {
		_ = end.Close()
	}
}

func (w *wire) isBroken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

// serve passes messages on until the wire breaks.
func (w *wire) serve(client net.Conn) {
	server, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", w.server)
	if err != nil {
		_ = client.Close()
		return
	}
	w.mu.Lock()
	w.ends = append(w.ends, client, server)
	broken := w.broken
	w.mu.Unlock()
	if broken {
		w.breakNow()
		return
	}
	var group sync.WaitGroup
	var last atomic.Bool // whether the server's next answer is lost
	group.Go(func() {
		reply := make([]byte, 64<<10)
		for {
			n, err := server.Read(reply)
			if err != nil || last.Load() {
				break
			}
			if _, err := client.Write(reply[:n]); err != nil {
				break
			}
		}
		_ = client.Close()
	})
	for w.pass(client, server, &last) {
	}
	if last.Load() {
		group.Wait() // the server has done it
		w.breakNow()
	}
	_ = server.Close()
	group.Wait()
}

// pass passes one message on: its length comes first.
func (w *wire) pass(client io.Reader, server io.Writer, last *atomic.Bool) bool {
	var length [4]byte
	if _, err := io.ReadFull(client, length[:]); err != nil {
		return false
	}
	message := make([]byte, binary.LittleEndian.Uint32(length[:]))
	copy(message, length[:])
	if _, err := io.ReadFull(client, message[4:]); err != nil {
		return false
	}
	if bytes.Contains(message, []byte("rate_limit_revisions")) {
		w.mu.Lock()
		breaks := w.left == 0
		w.left--
		w.mu.Unlock()
		if breaks && !w.reaches {
			w.breakNow()
			return false
		}
		last.Store(breaks)
	}
	_, err := server.Write(message)
	return err == nil && !last.Load()
}
