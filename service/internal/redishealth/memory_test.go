package redishealth_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint/service/internal/redishealth"
)

// The memory is that of all servers that answered; where one has no bound, together they have none.
func TestRedisMemory(t *testing.T) {
	node := func(name, info string, err error) redishealth.Node {
		return redishealth.Node{Name: name, Ask: func(context.Context, ...string) ([]string, error) { return []string{info}, err }}
	}
	for name, test := range map[string]struct {
		second string
		want   redishealth.Memory
	}{
		"bounded":  {"used_memory:7\r\nmaxmemory:70\r\nevicted_keys:3\r\n", redishealth.Memory{Used: 12, Max: 120, Evicted: 3}},
		"no bound": {"used_memory:7\r\nmaxmemory:0\r\n", redishealth.Memory{Used: 12}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := redishealth.New(redishealth.Config{Nodes: func(context.Context) ([]redishealth.Node, error) {
					return []redishealth.Node{
						node("a", "used_memory:5\r\nmaxmemory:50\r\n", nil), node("b", test.second, nil), node("c", "", errors.New("down")),
					}, nil
				}})
				if got := c.Memory(); got != (redishealth.Memory{}) {
					t.Errorf("before anybody was asked: %+v", got)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go c.Run(ctx)
				synctest.Wait()
				if got := c.Memory(); got != test.want {
					t.Errorf("%+v, want %+v", got, test.want)
				}
				cancel()
			})
		})
	}
}
