// Package goredis lets a store of package redisstore use a go-redis client that the
// program has already, with its one pool of connections, its authentication and its
// hooks. A program without one is better served by package rueidis.
//
// A connection made here belongs to the store, the client to the program: closing the store leaves
// the client open. It is safe for concurrent use.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/sleep"
)

// clients is what New accepts, in words.
const clients = "*redis.Client or *redis.ClusterClient of go-redis v9; " +
	"a ring would spread the keys of one script over several servers"

var (
	errClosed       = errors.New("the connection is closed")
	errUnsubscribed = errors.New("unsubscribed")
)

// New makes a connection of a client, of a [redis.Client], of a server or of Sentinel's, or of a
// [redis.ClusterClient] with ReadOnly, RouteByLatency and RouteRandomly off, since replicas lag.
// An error names what came and what is allowed. The client stays the caller's: closing
// the connection ends what it has under way, and neither the client nor its pool.
//
// go-redis sends a command again when its connection breaks or its reply is late, by default up to
// three times. A take must not be sent twice, since the first may have been executed: the
// connection's commands are not sent again, whatever the client's MaxRetries is, unless the reply says that one
// was not executed (MOVED, ASK, TRYAGAIN).
//
// A call returns when its context ends, whatever the client's timeouts are, but without
// ContextTimeoutEnabled its command holds a connection of the pool until ReadTimeout. The connection is
// always [redisconn.Conn] Ready, as the client connects by itself.
func New(client redis.UniversalClient) (redisconn.Conn, error) {
	c := &conn{client: client}
	switch client := client.(type) {
	case *redis.Client:
		if client == nil {
			return nil, stint.Invalid("client", "nil", clients)
		}
	case *redis.ClusterClient:
		if client == nil {
			return nil, stint.Invalid("client", "nil", clients)
		}
		if client.Options().ReadOnly {
			return nil, stint.Invalid("ReadOnly", true,
				"false, and neither RouteByLatency nor RouteRandomly, as replicas lag")
		}
		c.cluster = client
	default:
		return nil, stint.Invalid("client", fmt.Sprintf("%T", client), clients)
	}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// A conn is a client of the program's own as redisstore's connection. Closing it leaves the client open.
type conn struct {
	client redis.UniversalClient
	// the client, or nil if it is not of a cluster
	cluster *redis.ClusterClient
	loads   atomic.Uint64   // of scripts
	life    context.Context // until Close
	end     context.CancelFunc
}

// once is a command that go-redis does not send again when it may have been executed.
// It is still sent to where MOVED and ASK say, having not been.
type once struct{ *redis.StringCmd }

// NoRetry is what go-redis asks before it sends a command again.
func (once) NoRetry() bool { return true }

// Ready implements [redisconn.Conn].
func (c *conn) Ready(context.Context) error {
	if c.life.Err() != nil {
		return errClosed
	}
	return nil
}

// ScriptLoads implements [redisconn.Conn].
func (c *conn) ScriptLoads() uint64 { return c.loads.Load() }

// Reads implements [redisconn.Conn]. The program's client does not tell.
func (c *conn) Reads() uint64 { return 0 }

// Behind implements [redisconn.Conn]. The program's client does not tell.
func (c *conn) Behind() bool { return false }

// Eval runs the script by its digest, and by its source if the server answers
// NOSCRIPT, in which case it has not run.
func (c *conn) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
	command := make([]any, 0, 3+len(keys)+len(args))
	command = append(command, "evalsha", script.Digest, strconv.Itoa(len(keys)))
	for _, key := range keys {
		command = append(command, key)
	}
	for _, arg := range args {
		command = append(command, arg)
	}
	reply, err := c.send(ctx, command)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		c.loads.Add(1)
		command[0], command[1] = "eval", script.Source
		reply, err = c.send(ctx, command)
	}
	return reply, err
}

// Do sends one command; a reply that says nothing (nil) is "".
func (c *conn) Do(ctx context.Context, args ...string) (string, error) {
	command := make([]any, len(args))
	for i, arg := range args {
		command[i] = arg
	}
	reply, err := c.send(ctx, command)
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return reply, err
}

// firstPause and lastPause bound the pauses of a command that a node asks to send again, while a
// slot moves.
const (
	firstPause = 2 * time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// send sends a command until it has been executed once, or may have been, and returns its reply.
func (c *conn) send(ctx context.Context, command []any) (string, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		reply, err := c.sendOnce(ctx, command)
		if !redis.HasErrorPrefix(err, "TRYAGAIN") {
			return reply, err
		}
		if sleep.Jittered(ctx, pause) != nil {
			return "", err
		}
	}
}

// sendOnce sends a command that go-redis must not repeat, whatever becomes of it: what takes
// permits may have been carried out. Of a cluster whose node does not answer the state is loaded
// anew, for the calls that follow.
func (c *conn) sendOnce(ctx context.Context, command []any) (string, error) {
	reply := redis.NewStringCmd(ctx, command...)
	var cmd redis.Cmder = once{reply}
	if len(command) == 1 {
		// PING and the like may go to all nodes of a cluster, whose replies go-redis puts
		// together for commands of its own types alone. They do nothing twice.
		cmd = reply
	}
	err := c.await(ctx, func() error { return c.client.Process(ctx, cmd) })
	if err != nil {
		var answer redis.Error
		if c.cluster != nil && !errors.As(err, &answer) {
			c.cluster.ReloadState(ctx) // the node may have been replaced
		}
		return "", err
	}
	return reply.Val(), nil
}

// await waits for do until the context ends or the connection is closed. go-redis heeds
// no context while it reads, and its deadline only if told to.
func (c *conn) await(ctx context.Context, do func() error) error {
	if c.life.Err() != nil {
		return errClosed
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.Done():
		return errClosed
	}
}

// Subscribe receives messages of a channel until the context ends, the connection is closed, or the
// subscription is lost. Unlike go-redis it does not renew a lost one, as messages in between would
// be missed without a word.
func (c *conn) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	subscription := c.client.Subscribe(ctx) // has a network connection of its own
	closeIt := func() { _ = subscription.Close() }
	if err := c.await(ctx, func() error { return subscription.Subscribe(ctx, channel) }); err != nil {
		go closeIt() // waits for what is under way
		return err
	}
	defer closeIt()
	defer context.AfterFunc(ctx, closeIt)()
	defer context.AfterFunc(c.life, closeIt)()

	// go-redis renews a lost subscription, in places without a word. It can't with a
	// context that has ended, which it looks at when it dials and not when it reads.
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	end()
	for subscribed := false; ; {
		event, err := subscription.Receive(ended)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case c.life.Err() != nil:
			return errClosed
		case err != nil:
			return err
		}
		switch event := event.(type) {
		case *redis.Subscription:
			// The first confirms. Another one is of a renewal after all, by a dialer that heeds no context.
			if subscribed {
				return errUnsubscribed
			}
			subscribed = true
			ready()
		case *redis.Message:
			message(event.Payload)
		}
	}
}

func (c *conn) Cluster() bool { return c.cluster != nil }

// Close leaves the client open.
func (c *conn) Close() { c.end() }

// Servers implements [redisconn.Conn].
func (c *conn) Servers(ctx context.Context) ([]redisconn.Server, error) {
	if c.cluster == nil {
		return []redisconn.Server{c.server("primary", c.client)}, nil
	}
	var mu sync.Mutex
	var servers []redisconn.Server
	err := c.await(ctx, func() error {
		return c.cluster.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			servers = append(servers, c.server(client.Options().Addr, client))
			return nil
		})
	})
	if err != nil {
		return nil, err // servers may still grow
	}
	return servers, nil
}

// server asks one server that a client leads to.
func (c *conn) server(name string, client redis.UniversalClient) redisconn.Server {
	return redisconn.Server{Name: name, Ask: func(ctx context.Context, args ...string) ([]string, error) {
		return c.ask(ctx, client, args)
	}}
}

// ask sends a command without a key to one node, and returns its reply as a list of texts, whatever
// its type.
func (c *conn) ask(ctx context.Context, client redis.UniversalClient, args []string) ([]string, error) {
	command := make([]any, len(args))
	for i, arg := range args {
		command[i] = arg
	}
	cmd := redis.NewCmd(ctx, command...)
	if err := c.await(ctx, func() error { return client.Process(ctx, cmd) }); err != nil {
		return nil, err
	}
	switch reply := cmd.Val().(type) {
	case []any:
		list := make([]string, len(reply))
		for i, part := range reply {
			list[i] = fmt.Sprint(part)
		}
		return list, nil
	case map[any]any:
		var list []string
		for name, value := range reply {
			list = append(list, fmt.Sprint(name), fmt.Sprint(value))
		}
		return list, nil
	default:
		return []string{fmt.Sprint(reply)}, nil
	}
}
