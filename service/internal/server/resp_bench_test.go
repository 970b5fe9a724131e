package server_test

import (
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/server"
)

// An endless connection is one whose client sends one text again and again, so many times. Its answers go to the null
// device, as they go to a socket: were there none, another goroutine would write them, with copies as many as it is late.
type endless struct {
	net.Conn
	null *os.File
	text []byte
	at   int // what of it was sent last
	left int
	done chan struct{}
}

func (f *endless) Read(to []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n := copy(to, f.text[f.at:])
	if f.at += n; f.at == len(f.text) {
		f.at = 0
		f.left--
	}
	return n, nil
}

func (f *endless) Write(text []byte) (int, error)  { return len(text), nil }
func (f *endless) Close() error                    { close(f.done); return f.null.Close() }
func (f *endless) Raw() syscall.RawConn            { raw, _ := f.null.SyscallConn(); return raw } // nil if it is closed
func (f *endless) RemoteAddr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (f *endless) SetReadDeadline(time.Time) error { return nil }

// single is a listener that accepts one connection.
type single struct{ conn chan net.Conn }

func (l single) Accept() (net.Conn, error) {
	if conn, ok := <-l.conn; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (l single) Close() error   { close(l.conn); return nil }
func (l single) Addr() net.Addr { return &net.TCPAddr{} }

// A command about a key that is known allocates nothing, with all that is told of it. What is read at once costs five
// allocations, of its entry and its answer. (The collector empties pools, and others in this process allocate, too.)
func TestRESPAllocatesNothing(t *testing.T) {
	most := 8.0
	if raceEnabled {
		most = 32 // the race detector makes pools forget
	}
	s := respService(t)
	const rounds, commands = 500, 64
	for _, words := range [][]string{
		{"CL.THROTTLE", "key:1", "15", "30", "60", "1"},
		{"STINT.CHECK", "api", "key:1"},
		{"EVAL", "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])", "1", "key:1", "15", "30", "60"},
	} {
		text := strings.Repeat(testredis.Command(words...), commands)
		least := math.Inf(1)
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			send(t, s, text, rounds)
			runtime.ReadMemStats(&after)
			least = min(least, float64(after.Mallocs-before.Mallocs)/rounds)
		}
		if least > most {
			t.Errorf("%s: %.2f allocations for %d commands that came at once", words[0], least, commands)
		}
	}
}

// send has a connection of the Redis protocol answer a text so many times.
func send(tb testing.TB, s *server.Server, text string, times int) {
	tb.Helper()
	ln := single{make(chan net.Conn, 1)}
	null := must.Get(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(tb)
	client := &endless{null: null, text: []byte(text), left: times, done: make(chan struct{})}
	ln.conn <- client
	_ = ln.Close()
	_ = s.RESP(true).Serve(ln)
	<-client.done
}

// respService is a service with what a program has by default.
func respService(t testing.TB) *server.Server {
	t.Helper()
	config, _, _ := testConfig()
	store := memstore.New(memstore.Config{})
	config.Store, config.InProcess, config.Activity = store, true, activity.New(activity.Config{})
	config.Policies = map[string][]stint.Limit{"api": {stint.TokenBucket(100, stint.PerSecond(10))}}
	return must.Get(server.New(config))(t)
}

// BenchmarkRESP is what a command costs beside the kernel's part, in pipelines of 64 for 64 clients.
func BenchmarkRESP(b *testing.B) {
	s := respService(b)
	for name, words := range map[string][]string{
		"command=throttle": {"CL.THROTTLE", "KEY", "15", "30", "60", "1"},
		"command=check":    {"STINT.CHECK", "api", "KEY"},
		"command=ping":     {"PING"},
	} {
		b.Run(name, func(b *testing.B) {
			var text strings.Builder
			for i := range 64 {
				text.WriteString(strings.ReplaceAll(testredis.Command(words...), "$3\r\nKEY", "$7\r\nkey:"+strconv.Itoa(100+i)))
			}
			b.ReportAllocs()
			b.ResetTimer()
			send(b, s, text.String(), (b.N+63)/64)
		})
	}
}
