package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/sleep"
)

// How connections are made and watched.
const (
	// connectTimeout bounds finding a server's address and connecting to it, and, once more, being let
	// in. An attempt made while the server can't be reached is over this soon after it can be, and the
	// next one reaches it. A server half a second away has time enough.
	connectTimeout = time.Second

	// After silence has lasted for a pingGap a connection is asked whether it lives. Under
	// load nothing is asked.
	pingGap = 200 * time.Millisecond

	// replyTimeout is how long a connection may stay silent after it was asked, so that one that leads
	// nowhere is given up after 2 seconds, and how long the handshake of TLS may take. A server that
	// is half a second away and runs a script for a second keeps its connections.
	replyTimeout = 1600 * time.Millisecond
)

var (
	// errNotSent says that a command was not sent, since the connection was lost before.
	errNotSent = errors.New("not connected")
	// errLost says that a connection was lost as soon as it was made.
	errLost = errors.New("the connection was lost")
	// errClosed says that the connection was closed by its owner.
	errClosed = errors.New("the connection is closed")
	// errReplica says that a server which should be the primary is none.
	errReplica = errors.New("the server is a replica")
)

// clientOptions are those that every client has.
func (d *dialConfig) clientOptions(credentials credentials) rueidis.ClientOption {
	return rueidis.ClientOption{
		AuthCredentialsFn: credentials.read,
		PipelineMultiplex: -1,   // one connection to a server
		AlwaysPipelining:  true, // read in the background, so that a loss is noticed at once
		DisableRetry:      true, // a take that may have been executed is never sent again
		DisableCache:      true, // no client-side caching: state is only touched by the script
		ClientSetInfo:     rueidis.DisableClientSetInfo,
		// of greetings and pings; dialling is ours
		Dialer:           net.Dialer{Timeout: connectTimeout, KeepAlive: pingGap},
		ConnWriteTimeout: replyTimeout,
	}
}

// singleConn is one connection to one server at a time, by rueidis' single client. A loop keeps it
// made; nobody else dials, so that no caller's context spoils an attempt. States of a connection:
// dialled (it exists), up (commands go by it), gone. keep makes the next one when it is gone.
type singleConn struct {
	*attempts

	client rueidis.Client
	dial   func(ctx context.Context) (*socket, error)
	// whether a server that is none is refused
	primary bool
	// gives conn up when it leads to the wrong server; nil for not
	follow func(ctx context.Context, conn *socket)

	tried atomic.Bool // whether the attempt under way has dialled
	// the latest connection; nil before the first
	dialled atomic.Pointer[socket]
	// the one that commands are sent by, if it is open
	up atomic.Pointer[socket]
	// when a command was last handed to the client, since the epoch of up
	handed atomic.Int64
}

// dialling marks the context of the loop, which alone may dial.
type dialling struct{}

// start makes the client, and connects in the background.
func (c *singleConn) start(options rueidis.ClientOption) error {
	c.attempts = newAttempts()
	options.InitAddress = []string{"the server"} // which dial knows
	options.ForceSingleClient = true
	options.DialCtxFn = func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if ctx.Value(dialling{}) != c {
			return nil, errNotSent
		}
		c.tried.Store(true)
		conn, err := c.dial(ctx)
		if err != nil {
			return nil, err
		}
		if c.life.Err() != nil {
			return nil, errors.Join(errClosed, conn.Close())
		}
		c.dialled.Store(conn)
		go conn.watch(c.life)
		return conn, nil
	}
	client, err := rueidis.NewClient(options) // tries to connect at once, and may not
	if err != nil && !errors.Is(err, errNotSent) {
		c.end()
		return err
	}
	c.client = client
	c.loop.Go(c.keep)
	return nil
}

// keep keeps the connection made until the link is closed.
func (c *singleConn) keep() {
	for c.life.Err() == nil {
		conn, err := c.connect()
		if err != nil {
			c.finish(err)
			continue
		}
		c.up.Store(conn)
		c.finish(nil)
		ctx, end := context.WithCancel(c.life)
		if c.follow != nil {
			c.loop.Go(func() { c.follow(ctx, conn) })
		}
		<-conn.gone
		end()
	}
}

// connect makes one attempt.
func (c *singleConn) connect() (*socket, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(c.life, dialling{}, c), connectTimeout+2*replyTimeout)
	defer cancel()
	ping := func() error { return c.client.Do(ctx, arbitrary("PING")(c.client.B())).Error() }
	c.tried.Store(false)
	err := ping()
	for err != nil && !c.tried.Load() && ctx.Err() == nil {
		// The client has not noticed yet that the connection was lost; or a command that had
		// not noticed dialled at the same moment, which was refused to both.
		runtime.Gosched()
		err = ping()
	}
	if errors.Is(err, errNotSent) && ctx.Err() != nil {
		err = ctx.Err() // of an attempt that was made, and took too long
	}
	conn := c.dialled.Load()
	// A server that does not let the store in replies with an error, and the connection is
	// closed. One that only refuses the PING is connected to.
	if _, replied := rueidis.IsRedisErr(err); err != nil && !replied || conn == nil || !conn.open() {
		if conn != nil {
			_ = conn.Close() // it is of no use
		}
		if err == nil {
			err = errLost
		}
		return nil, err
	}
	if c.primary {
		role, err := c.client.Do(ctx, arbitrary("ROLE")(c.client.B())).AsStrSlice()
		if err == nil && (len(role) == 0 || role[0] != "master") {
			err = errReplica
		}
		if err != nil {
			conn.giveUp(err)
			return nil, err
		}
	}
	return conn, nil
}

// isUp reports whether there is a connection.
func (c *singleConn) isUp() bool {
	conn := c.up.Load()
	return conn != nil && conn.open()
}

// Ready implements [redisconn.Conn].
func (c *singleConn) Ready(ctx context.Context) error {
	if c.isUp() {
		return nil
	}
	return c.wait(ctx, c.isUp)
}

// send sends one command. One that was not sent, as the connection was lost before, is sent on the
// next one; one that may have been carried out is not sent again. A server that has become
// read-only is given up, since the primary is elsewhere by now.
func (c *singleConn) send(ctx context.Context, build builder) rueidis.RedisResult {
	for {
		if err := c.Ready(ctx); err != nil {
			return rueidis.NewErrorResult(err)
		}
		conn := c.up.Load()
		c.handed.Store(int64(time.Since(conn.epoch)))
		result := c.client.Do(ctx, build(c.client.B()))
		err := result.Error()
		switch {
		case errors.Is(err, errNotSent):
			runtime.Gosched() // until the loss is noticed
			continue
		case err != nil && readOnly(err):
			// The name of the server, or the sentinels, may lead to the primary meanwhile.
			conn.giveUp(err)
		}
		return result
	}
}

// Subscribe implements [redisconn.Conn]. It ends with the connection. A server without
// HELLO would need another one, which is not made.
func (c *singleConn) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	if err := c.Ready(ctx); err != nil {
		return err
	}
	return receive(ctx, c.client, channel, ready, message)
}

// Servers implements [redisconn.Conn].
func (c *singleConn) Servers(context.Context) ([]redisconn.Server, error) {
	return []redisconn.Server{serverBy("primary", c.send)}, nil
}

// Sentinels implements sender.
func (*singleConn) Sentinels() (name string, servers []redisconn.Server) { return "", nil }

// Primary implements sender.
func (c *singleConn) Primary() string {
	if conn := c.up.Load(); conn != nil && c.primary {
		return conn.address
	}
	return ""
}

// Cluster implements [redisconn.Conn].
func (c *singleConn) Cluster() bool { return false }

// Close implements [redisconn.Conn].
func (c *singleConn) Close() {
	c.end()
	c.loop.Wait()
	c.client.Close()
}

// Reads implements [redisconn.Conn].
func (c *singleConn) Reads() uint64 {
	if conn := c.up.Load(); conn != nil {
		return conn.reads.Load()
	}
	return 0
}

// Behind implements [redisconn.Conn].
func (c *singleConn) Behind() bool {
	conn := c.up.Load()
	if conn == nil || !conn.open() {
		return false // there is nothing to read from
	}
	return conn.wrote.Load() < c.handed.Load() || !conn.reading.Load() || conn.unread()
}

// After an attempt that failed, the next one waits, ever longer and somewhat by chance: many
// processes don't wear down a server that comes back, and those who wait still hear why there is
// no connection before a usual deadline is over.
const (
	firstRest = 10 * time.Millisecond
	lastRest  = 50 * time.Millisecond
)

// attempts are made one after another by a loop, until its owner is closed. Others wait for them.
type attempts struct {
	life context.Context
	end  context.CancelFunc
	loop sync.WaitGroup

	mu   sync.Mutex
	rest time.Duration // after the next one that fails
	// closed when the attempt under way, or the next one, is over
	done  chan struct{}
	fault error // why the latest failed
}

// newAttempts are those of a connection that is made in the background, the first one at once.
func newAttempts() *attempts {
	a := &attempts{rest: firstRest, done: make(chan struct{})}
	a.life, a.end = context.WithCancel(context.Background())
	return a
}

// finish tells those who wait how an attempt ended. After one that failed it rests.
func (a *attempts) finish(fault error) {
	a.mu.Lock()
	close(a.done)
	a.done, a.fault = make(chan struct{}), fault
	a.mu.Unlock()
	if fault == nil {
		a.rest = firstRest
		return
	}
	_ = sleep.Jittered(a.life, a.rest)
	a.rest = min(2*a.rest, lastRest)
}

// wait waits for an attempt, unless it has succeeded already, and returns why it failed.
func (a *attempts) wait(ctx context.Context, succeeded func() bool) error {
	a.mu.Lock()
	done := a.done
	a.mu.Unlock()
	if succeeded() { // before the attempt of done began
		return nil
	}
	select {
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.life.Done():
		return errClosed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fault
}
