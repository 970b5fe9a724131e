package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stint-go/stint/internal/redisconn"
)

// What a server replied is told from what else can go wrong.
func TestReply(t *testing.T) {
	conn := newConn(t)
	const said = "unknown command 'NONSENSE', with args beginning with: "
	_, err := conn.Do(t.Context(), "NONSENSE")
	for _, err := range []error{err, fmt.Errorf("wrapped: %w", err)} {
		if reply, ok := redisconn.Reply(err); !ok || reply != said {
			t.Errorf("%v: %q, %v; want %q", err, reply, ok, said)
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, gone := conn.Do(done, "PING")
	for _, err := range []error{nil, gone, errors.New("OOM command not allowed")} {
		if reply, ok := redisconn.Reply(err); ok || reply != "" {
			t.Errorf("%v: %q, %v; want that nothing came", err, reply, ok)
		}
	}
}
