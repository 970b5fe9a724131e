package goredis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/redisstore"
)

var _ redisstore.Scanner = (*conn)(nil)

// Servers implements [redisstore.Scanner].
func (c *conn) Servers(ctx context.Context) (string, []redisstore.Server, error) {
	if c.cluster == nil {
		return "", []redisstore.Server{server{c, c.client}}, nil
	}
	var slots []redis.ClusterSlot
	var primaries []redisstore.Server
	err := c.await(ctx, func() (err error) {
		// What changes after this view, and before the primaries are known, shows in the next.
		if slots, err = c.cluster.ClusterSlots(ctx).Result(); err != nil { //nolint:staticcheck // CLUSTER SHARDS is of Redis 7
			return err
		}
		var mu sync.Mutex
		return c.cluster.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			primaries = append(primaries, server{c, client})
			return nil
		})
	})
	if err != nil {
		return "", nil, err
	}
	var ranges []string
	for _, s := range slots {
		ranges = append(ranges, fmt.Sprint(s.Start, "-", s.End, " ", s.Nodes[0].Addr))
	}
	slices.Sort(ranges)
	return strings.Join(ranges, "\n"), primaries, nil
}

// server is one server that a client leads to.
type server struct {
	conn   *conn
	client redis.UniversalClient
}

// Scan implements [redisstore.Server].
func (s server) Scan(ctx context.Context, cursor uint64, match string, count int) (scanned redisstore.Scanned, err error) {
	pipeline := s.client.Pipeline()
	info := pipeline.Info(ctx, "server")
	size := pipeline.DBSize(ctx)
	scan := pipeline.Scan(ctx, cursor, match, int64(count))
	err = s.conn.await(ctx, func() error {
		_, err := pipeline.Exec(ctx)
		return err
	})
	if err != nil {
		return scanned, err
	}
	scanned.Info, scanned.Size = info.Val(), size.Val()
	scanned.Keys, scanned.Cursor = scan.Val()
	return scanned, nil
}

var _ redisstore.Asker = server{}

// Ask implements [redisstore.Asker].
func (s server) Ask(ctx context.Context, args ...string) ([]string, error) {
	command := make([]any, len(args))
	for i, arg := range args {
		command[i] = arg
	}
	cmd := redis.NewCmd(ctx, command...)
	if err := s.conn.await(ctx, func() error { return s.client.Process(ctx, cmd) }); err != nil {
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
