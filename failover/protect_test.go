package failover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// shared is a store that several processes share, which may fail.
type shared struct {
	*storetest.Faulty
	instances int
	closed    bool
}

func (s *shared) Ready(ctx context.Context) error { return ctx.Err() }
func (s *shared) Instances() int                  { return s.instances }
func (s *shared) Close()                          { s.closed = true }

// What Protect makes needs no setting: it admits while the store fails, or decides by this process's share, and closes
// what it was given.
func TestProtect(t *testing.T) {
	for mode, want := range map[failover.Mode][]bool{failover.Open: {true, true, true}, failover.Local: {true, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			below := &shared{Faulty: storetest.NewFaulty(memstore.New(memstore.Config{})), instances: 5}
			store := must.Get(failover.Protect(below, failover.Config{Mode: mode}))(t)
			if err := store.Ready(t.Context()); err != nil {
				t.Error(err)
			}
			p := policy(t, "", stint.FixedWindow(10, time.Hour)) // a fifth is 2
			if d, err := store.Decide(t.Context(), op(0, "k", p, 1)); err != nil || d.Degraded || d.Remaining != 9 {
				t.Errorf("%v: %+v, %v", mode, d, err)
			}
			below.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Block: true} })
			for i, allowed := range want {
				if d, err := store.Decide(t.Context(), op(0, "k", p, 1)); err != nil || !d.Degraded || d.Allowed != allowed {
					t.Errorf("%v, take %d: %+v, %v; want it admitted: %v", mode, i, d, err, allowed)
				}
			}
			if store.Close(); !below.closed {
				t.Error("the shared store is not closed")
			}
		})
	}
}

// A share can't be reckoned where nobody counts the processes, and nothing is made of no store.
func TestProtectFaults(t *testing.T) {
	memory := memstore.New(memstore.Config{})
	for name, made := range map[string]func() (*failover.Store, error){
		"Instances": func() (*failover.Store, error) {
			return failover.New(memory, failover.Config{Local: memory, Mode: failover.Local})
		},
		"store": func() (*failover.Store, error) { return failover.New(nil, failover.Config{}) },
	} {
		var fault *stint.InvalidError
		if _, err := made(); !errors.As(err, &fault) || fault.Param != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := failover.Protect(nil, failover.Config{}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
	below := &shared{Faulty: storetest.NewFaulty(memory)}
	if _, err := failover.Protect(below, failover.Config{Timeout: -1}); !errors.Is(err, stint.ErrInvalid) || !below.closed {
		t.Errorf("a timeout below 0: %v, and the store below is closed: %v", err, below.closed)
	}
	store := must.Get(failover.New(memory, failover.Config{
		Local: memory, ForPolicy: func(*stint.Policy) (failover.PolicyOptions, bool) {
			return failover.PolicyOptions{Mode: failover.Local}, true
		},
	}))(t)
	t.Cleanup(store.Close)
	if _, err := store.Decide(t.Context(), op(0, "k", minutely(t), 1)); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a policy's mode local: %v", err)
	}
}
