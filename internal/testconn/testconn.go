// Package testconn has a connection of the standard library alone for the tests of package redisstore, so that
// programs that import that package require no client of Redis.
//
// It does what those tests need: it pipelines, follows a cluster's redirections, and finds a lost connection
// when it uses it next. What happens to callers when servers fail is tested on real clients, in packages
// rueidis and goredis.
package testconn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/testredis"
)

// A Conn is a redisconn.Conn.
type Conn struct {
	seeds    []string // host:port
	password string
	cluster  bool
	loads    atomic.Uint64

	mu     sync.Mutex
	closed bool
	nodes  map[string]*node             // by address
	heard  map[*testredis.Wire]struct{} // by which subscriptions hear
	owners map[string]string            // addresses by the key that they were asked for
}

var _ redisconn.Conn = (*Conn)(nil)

var errClosed = errors.New("testconn: the connection is closed")

// Open makes a connection by a URL of package testredis: redis:// or redis-cluster://. It connects when it is
// first used.
func Open(at string) (*Conn, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "redis" && u.Scheme != "redis-cluster" {
		return nil, fmt.Errorf("testconn: the scheme of %s is %q; allowed: redis, redis-cluster", at, u.Scheme)
	}
	c := &Conn{
		seeds: strings.Split(u.Host, ","), cluster: u.Scheme == "redis-cluster",
		nodes: map[string]*node{}, heard: map[*testredis.Wire]struct{}{}, owners: map[string]string{},
	}
	c.password, _ = u.User.Password()
	return c, nil
}

// Cluster implements [redisconn.Conn].
func (c *Conn) Cluster() bool { return c.cluster }

// ScriptLoads implements [redisconn.Conn].
func (c *Conn) ScriptLoads() uint64 { return c.loads.Load() }

// Reads implements [redisconn.Conn]. The connection does not tell.
func (c *Conn) Reads() uint64 { return 0 }

// Behind implements [redisconn.Conn]. The connection does not tell.
func (c *Conn) Behind() bool { return false }

// Ready implements [redisconn.Conn].
func (c *Conn) Ready(ctx context.Context) error {
	_, err := c.node(ctx, c.seeds[0])
	return err
}

// Close implements [redisconn.Conn].
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	nodes := c.nodes
	c.nodes = nil
	for w := range c.heard {
		_ = w.Close()
	}
	c.mu.Unlock()
	for _, n := range nodes {
		_ = n.wire.Close()
		<-n.ended
	}
}

// Eval implements [redisconn.Conn].
func (c *Conn) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
	run := func(name, script string) (string, error) {
		command := append([]string{name, script, fmt.Sprint(len(keys))}, keys...)
		return text(c.send(ctx, keys[0], append(command, args...)))
	}
	reply, err := run("EVALSHA", script.Digest)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		c.loads.Add(1)
		return run("EVAL", script.Source)
	}
	return reply, err
}

// Do implements [redisconn.Conn].
func (c *Conn) Do(ctx context.Context, args ...string) (string, error) {
	key := ""
	if len(args) > 1 {
		key = args[1]
	}
	return text(c.send(ctx, key, args))
}

// text is a reply that is a string, or nil.
func text(reply any, err error) (string, error) {
	if reply == nil || err != nil {
		return "", err
	}
	if number, is := reply.(int64); is {
		return fmt.Sprint(number), nil
	}
	s, is := reply.(string)
	if !is {
		return "", fmt.Errorf("testconn: the server replied %v, not a string", reply)
	}
	return s, nil
}

// send sends a command to the server that holds the key. It is sent again only after a reply that
// says that it was not executed.
func (c *Conn) send(ctx context.Context, key string, command []string) (any, error) {
	addr, asking := c.owner(key), false
	for {
		n, err := c.node(ctx, addr)
		if err != nil {
			return nil, err
		}
		reply, err := n.send(ctx, asking, command)
		if err == nil || !c.cluster {
			return reply, err
		}
		switch word, rest, _ := strings.Cut(err.Error(), " "); word {
		case "MOVED", "ASK":
			_, addr, _ = strings.Cut(rest, " ")
			if asking = word == "ASK"; !asking {
				c.mu.Lock()
				c.owners[key] = addr
				c.mu.Unlock()
			}
		case "TRYAGAIN":
			if sleep.For(ctx, time.Millisecond) != nil {
				return reply, err
			}
		default:
			return reply, err
		}
	}
}

// owner is the address that was last known to hold a key.
func (c *Conn) owner(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr := c.owners[key]; addr != "" {
		return addr
	}
	return c.seeds[0]
}

// Subscribe implements [redisconn.Conn].
func (c *Conn) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	w, err := testredis.Dial(ctx, c.seeds[0], c.password, nil)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = w.Close() })()
	defer func() {
		c.mu.Lock()
		delete(c.heard, w)
		c.mu.Unlock()
		_ = w.Close()
	}()
	c.mu.Lock()
	c.heard[w] = struct{}{}
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return errClosed
	}
	if err := w.Send("SUBSCRIBE", channel); err != nil {
		return err
	}
	for {
		reply, err := w.Receive()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		switch push, _ := reply.([]any); {
		case len(push) == 3 && push[0] == "subscribe":
			ready()
		case len(push) == 3 && push[0] == "message":
			payload, _ := push[2].(string)
			message(payload)
		}
	}
}

// Servers implements [redisconn.Conn].
func (c *Conn) Servers(ctx context.Context) (servers []redisconn.Server, err error) {
	addrs := c.seeds
	if c.cluster {
		nodes, err := text(c.send(ctx, "", []string{"CLUSTER", "NODES"}))
		if err != nil {
			return nil, err
		}
		addrs = nil
		for line := range strings.Lines(nodes) {
			if fields := strings.Fields(line); len(fields) > 2 && strings.Contains(fields[2], "master") {
				addr, _, _ := strings.Cut(fields[1], "@")
				addrs = append(addrs, addr)
			}
		}
	}
	for _, addr := range addrs {
		name := addr
		if !c.cluster {
			name = "primary"
		}
		servers = append(servers, redisconn.Server{Name: name, Ask: func(
			ctx context.Context, args ...string,
		) ([]string, error) {
			n, err := c.node(ctx, addr)
			if err != nil {
				return nil, err
			}
			reply, err := n.send(ctx, false, args)
			list, many := reply.([]any)
			if !many {
				list = []any{reply}
			}
			var texts []string
			for _, item := range list {
				texts = append(texts, fmt.Sprint(item))
			}
			return texts, err
		}})
	}
	return servers, nil
}

// A node is a connection to one server, over which commands go out as they come.
type node struct {
	wire  *testredis.Wire
	ended chan struct{} // closed when nothing is received any longer

	mu      sync.Mutex
	waiting []chan<- answer // in the order of the commands
	broken  error           // why nothing can be sent any longer
}

type answer struct {
	reply any
	err   error
}

// node is the connection to an address, made anew if it was lost.
func (c *Conn) node(ctx context.Context, addr string) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if n := c.nodes[addr]; n != nil && n.fault() == nil {
		return n, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dialling, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	w, err := testredis.Dial(dialling, addr, c.password, nil)
	if err != nil {
		return nil, err
	}
	n := &node{wire: w, ended: make(chan struct{})}
	c.nodes[addr] = n
	go n.receive()
	return n, nil
}

// fault is why the connection is broken; nil while it is not.
func (n *node) fault() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.broken
}

// send sends a command and waits for its reply until the context ends.
func (n *node) send(ctx context.Context, asking bool, command []string) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	replied := make(chan answer, 1)
	n.mu.Lock()
	err := n.broken
	if err == nil && asking {
		n.waiting = append(n.waiting, make(chan answer, 1))
		err = n.wire.Send("ASKING")
	}
	if err == nil {
		n.waiting = append(n.waiting, replied)
		err = n.wire.Send(command...)
	}
	n.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case a := <-replied:
		return a.reply, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// receive hands each reply to its caller, until the connection is lost.
func (n *node) receive() {
	defer close(n.ended)
	for {
		reply, err := n.wire.Receive()
		_, replied := errors.AsType[testredis.ReplyError](err)
		n.mu.Lock()
		if err != nil && !replied {
			n.broken = err
			for _, waiting := range n.waiting {
				waiting <- answer{nil, err}
			}
			n.mu.Unlock()
			_ = n.wire.Close()
			return
		}
		next := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.mu.Unlock()
		next <- answer{reply, err}
	}
}
