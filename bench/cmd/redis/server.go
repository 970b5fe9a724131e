package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A server is the Redis under measurement, with a connection of our own beside it.
type server struct {
	addr   string
	client *redis.Client
}

func connect(addr string) *server {
	return &server{addr: addr, client: redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})}
}

func (s *server) close() error { return s.client.Close() }

func (s *server) flush(ctx context.Context) error { return s.client.FlushAll(ctx).Err() }

// commands is how many commands the server has carried out, those of scripts among
// them.
func (s *server) commands(ctx context.Context) (int64, error) {
	return s.info(ctx, "stats", "total_commands_processed")
}

// memory is how many bytes the server has allocated, once nobody but us is connected:
// connections have buffers.
func (s *server) memory(ctx context.Context) (int64, error) {
	const tries = 10_000
	for range tries {
		clients, err := s.info(ctx, "clients", "connected_clients")
		if err != nil {
			return 0, err
		}
		if clients == 1 {
			return s.info(ctx, "memory", "used_memory")
		}
	}
	return 0, fmt.Errorf("others stay connected to %s", s.addr)
}

// info reads a number of INFO.
func (s *server) info(ctx context.Context, section, field string) (int64, error) {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == field {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("redis-server's INFO %s has no %s", section, field)
}
