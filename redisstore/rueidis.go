package redisstore

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/rueidis"
)

// Rueidis makes a connection of a rueidis client, which should have been made with
// DisableRetry, so that a command that may have been executed is not sent again.
// cluster says whether it talks to a Redis Cluster. Closing the connection closes
// the client, and waits for what is under way, which for a client that is dialling
// lasts until that is over.
func Rueidis(client rueidis.Client, cluster bool) Conn {
	return &rueidisConn{client: client, cluster: cluster}
}

type rueidisConn struct {
	client  rueidis.Client
	cluster bool

	mu     sync.Mutex
	closed bool
	under  sync.WaitGroup // calls under way
}

// enter begins a call, which under.Done ends, unless the connection is closed.
func (c *rueidisConn) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return rueidis.ErrClosing
	}
	c.under.Add(1)
	return nil
}

// Eval runs the script by its digest, and by its source if the server answers
// NOSCRIPT, in which case it has not run.
func (c *rueidisConn) Eval(ctx context.Context, script *Script, keys, args []string) (string, error) {
	if err := c.enter(); err != nil {
		return "", err
	}
	defer c.under.Done()
	return eval(script, keys, args, func(cmd command) rueidis.RedisResult { return c.client.Do(ctx, cmd.build(c.client.B())) })
}

// Do sends a command to the node of the cluster that its key says.
func (c *rueidisConn) Do(ctx context.Context, args ...string) (string, error) {
	if err := c.enter(); err != nil {
		return "", err
	}
	defer c.under.Done()
	command := c.client.B().Arbitrary(args[0])
	if len(args) > 1 {
		command = command.Keys(args[1]).Args(args[2:]...)
	}
	return textOf(c.client.Do(ctx, command.Build()))
}

// errUnsubscribed says that a subscription ended without a fault.
var errUnsubscribed = errors.New("unsubscribed")

// Subscribe ends with the connection, since the client does not retry.
func (c *rueidisConn) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.under.Done()
	return receive(ctx, c.client, channel, ready, message)
}

// receive is [Conn].Subscribe with a client that does not retry.
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

func (c *rueidisConn) Cluster() bool { return c.cluster }

// Close closes the client twice: a call under way that dials meanwhile leaves its
// connection with the client after it was closed, open.
func (c *rueidisConn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.client.Close()
	c.under.Wait()
	c.client.Close()
}
