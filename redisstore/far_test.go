package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
)

// heldConn holds every script call until it is released.
type heldConn struct {
	redisstore.Conn
	sent chan chan struct{} // closed to let the call go
}

func (c *heldConn) Eval(ctx context.Context, script *redisstore.Script, keys, args []string) (string, error) {
	free := make(chan struct{})
	c.sent <- free
	<-free
	return c.Conn.Eval(ctx, script, keys, args)
}

// Where a call takes long, further ones leave without waiting for one to be back; where
// it does not, what comes waits.
func TestFlightsLeaveForAServerFarAway(t *testing.T) {
	const callers = 6
	conn := &heldConn{newConn(t), make(chan chan struct{}, callers)}
	store, _ := storeOn(t, conn, redisstore.Options{DenialCache: -1})
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 100))
	var work sync.WaitGroup
	defer work.Wait()
	ask := func() {
		work.Go(func() {
			if d, err := store.Decide(t.Context(), op(stint.Peek, "k", policy, 1)); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	call := func() (free chan struct{}) {
		t.Helper()
		select {
		case free = <-conn.sent:
		case <-time.After(20 * time.Second):
			t.Error("nothing was sent")
			free = make(chan struct{})
		}
		return free
	}

	// Nothing is known yet: two are under way at most.
	ask()
	first := call()
	ask()
	second := call()
	ask()
	until(t, "the third waits", func() bool { return store.Waiting() == 1 })
	<-time.After(3 * redisstore.SendGap)
	if len(conn.sent) > 0 || store.Waiting() != 1 {
		t.Error("a third call left")
	}
	close(first)
	third := call()
	until(t, "the first is back", func() bool { return store.InFlight() == 2 })

	// That took long.
	ask()
	fourth := call()
	ask()
	fifth := call()
	if n := store.InFlight(); n != 4 {
		t.Errorf("%d calls are under way, want 4", n)
	}
	for _, free := range []chan struct{}{second, third, fourth, fifth} {
		close(free)
	}
}
