// Package resp serves the Redis protocol, so that every client of Redis is one of stint:
// CL.THROTTLE as redis-cell has it, by itself or from a script of one line, and STINT.CHECK,
// STINT.EVALUATE, STINT.RESERVE, STINT.COMMIT and STINT.CANCEL. What a client sends at once is
// decided as one batch, each command alone and in order, between MULTI and EXEC too.
//
// The protocol is that of https://redis.io/docs/latest/develop/reference/protocol-spec/. parser.go
// reads it and reply.go writes it; commands.go has the table of commands and the first words of
// clients; throttle.go, script.go and stint.go have the commands that decide; conn.go is a connection,
// outbox.go what its client has not read yet.
//
// A connection has one goroutine, which reads, decides and answers; a second one writes only while
// the client takes less than it is sent. A client that sends much at once gets batches of up to
// batchSize operations, and yields to others between them. The package knows nothing of HTTP's
// service but the functions of its [Config].
package resp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/keyhash"
	"github.com/stint-go/stint/internal/sleep"
)

// A Target is what a policy's name stands for. It is not changed.
//
// It is looked up by each command, so that a policy that changed decides from the next one on.
type Target struct {
	Policy *stint.Policy
	Rule   string // that an event names
	// Most is how many permits may be asked for.
	Most int64
	// Least is the algorithm of the limit that admits least.
	Least stint.Algorithm
	// Fill describes a decision. Default: nil, where nobody asks.
	Fill func(c *api.CheckResponse, claim *stint.Claim, d *stint.Decision)
}

// A Question is a request that rules are asked about. All but Details may be changed once Evaluate
// has returned.
type Question struct {
	Address      string // of the client
	Method, Path string
	// Details are names and values in turn: host, ip, set, wait, headers.NAME and attributes.NAME.
	Details [][]byte
}

// Config is what a [Server] needs of the service. Each function is safe for concurrent use.
//
// KeepKeys, Bind and Raw are what makes a command cheap where state is in this process: no copy of
// the key, no operation, one system call for the answer.
type Config struct {
	// Take takes of a store in this process, which keeps no keys. Default: nil, DecideAll decides everything.
	Take func(ctx context.Context, policy *stint.Policy, key string, permits int64) (stint.Decision, error)
	// KeepKeys says that those who observe keep keys.
	KeepKeys bool
	// DecideAll carries out operations in order, each alone. Keys may be kept.
	DecideAll func(ctx context.Context, ops []stint.Op, results []stint.Result)
	// Evaluate decides by rules. It may take as long as rules hold requests.
	Evaluate func(ctx context.Context, q *Question) (api.EvaluateResponse, error)
	// Enter waits until so much work of a client at an address may begin. Its context is the work's.
	//
	// Its cost is in operations. leave is called once.
	Enter func(ctx context.Context, address string, cost int64) (begun context.Context, leave func(), err error)
	// Undecided is told of each check that came to nothing, with its target's Least.
	Undecided func(by stint.Algorithm, err error)
	// Observe is told of each decision. It keeps nothing of the event, unless KeepKeys says so.
	Observe stint.Observer
	// Target finds what a policy's name stands for.
	Target func(policy string) (*Target, error)
	// CheckKey reports what is wrong with a key.
	CheckKey func(key string) error
	// MayAsk reports why a client that has shown a token, or none, may not ask at all, and MayName why it
	// may not name keys.
	MayAsk, MayName func(token string) error
	// Tokens says that a token is needed.
	Tokens bool
	// Refused is told why a command of a client at an address was not carried out. It returns the status of HTTP for the
	// error, and what the client is told.
	Refused func(address string, err error) (status int, detail string)
	// Handshake is told why a client at an address could not make a connection with TLS.
	Handshake func(address string, err error)
	// Raw is the system's connection below one, nil if there is something between them, such as TLS. Default: nil, there
	// always is.
	Raw func(net.Conn) syscall.RawConn
	// State is told when a connection begins, waits, is at work and has ended. It may yield.
	State func(net.Conn, http.ConnState)
	// BodyTimeout is how long all may take to come from MULTI to EXEC. Default: 0, as long as State allows.
	BodyTimeout time.Duration
	// Draining says that each connection is to end with its next answer.
	Draining func() bool

	// Memory is how many bytes the process uses.
	Memory  func() uint64
	Version string
	Logger  *slog.Logger
}

// A Server serves connections of a listener. It is safe for concurrent use; make it with [New]. A
// server has memory for all connections together (budget) besides what each has for itself.
type Server struct {
	config    Config
	commands  map[string]*command
	throttles throttles
	scripts   scripts
	holds     holds
	budget    budget
	// batches has *batch and replies *[]byte: connections that are silent have neither.
	batches sync.Pool
	replies sync.Pool // of *[]byte
	// last is the number of the newest connection, which is how many there have been.
	last    atomic.Int64
	closing atomic.Bool

	// commands so far, and connections that wait for an evaluation
	done, evaluating atomic.Int64

	mu    sync.Mutex
	conns map[*conn]struct{}
	// serving counts the connections' goroutines.
	serving sync.WaitGroup
}

// New makes a server.
func New(config Config) *Server {
	s := &Server{config: config, conns: map[*conn]struct{}{}}
	s.batches.New = func() any { return &batch{} }
	s.replies.New = func() any { return new([]byte) }
	s.throttles.seed = keyhash.MakeSeed()
	s.commands = s.table()
	return s
}

// Serve serves the listener's connections until it is closed, and returns its error. When the system has
// nothing left for another connection, it tries again by and by.
func (s *Server) Serve(ln net.Listener) error {
	// A shortage ends when connections do, so that trying at once again would only burn the processor.
	const shortest, longest = 5 * time.Millisecond, time.Second
	for wait := shortest; ; {
		nc, err := ln.Accept()
		switch {
		case isShortage(err):
			s.config.Logger.Warn("a connection of the Redis protocol was not accepted", "err", err, "again_after", wait)
			_ = sleep.For(context.Background(), wait) // which does not end
			wait = min(2*wait, longest)
			continue
		case err != nil:
			return err
		}
		wait = shortest
		c := s.newConn(nc)
		if s.add(c) {
			go s.serve(c)
		} else {
			c.close()
		}
	}
}

// isShortage reports whether the system lacks something that it may have again.
func isShortage(err error) bool {
	for _, known := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// add counts a connection, unless the server is closing.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	return true
}

// serve serves a connection. A panic is a mistake of this program, and ends that connection alone.
func (s *Server) serve(c *conn) {
	defer func() {
		if v := recover(); v != nil {
			s.config.Logger.Error("a connection of the Redis protocol panicked", "peer", c.address, "panic", v, "stack",
				string(debug.Stack()))
		}
		c.close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.serving.Done()
	}()
	c.serve()
}

// Shutdown ends connections that wait at once, and others with the answer to what has come, or when the context ends.
// The listener is closed by then.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closing.Store(true)
	s.each(func(c *conn) { _ = c.SetReadDeadline(time.Now()) })
	ended := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.each(func(c *conn) {
			c.cancel()
			_ = c.Close()
		})
		<-ended
		return ctx.Err()
	}
}

// each calls do for all connections, with the lock held.
func (s *Server) each(do func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		do(c)
	}
}
