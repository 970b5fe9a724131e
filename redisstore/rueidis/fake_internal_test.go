package rueidis

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// A fake is a server that replies as a test says, for what no real one does on demand.
type fake struct {
	address string
	mute    atomic.Bool // it does not know HELLO
	mu      sync.Mutex
	reply   func(self *fake, command []string) string
}

// newFake starts a fake that ends with the test. Whoever connects is let in; reply is
// asked about all other commands, one at a time; "" hangs up.
func newFake(t *testing.T, reply func(self *fake, command []string) string) *fake {
	t.Helper()
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	f := &fake{address: listener.Addr().String(), reply: reply}
	var group sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]struct{}{}
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[conn] = struct{}{}
			mu.Unlock()
			group.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return f
}

func (f *fake) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for {
		sent, err := testredis.ReadReply(in)
		if err != nil || len(sent.Items) == 0 {
			return
		}
		command := sent.Words()
		reply := "+PONG\r\n"
		switch {
		case command[0] == "HELLO" && f.mute.Load():
			reply = "-ERR unknown command 'HELLO'\r\n"
		case command[0] == "HELLO":
			reply = "%2\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n"
		case command[0] == "PING":
		default:
			f.mu.Lock()
			reply = f.reply(f, command)
			f.mu.Unlock()
		}
		if reply == "" {
			return
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("in vain: %s", what)
		}
	}
}
