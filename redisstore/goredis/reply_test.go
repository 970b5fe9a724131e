package goredis_test

import (
	"testing"

	"github.com/stint-go/stint/internal/redisconn"
)

// redisstore knows a server's reply in the errors of go-redis too.
func TestReply(t *testing.T) {
	const said = "unknown command 'NONSENSE', with args beginning with: "
	conn := newConn(t, single(t, server.Addr()))
	t.Cleanup(conn.Close)
	_, err := conn.Do(t.Context(), "NONSENSE")
	if reply, ok := redisconn.Reply(err); !ok || reply != said {
		t.Errorf("%v: %q, %v; want %q", err, reply, ok, said)
	}
}
