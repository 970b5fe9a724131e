package rueidis

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fake is a server that replies as a test says, for what no real one does on demand.
type fake struct {
	address string
	mute    bool // it does not know HELLO
	mu      sync.Mutex
	reply   func(command []string) string
}

// newFake starts a fake that ends with the test. Whoever connects is let in; reply is
// asked about all other commands, one at a time; "" hangs up.
func newFake(t *testing.T, reply func(command []string) string) *fake {
	t.Helper()
	return startFake(t, false, reply)
}

func startFake(t *testing.T, mute bool, reply func(command []string) string) *fake {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{address: listener.Addr().String(), reply: reply, mute: mute}
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
		command, err := readCommand(in)
		if err != nil {
			return
		}
		reply := "+PONG\r\n"
		switch {
		case command[0] == "HELLO" && f.mute:
			reply = "-ERR unknown command 'HELLO'\r\n"
		case command[0] == "HELLO":
			reply = "%2\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n"
		case command[0] == "PING":
		default:
			f.mu.Lock()
			reply = f.reply(command)
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

// readCommand reads a command as clients send it, an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	count, err := readLength(in, '*')
	if err != nil || count < 1 {
		return nil, io.ErrUnexpectedEOF
	}
	command := make([]string, count)
	for i := range command {
		length, err := readLength(in, '$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, length+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		command[i] = string(text[:length])
	}
	return command, nil
}

func readLength(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil || line[0] != kind {
		return 0, io.ErrUnexpectedEOF
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// array is an array reply of strings.
func array(parts ...string) string {
	reply := fmt.Sprintf("*%d\r\n", len(parts))
	for _, part := range parts {
		reply += fmt.Sprintf("$%d\r\n%s\r\n", len(part), part)
	}
	return reply
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
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
