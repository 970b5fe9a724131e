package goredis_test

import (
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
)

// TestScriptLoads: a script is counted when it is sent whole, and not when its digest does.
func TestScriptLoads(t *testing.T) {
	own := testredis.Start(t)
	conn := newConn(t, single(t, own.Addr()))
	t.Cleanup(conn.Close)
	script := redisconn.NewScript("return KEYS[1]")
	for i, want := range []uint64{1, 1, 2} {
		if i == 2 {
			must.Get(own.Do("SCRIPT", "FLUSH"))(t)
		}
		reply, err := conn.Eval(t.Context(), script, []string{"k"}, nil)
		if got := conn.ScriptLoads(); err != nil || reply != "k" || got != want {
			t.Errorf("call %d: %q, %v, %d loads, want %d", i, reply, err, got, want)
		}
	}
}
