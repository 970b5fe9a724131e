package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint/internal/watchdog"
)

// How connections are made and watched.
const (
	// connectTimeout bounds finding a server's address and connecting to it. An attempt
	// made while the server can't be reached is over this soon after it can be, and the
	// next one reaches it. A server half a second away has time enough.
	connectTimeout = time.Second

	// After silence has lasted for a pingGap a connection is asked whether it lives. Under
	// load nothing is asked, unless somebody waited for a reply in vain.
	pingGap = time.Second

	// replyTimeout is how long a connection may stay silent after it was asked, and how
	// long a new one may take for the handshake of TLS, and to let the store in. A
	// connection that leads nowhere is given up so long after the first call that timed out
	// on it, and after 3.6 seconds if there was none. A server that is half a second away
	// and runs a script for a second keeps its connections.
	replyTimeout = 1600 * time.Millisecond

	// After an attempt that failed, the next one waits, ever longer and somewhat by
	// chance: many processes don't wear down a server that comes back, and those who wait
	// still hear why there is no connection before a usual deadline is over.
	firstRest = 10 * time.Millisecond
	lastRest  = 50 * time.Millisecond
)

var (
	// errNoLink says that a command was not sent, since there is no connection.
	errNoLink = errors.New("not connected")
	// errMute says that a connection was asked whether it lives, and is silent.
	errMute = errors.New("nothing is heard of the server")
	// errLetGo says that a link was closed.
	errLetGo = errors.New("the connection is closed")
)

// A target is where a link leads.
type target struct {
	// address is where a node of a cluster is; "" for another server.
	address string
	// dial connects, with TLS if need be.
	dial func(ctx context.Context) (net.Conn, error)
	// greet, if set, says whether the server is the right one, asked over the new
	// connection.
	greet func(ctx context.Context, client rueidis.Client) error
}

// link is one connection to a server. It is made when it is needed, in the background,
// by one attempt at a time, and made anew when it was lost. No command makes it and
// none waits for it longer than its context lasts: rueidis would let the first command
// connect, on its own context, and hold the others until that is over.
type link struct {
	target target
	client rueidis.Client
	life   context.Context
	end    context.CancelFunc
	up     atomic.Bool // commands may be sent
	epoch  time.Time
	handed atomic.Int64 // when a command was last handed to the client, in nanoseconds since epoch

	doubted   atomic.Bool           // whether it is being asked if it lives
	dropped   atomic.Pointer[error] // why a connection was given up last
	questions sync.WaitGroup

	mu      sync.Mutex
	conn    *traced       // the latest; nil before the first
	attempt *attempt      // under way; nil for none
	fault   error         // why the latest attempt failed, nil if it did not
	rest    time.Duration // after it
	rested  time.Time     // when that is over
}

// attempt is one attempt to connect.
type attempt struct {
	done chan struct{} // closed when err is set
	err  error
}

// connecting marks the context of what may connect.
type connecting struct{}

// newLink makes a link to a target, by options about who the store is there. It does
// not connect.
func newLink(t target, options rueidis.ClientOption) (*link, error) {
	l := &link{target: t, epoch: time.Now()}
	l.life, l.end = context.WithCancel(context.Background())
	options.InitAddress = []string{"the target"} // which dial knows
	options.ForceSingleClient = true
	options.PipelineMultiplex = -1 // one connection
	options.DisableRetry = true    // a take that may have been executed is never sent again
	options.DisableCache = true    // no client-side caching: state is only touched by the script
	options.ClientSetInfo = rueidis.DisableClientSetInfo
	options.Dialer.Timeout = replyTimeout // of the greeting; dialling is ours
	options.Dialer.KeepAlive = pingGap
	options.ConnWriteTimeout = replyTimeout
	options.DialCtxFn = l.dial
	client, err := rueidis.NewClient(options) // tries to connect at once, and may not
	if err != nil && !errors.Is(err, errNoLink) {
		l.end()
		return nil, err
	}
	l.client = client
	return l, nil
}

// dial connects for rueidis, for an attempt and for nobody else.
func (l *link) dial(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	if ctx.Value(connecting{}) != l {
		return nil, errNoLink
	}
	conn, err := l.target.dial(ctx)
	if err != nil {
		return nil, err
	}
	traced := &traced{Conn: conn, epoch: l.epoch}
	if to, ok := conn.(named); ok {
		traced.Conn, traced.address = to.Conn, to.address
	}
	l.mu.Lock()
	l.conn = traced
	l.mu.Unlock()
	if l.life.Err() != nil { // who closes the link may not have seen the connection
		l.hangUp()
		return nil, errLetGo
	}
	return traced, nil
}

// do sends a command, over a connection that is there or that there is before the
// context ends. A command whose reply has not come may have been executed, unless the
// error is one of connecting.
func (l *link) do(ctx context.Context, c command) rueidis.RedisResult {
	for {
		if err := l.connect(ctx); err != nil {
			return rueidis.NewErrorResult(err)
		}
		l.hand(ctx)
		result := l.client.Do(unhurried(ctx), c.build(l.client.B()))
		if err := result.NonRedisError(); !l.lost(err) {
			return l.judge(ctx, err, result)
		}
	}
}

// hand notes that a command is handed to the client.
func (l *link) hand(ctx context.Context) {
	l.handed.Store(int64(time.Since(l.epoch)))
	watchdog.Use(ctx, l)
}

// doAsking is do for a command that another node of a cluster sent on with ASK.
func (l *link) doAsking(ctx context.Context, c command) rueidis.RedisResult {
	for {
		if err := l.connect(ctx); err != nil {
			return rueidis.NewErrorResult(err)
		}
		b := l.client.B()
		l.hand(ctx)
		results := l.client.DoMulti(unhurried(ctx), b.Asking().Build(), c.build(b))
		if err := results[1].NonRedisError(); !l.lost(err) {
			return l.judge(ctx, err, results[1])
		}
	}
}

// doTogether is do for commands that are to reach one server, one behind another.
func (l *link) doTogether(ctx context.Context, commands []command) []rueidis.RedisResult {
	results := make([]rueidis.RedisResult, len(commands))
	for {
		if err := l.connect(ctx); err != nil {
			for i := range results {
				results[i] = rueidis.NewErrorResult(err)
			}
			return results
		}
		built := make(rueidis.Commands, len(commands))
		for i, c := range commands {
			built[i] = c.build(l.client.B())
		}
		results = l.client.DoMulti(unhurried(ctx), built...)
		lost := false
		for i := range results {
			lost = lost || l.lost(results[i].NonRedisError())
		}
		if lost {
			continue
		}
		for i := range results {
			results[i] = l.judge(ctx, results[i].NonRedisError(), results[i])
		}
		return results
	}
}

// lost reports whether a command was not sent because there is no connection any more.
func (l *link) lost(err error) bool {
	if err == nil || !errors.Is(err, errNoLink) {
		return false
	}
	l.up.Store(false)
	return true
}

// judge looks at how a command failed: what was under way on a connection that was given
// up says why that was.
func (l *link) judge(ctx context.Context, err error, result rueidis.RedisResult) rueidis.RedisResult {
	l.doubt(ctx, err)
	if why := l.dropped.Load(); why != nil && errors.Is(err, net.ErrClosed) {
		// Not wrapped: it is not the reply to this command.
		return rueidis.NewErrorResult(fmt.Errorf("%w: the connection was given up: %v", err, *why)) //nolint:errorlint // see above
	}
	return result
}

// doubt asks a connection whether it lives, since a reply did not come in time, and gives
// it up if nothing comes. One question is asked at a time.
func (l *link) doubt(ctx context.Context, err error) {
	if err == nil || ctx.Err() == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil || !l.doubted.CompareAndSwap(false, true) {
		return
	}
	l.questions.Go(func() {
		defer l.doubted.Store(false)
		ctx, cancel := context.WithTimeout(l.life, replyTimeout)
		defer cancel()
		err := l.client.Do(unhurried(ctx), l.client.B().Arbitrary("PING").Build()).NonRedisError()
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			l.drop(errMute)
		}
	})
}

// unhurried is a context that ends with another but has no deadline. With one, rueidis
// would read in the foreground, where it closes the connection at the deadline, and
// notices a server's restart only by losing a command.
func unhurried(ctx context.Context) context.Context {
	if _, hurried := ctx.Deadline(); hurried {
		return noDeadline{ctx}
	}
	return ctx
}

type noDeadline struct{ context.Context } //nolint:containedctx // it is a context

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// connect returns nil when there is a connection. It waits for the attempt under way,
// or makes one, for as long as the context lasts.
func (l *link) connect(ctx context.Context) error {
	if l.up.Load() {
		return nil
	}
	l.mu.Lock()
	switch {
	case l.up.Load():
		l.mu.Unlock()
		return nil
	case l.life.Err() != nil:
		l.mu.Unlock()
		return errLetGo
	case l.attempt == nil:
		l.attempt = &attempt{done: make(chan struct{})}
		go l.try(l.attempt, time.Until(l.rested))
	}
	a := l.attempt
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try makes an attempt after a rest.
func (l *link) try(a *attempt, rest time.Duration) {
	if rest > 0 {
		select {
		case <-time.After(rest):
		case <-l.life.Done():
		}
	}
	a.err = l.open(context.WithValue(l.life, connecting{}, l))
	l.mu.Lock()
	if a.err == nil {
		l.rest, l.rested = 0, time.Time{}
		l.up.Store(true)
	} else {
		l.rest = min(max(2*l.rest, firstRest), lastRest)
		l.rested = time.Now().Add(jitter(l.rest))
	}
	l.fault, l.attempt = a.err, nil
	l.mu.Unlock()
	close(a.done)
}

// jitter is a time between half of another and all of it, by chance, so that processes
// do not keep step.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2) //nolint:gosec // nobody gains by guessing it
}

// open connects and has the server greet.
func (l *link) open(ctx context.Context) error {
	ping := func(ctx context.Context) error {
		return l.client.Do(ctx, l.client.B().Arbitrary("PING").Build()).Error()
	}
	err := ping(ctx)
	for errors.Is(err, errNoLink) {
		// A command that had taken the link to be up dialled at the same moment, which was
		// refused to both. That ends when all of them have noticed.
		err = ping(ctx)
	}
	if err != nil {
		// A server that does not let the store in replies with an error, and so does one
		// that only refuses the PING. It is connected to the latter.
		if _, replied := rueidis.IsRedisErr(err); !replied || errors.Is(ping(l.life), errNoLink) {
			return err
		}
	}
	if l.target.greet == nil {
		return nil
	}
	if err := l.target.greet(l.life, l.client); err != nil {
		l.hangUp()
		return err
	}
	return nil
}

// drop gives the connection up, or the attempt under way, since it leads to the wrong
// server, or nowhere. What is under way on it fails, and says why.
func (l *link) drop(why error) {
	l.dropped.Store(&why)
	if l.up.CompareAndSwap(true, false) || l.wanted() {
		l.hangUp()
	}
}

// wanted reports whether somebody wants a connection and there is none yet: an attempt
// is under way, or failed and nobody has found a connection since.
func (l *link) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempt != nil || l.fault != nil
}

func (l *link) hangUp() {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it is of no use
	}
}

// subscribe is Conn.Subscribe.
func (l *link) subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	err := errNoLink
	// The second time there is a connection, but to a server that needs another one for
	// subscriptions.
	for tries := 0; tries < 2 && errors.Is(err, errNoLink); tries++ {
		if err := l.connect(ctx); err != nil {
			return err
		}
		err = receive(ctx, l.client, channel, ready, message)
		l.lost(err)
	}
	return err
}

// close ends the link, what is under way on it too.
func (l *link) close() {
	l.mu.Lock()
	l.end()
	a := l.attempt
	l.mu.Unlock()
	if a != nil {
		l.hangUp() // so that the server's greeting is not waited for
		<-a.done
	}
	l.questions.Wait()
	l.client.Close()
}

// closeAll ends links, all at once, and waits for the slowest.
func closeAll(links []*link) {
	var group sync.WaitGroup
	for _, l := range links {
		group.Go(l.close)
	}
	group.Wait()
}

// Progress implements [watchdog.Connection].
func (l *link) Progress() (reads uint64, behind bool) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return 0, false
	}
	reads = conn.reads.Load()
	if !l.up.Load() {
		return reads, false // there is nothing to read from
	}
	return reads, conn.wrote.Load() < l.handed.Load() || !conn.reading.Load() || conn.unread()
}

// A traced connection knows when it was written to and how often something was read.
type traced struct {
	net.Conn
	address string       // that it was made to, with Sentinel
	epoch   time.Time    // the link's
	wrote   atomic.Int64 // when something was last written, in nanoseconds since epoch
	reads   atomic.Uint64
	reading atomic.Bool // whether somebody waits for something to read
}

// Read implements [net.Conn].
func (t *traced) Read(text []byte) (int, error) {
	t.reading.Store(true)
	n, err := t.Conn.Read(text)
	t.reads.Add(1)
	t.reading.Store(false)
	return n, err
}

// Write implements [net.Conn].
func (t *traced) Write(text []byte) (int, error) {
	t.wrote.Store(int64(time.Since(t.epoch)))
	return t.Conn.Write(text)
}

// unread reports whether something has arrived that was not read.
func (t *traced) unread() bool {
	conn := t.Conn
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	return ok && hasUnread(socket)
}

// leads is the address that a named connection was made to, "" for another.
func (l *link) leads() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return ""
	}
	return l.conn.address
}
