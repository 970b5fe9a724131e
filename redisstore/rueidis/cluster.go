package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/sleep"
)

const (
	// refreshGap is how often the nodes of a cluster are asked who serves which slots. To
	// each time rueidis adds up to a second by chance. A failure asks immediately, plus that time.
	refreshGap = 250 * time.Millisecond
	// maxRedirections bounds how often one command is sent on to another node.
	maxRedirections = 8
	// firstPause and lastPause bound the pauses of a command that a node asks to send again,
	// while a slot moves.
	firstPause = 2 * time.Millisecond
	lastPause  = 50 * time.Millisecond
	// memberGap is how often it is looked which nodes have left, and settled for how long one has to have been there for
	// that: rueidis has one that a command was sent on to (ASK), which serves no slot yet, until it asks again who serves
	// which slots.
	memberGap = 200 * time.Millisecond
	settled   = 2 * time.Second
	// stalled is for how long what a connection has received may lie unread before this
	// process counts as behind.
	stalled = 10 * time.Millisecond
)

var (
	errNoCluster = errors.New("the server is not one of a cluster")
	errNodeLeft  = errors.New("the node has left the cluster")
)

// clusterConn sends commands by one rueidis client for all servers, its cluster client.
type clusterConn struct {
	*attempts

	dialConfig *dialConfig
	client     atomic.Pointer[rueidis.Client] // nil until it could be made

	mu     sync.Mutex
	closed bool
	// calls counts those under way, so that Close can wait for them.
	calls sync.WaitGroup
	// conns are the open connections of the client, to give them up when their nodes leave.
	conns map[*socket]struct{}
}

// newClusterConn makes a connection to the cluster of some nodes.
func newClusterConn(d *dialConfig) *clusterConn {
	c := &clusterConn{attempts: newAttempts(), dialConfig: d, conns: map[*socket]struct{}{}}
	c.loop.Go(c.make)
	return c
}

// make makes the client, which needs a node that answers. It tries again and again until the
// connection is closed; each attempt has a context that ends what it began.
func (c *clusterConn) make() {
	for c.life.Err() == nil {
		ctx, end := context.WithCancel(c.life)
		client, err := rueidis.NewClient(c.options(ctx))
		if err == nil && client.Mode() != rueidis.ClientModeCluster {
			client.Close()
			err = errNoCluster
		}
		if err == nil {
			members := client.Nodes() // before anybody uses one that leaves
			c.client.Store(&client)
			c.finish(nil)
			c.dropDeparted(client, members)
		}
		end() // what the attempt has left behind
		if err != nil {
			c.finish(err)
		}
	}
}

// dropDeparted gives up the connections to nodes that have left the cluster, or have failed, until
// the end: a command would wait there in vain, and a subscription hear nothing.
// rueidis does so 5 seconds later. members are those at the beginning.
func (c *clusterConn) dropDeparted(client rueidis.Client, members map[string]rueidis.Client) {
	known := membership{}
	known.look(members, time.Time{}) // they have been there for long
	for sleep.Jittered(c.life, memberGap) == nil {
		for _, address := range known.look(client.Nodes(), time.Now()) {
			c.drop(address)
		}
	}
}

// membership is since when nodes have been there.
type membership map[string]time.Time

// look notes which nodes are there now, and returns those that have left.
func (m membership) look(now map[string]rueidis.Client, at time.Time) (left []string) {
	for address, since := range m {
		if now[address] != nil {
			continue
		}
		delete(m, address)
		if at.Sub(since) > settled {
			left = append(left, address)
		}
	}
	for address := range now {
		if _, known := m[address]; !known {
			m[address] = at
		}
	}
	return left
}

// drop gives up the connections to a node that has left.
func (c *clusterConn) drop(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		if conn.address == address {
			go conn.giveUp(errNodeLeft)
		}
	}
}

// options are a client's, whose connections end with a context.
func (c *clusterConn) options(ctx context.Context) rueidis.ClientOption {
	options := c.dialConfig.clientOptions(c.dialConfig.credentials)
	options.InitAddress = c.dialConfig.hosts
	options.ClusterOption = rueidis.ClusterOption{ShardsRefreshInterval: refreshGap, MaxMovedRedirections: maxRedirections}
	if c.dialConfig.tls {
		options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // it asks for the ports of TLS; dialling is ours
	}
	options.DialCtxFn = func(_ context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := c.dialConfig.dial(ctx, address) // on no caller's context
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.conns[conn] = struct{}{}
		c.mu.Unlock()
		go func() {
			conn.watch(ctx)
			c.mu.Lock()
			delete(c.conns, conn)
			c.mu.Unlock()
		}()
		return conn, nil
	}
	return options
}

// Ready implements [redisconn.Conn].
func (c *clusterConn) Ready(ctx context.Context) error {
	made := func() bool { return c.client.Load() != nil }
	if made() {
		return nil
	}
	return c.wait(ctx, made)
}

// enter begins a call, which calls.Done ends, unless the connection is closed.
func (c *clusterConn) enter(ctx context.Context) (rueidis.Client, error) {
	if err := c.Ready(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, rueidis.ErrClosing
	}
	c.calls.Add(1)
	return *c.client.Load(), nil
}

// send implements sender. rueidis follows MOVED and ASK. A command that a node answers TRYAGAIN was
// not executed.
func (c *clusterConn) send(ctx context.Context, build builder) rueidis.RedisResult {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		client, err := c.enter(ctx)
		if err != nil {
			return rueidis.NewErrorResult(err)
		}
		result := c.await(ctx, client, build(client.B()))
		if reply, replied := rueidis.IsRedisErr(result.Error()); !replied || !reply.IsTryAgain() {
			return result
		}
		// Some of the keys have moved, and the rest will have soon.
		if sleep.Jittered(ctx, pause) != nil {
			return result
		}
	}
}

// await waits for a call until the context ends. The call goes on: it may be
// dialling for others.
func (c *clusterConn) await(ctx context.Context, client rueidis.Client, command rueidis.Completed) rueidis.RedisResult {
	if ctx.Done() == nil {
		defer c.calls.Done()
		return client.Do(ctx, command)
	}
	done := make(chan rueidis.RedisResult, 1)
	go func() {
		defer c.calls.Done()
		done <- client.Do(lasting{ctx}, command)
	}()
	select {
	case result := <-done:
		return result
	case <-ctx.Done():
		return rueidis.NewErrorResult(ctx.Err())
	}
}

// lasting is a context whose end interrupts nothing, but which has an error then: a command that is not yet
// written will not be.
type lasting struct{ context.Context } //nolint:containedctx // it is a context

func (lasting) Done() <-chan struct{}       { return nil }
func (lasting) Deadline() (time.Time, bool) { return time.Time{}, false }

// Subscribe implements [redisconn.Conn]. All nodes of a cluster receive what is published at
// one of them. A node that has left receives nothing.
func (c *clusterConn) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	client, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer c.calls.Done()
	for _, client = range client.Nodes() { // any node; a seed address may not be one
		break
	}
	return receive(ctx, client, channel, ready, message)
}

// Servers implements [redisconn.Conn].
func (c *clusterConn) Servers(ctx context.Context) ([]redisconn.Server, error) {
	client, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer c.calls.Done()
	var servers []redisconn.Server
	var faults []error
	for address, node := range client.Nodes() {
		ask := func(ctx context.Context, build builder) rueidis.RedisResult { return node.Do(ctx, build(node.B())) }
		s := serverBy(address, ask)
		info, err := s.Ask(ctx, "INFO", "replication")
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", address, err))
		} else if strings.Contains(info[0], "role:master") {
			servers = append(servers, s)
		}
	}
	if len(servers) == 0 {
		return nil, errors.Join(faults...)
	}
	return servers, nil
}

// Sentinels implements sender.
func (*clusterConn) Sentinels() (name string, servers []redisconn.Server) { return "", nil }

// Primary implements sender. There are several.
func (*clusterConn) Primary() string { return "" }

// Cluster implements [redisconn.Conn].
func (*clusterConn) Cluster() bool { return true }

// Close implements [redisconn.Conn]. It closes the client twice: a call under way that
// dials meanwhile leaves its connection with the client after it was closed, open.
func (c *clusterConn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.loop.Wait()
	if client := c.client.Load(); client != nil {
		(*client).Close()
		c.calls.Wait()
		(*client).Close()
	}
}

// Reads implements [redisconn.Conn]. Which node a command goes to is not known.
func (c *clusterConn) Reads() uint64 { return 0 }

// Behind implements [redisconn.Conn]. Which node a command goes to is not known, so
// that only a reader that is stalled, at any node, tells that this process is behind.
func (c *clusterConn) Behind() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		if time.Since(conn.epoch)-time.Duration(conn.read.Load()) > stalled && (!conn.reading.Load() || conn.unread()) {
			return true
		}
	}
	return false
}
