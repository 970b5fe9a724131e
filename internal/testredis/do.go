package testredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// timeout bounds one command, from dialling to its reply.
const timeout = 5 * time.Second

// Do sends one command over a connection of its own and returns the reply: a
// string, an int64, nil, or a []any of these, in which an error reply stands as an
// error. An error reply to the command itself is returned as the error.
// Arguments are sent as fmt.Sprint writes them, byte slices as they are.
func (s *Server) Do(args ...any) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("testredis: no command")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("testredis: %w", err)
	}
	client := redis.NewClient(&redis.Options{
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		Password: s.password, Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1,
		ReadTimeout: timeout, WriteTimeout: timeout,
	})
	defer func() { _ = errors.Join(client.Close(), conn.Close()) }()
	command := make([]any, len(args))
	for i, arg := range args {
		if _, raw := arg.([]byte); !raw {
			arg = fmt.Sprint(arg)
		}
		command[i] = arg
	}
	reply, err := client.Do(ctx, command...).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return reply, err
}

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	if s.tls == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	}
	return (&tls.Dialer{Config: s.tls.client}).DialContext(ctx, "tcp", s.Addr())
}

// Info returns one section of INFO, or all of them when section is "", by name.
func (s *Server) Info(section string) (map[string]string, error) {
	if section == "" {
		section = "default"
	}
	return s.fields("INFO", section)
}

// fields sends a command that replies with lines of name:value.
func (s *Server) fields(args ...any) (map[string]string, error) {
	reply, err := s.Do(args...)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(fmt.Sprint(reply)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	return fields, nil
}
