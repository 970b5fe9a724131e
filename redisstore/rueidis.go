package redisstore

import (
	"context"
	"errors"

	"github.com/redis/rueidis"
)

// Rueidis makes a connection of a rueidis client, which should have been made with
// DisableRetry, so that a command that may have been executed is not sent again.
// cluster says whether it talks to a Redis Cluster. Closing the connection closes
// the client.
func Rueidis(client rueidis.Client, cluster bool) Conn {
	return &rueidisConn{client: client, cluster: cluster}
}

type rueidisConn struct {
	client  rueidis.Client
	cluster bool
}

// Eval runs the script by its digest, and by its source if the server answers
// NOSCRIPT, in which case it has not run.
func (c *rueidisConn) Eval(ctx context.Context, script *Script, keys, args []string) (string, error) {
	known := c.client.B().Evalsha().Sha1(script.Digest).Numkeys(int64(len(keys))).Key(keys...).Arg(args...)
	text, err := c.client.Do(ctx, known.Build()).ToString()
	if failure, replied := rueidis.IsRedisErr(err); replied && failure.IsNoScript() {
		whole := c.client.B().Eval().Script(script.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...)
		return c.client.Do(ctx, whole.Build()).ToString()
	}
	return text, err
}

func (c *rueidisConn) Do(ctx context.Context, args ...string) (string, error) {
	command := c.client.B().Arbitrary(args[0])
	if len(args) > 1 {
		command = command.Keys(args[1]).Args(args[2:]...)
	}
	text, err := c.client.Do(ctx, command.Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return text, err
}

// errUnsubscribed says that a subscription ended without a fault.
var errUnsubscribed = errors.New("unsubscribed")

// Subscribe ends with the connection, since the client does not retry.
func (c *rueidisConn) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			ready()
		}
	})
	subscribe := c.client.B().Subscribe().Channel(channel).Build()
	err := c.client.Receive(ctx, subscribe, func(m rueidis.PubSubMessage) { message(m.Message) })
	if err == nil {
		err = errUnsubscribed
	}
	return err
}

func (c *rueidisConn) Cluster() bool { return c.cluster }

func (c *rueidisConn) Close() { c.client.Close() }
