package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/redisstore"
)

// heldConn holds every script call of a batch until it is released.
type heldConn struct {
	redisconn.Conn
	sent chan chan struct{} // closed to let the call go
}

func (c *heldConn) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
	if ofLayout(script) {
		return c.Conn.Eval(ctx, script, keys, args)
	}
	free := make(chan struct{})
	c.sent <- free
	<-free
	return c.Conn.Eval(ctx, script, keys, args)
}

// Where the server is near, what comes while two calls are under way waits for one of them.
// Where it is far away, further calls leave without waiting, until nothing is left.
func TestCallsToAServerFarAway(t *testing.T) {
	const near, far, callers = time.Millisecond, 800 * time.Millisecond, 8
	conn := &heldConn{newConn(t), make(chan chan struct{}, callers)}
	store, _ := storeOn(t, conn, redisstore.Options{DenialCache: -1, MaxBatch: 2})
	patient(store)
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 100))
	var work sync.WaitGroup
	ask := func(n int) {
		for range n {
			work.Go(func() {
				if d, err := store.Decide(t.Context(), op(stint.VerbPeek, "k", policy, 1)); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
	}
	var held []chan struct{}
	calls := func(n int) {
		t.Helper()
		for range n {
			select {
			case free := <-conn.sent:
				held = append(held, free)
			case <-time.After(5 * time.Minute):
				t.Error("nothing was sent")
				return
			}
		}
	}

	store.SetDistance(near)
	ask(1)
	calls(1)
	ask(1)
	calls(1)
	ask(5)
	until(t, "five wait", func() bool { return store.Waiting() == 5 })
	if n := store.InFlight(); n != 2 {
		t.Errorf("%d calls are under way, want 2", n)
	}

	store.SetDistance(far)
	ask(1)
	calls(3)
	if n := store.InFlight(); n != 5 {
		t.Errorf("%d calls are under way, want 5", n)
	}
	for _, free := range held {
		close(free)
	}
	go func() {
		for free := range conn.sent {
			close(free)
		}
	}()
	work.Wait()
	close(conn.sent)
}
