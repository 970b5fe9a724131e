package redisstore

import (
	"context"

	"github.com/redis/rueidis"
)

// Rueidis makes a connection of a rueidis client, which should have been made with
// DisableRetry, so that a command that may have been executed is not sent again.
// cluster says whether it talks to a Redis Cluster. Closing the connection closes
// the client.
func Rueidis(client rueidis.Client, cluster bool) Conn {
	return &rueidisConn{client: client, cluster: cluster, script: rueidis.NewLuaScript(Script())}
}

type rueidisConn struct {
	client  rueidis.Client
	cluster bool
	script  *rueidis.Lua
}

// Eval runs the script by its digest, and by its source if the server answers
// NOSCRIPT, in which case it has not run.
func (c *rueidisConn) Eval(ctx context.Context, keys, args []string) ([]int64, error) {
	return c.script.Exec(ctx, c.client, keys, args).AsIntSlice()
}

func (c *rueidisConn) Ping(ctx context.Context) error {
	return c.client.Do(ctx, c.client.B().Ping().Build()).Error()
}

func (c *rueidisConn) Cluster() bool { return c.cluster }

func (c *rueidisConn) Close() { c.client.Close() }
