// Package rueidis connects a store of package redisstore to its servers by the client rueidis: to
// one server, to the primary that sentinels name, or to a cluster. Most programs call [Open]:
//
//	store, err := rueidis.Open(rueidis.Config{URL: "redis://localhost:6379"})
//
// [Dial] is for those who put the parts together themselves.
//
// Connections are made in the background, again and again while servers are unreachable, and never
// on a caller's context. A command that may have been executed is not sent again.
//
//	single.go    one connection to one server, kept by a loop
//	sentinel.go  the same to the primary that a quorum of sentinels names
//	cluster.go   rueidis' own client for all nodes
//	socket.go    a net.Conn that knows when it was last read and whether it is behind
//	url.go, config.go  where servers are, and who the store is to them
//
// Everything is safe for concurrent use.
package rueidis

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint/internal/redisconn"
)

// A sender sends commands to one server, or to those of a cluster.
//
// Three types implement it: singleConn, sentinelConn and clusterConn.
type sender interface {
	Ready(ctx context.Context) error
	Servers(ctx context.Context) ([]redisconn.Server, error)
	Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error
	Cluster() bool
	Reads() uint64
	Behind() bool
	Close()
	// Primary is the address of the server that sentinels have named; "" without Sentinel or a connection. It asks nobody.
	Primary() string
	// Sentinels are the name that sentinels know the primary by, and the sentinels themselves; none without Sentinel.
	Sentinels() (name string, servers []redisconn.Server)
	// send sends a command that build puts together, anew for each time that it is sent:
	// again only after a reply, or a failure, which says that it was not executed.
	send(ctx context.Context, build builder) rueidis.RedisResult
}

// A builder puts a command together for a client, which recycles its memory after each sending.
type builder func(rueidis.Builder) rueidis.Completed

// conn is a redisconn.Conn.
type conn struct {
	sender
	loads *atomic.Uint64 // of scripts
}

// connOf makes what the store needs of a sender.
func connOf(s sender) conn { return conn{s, new(atomic.Uint64)} }

// ScriptLoads implements [redisconn.Conn].
func (c conn) ScriptLoads() uint64 { return c.loads.Load() }

// Eval implements [redisconn.Conn]. It runs the script by its digest, and by its source if the
// server answers NOSCRIPT, in which case it has not run. NOSCRIPT comes before anything was run, so
// sending the source cannot charge twice.
func (c conn) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
	n := int64(len(keys))
	reply, err := c.send(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Evalsha().Sha1(script.Digest).Numkeys(n).Key(keys...).Arg(args...).Build()
	}).ToString()
	if failure, replied := rueidis.IsRedisErr(err); replied && failure.IsNoScript() {
		c.loads.Add(1)
		reply, err = c.send(ctx, func(b rueidis.Builder) rueidis.Completed {
			return b.Eval().Script(script.Source).Numkeys(n).Key(keys...).Arg(args...).Build()
		}).ToString()
	}
	return reply, err
}

// Do implements [redisconn.Conn].
func (c conn) Do(ctx context.Context, args ...string) (string, error) {
	reply, err := c.send(ctx, func(b rueidis.Builder) rueidis.Completed {
		command := b.Arbitrary(args[0])
		if len(args) > 1 {
			command = command.Keys(args[1]).Args(args[2:]...)
		}
		return command.Build()
	}).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return reply, err
}

// arbitrary builds a command without a key.
func arbitrary(args ...string) builder {
	return func(b rueidis.Builder) rueidis.Completed { return b.Arbitrary(args[0]).Args(args[1:]...).Build() }
}

// serverBy asks one server by what sends to it.
func serverBy(name string, send func(ctx context.Context, build builder) rueidis.RedisResult) redisconn.Server {
	return redisconn.Server{Name: name, Ask: func(ctx context.Context, args ...string) ([]string, error) {
		reply, err := send(ctx, arbitrary(args...)).ToMessage()
		if err != nil {
			return nil, err
		}
		if text, err := reply.ToString(); err == nil {
			return []string{text}, nil
		}
		if !reply.IsMap() {
			return reply.AsStrSlice()
		}
		fields, err := reply.AsStrMap()
		var list []string
		for name, value := range fields {
			list = append(list, name, value)
		}
		return list, err
	}}
}

// errUnsubscribed says that a subscription ended without a fault.
var errUnsubscribed = errors.New("unsubscribed")

// receive subscribes by a client that does not retry.
func receive(ctx context.Context, client rueidis.Client, channel string, ready func(), message func(string)) error {
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			ready()
		}
	})
	subscribe := client.B().Subscribe().Channel(channel).Build()
	err := client.Receive(ctx, subscribe, func(m rueidis.PubSubMessage) { message(m.Message) })
	if err == nil {
		err = errUnsubscribed
	}
	return err
}

// readOnly reports whether a server refused a write because it is a replica. Redis 6
// wraps the error of a script.
func readOnly(err error) bool {
	_, replied := rueidis.IsRedisErr(err)
	return replied && strings.Contains(err.Error(), "READONLY ")
}

// connect makes a connection, in the background.
func (d *dialConfig) connect() (redisconn.Conn, error) {
	switch d.topology {
	case topologySentinel:
		c, err := newSentinelConn(d)
		return connOf(c), err
	case topologyCluster:
		return connOf(newClusterConn(d)), nil
	default:
		c := &singleConn{dial: func(ctx context.Context) (*socket, error) { return d.dial(ctx, d.hosts[0]) }}
		options := d.clientOptions(d.credentials)
		options.SelectDB = d.database
		return connOf(c), c.start(options)
	}
}
