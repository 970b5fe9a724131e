package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/watchdog"
	"github.com/stint-go/stint/redisstore"
)

const watchTimeout = 100 * time.Millisecond

// muteConn is a connection whose server answers no script, or refuses it.
type muteConn struct {
	evals   atomic.Int64
	refusal error
	behind  atomic.Bool // whether this process has not read all
}

func (c *muteConn) Eval(ctx context.Context, _ *redisconn.Script, _, _ []string) (string, error) {
	c.evals.Add(1)
	if c.refusal != nil {
		return "", c.refusal
	}
	<-ctx.Done()
	return "", ctx.Err()
}

func (c *muteConn) Reads() uint64 { return 0 }

func (c *muteConn) Behind() bool { return c.behind.Load() }

func (c *muteConn) Do(_ context.Context, args ...string) (string, error) {
	if args[0] == "HGET" {
		return fmt.Sprintf("%d packed", redisstore.DefaultPartitions), nil
	}
	return "OK", nil
}

func (c *muteConn) Subscribe(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (*muteConn) Ready(context.Context) error { return nil }
func (*muteConn) Cluster() bool               { return false }
func (*muteConn) ScriptLoads() uint64         { return 0 }
func (*muteConn) Close()                      {}

func (*muteConn) Servers(context.Context) ([]redisconn.Server, error) { return nil, nil }

// replied is an error as go-redis makes one of a reply.
type replied string

func (r replied) Error() string { return string(r) }
func (replied) RedisError()     {}

// reporting is a store on a connection, and what it reports.
type reporting struct {
	*redisstore.Store
	policy *stint.Policy // of what is taken
	mu     sync.Mutex
	causes []error
}

func newReporting(t *testing.T, conn redisconn.Conn, options redisstore.Options) *reporting {
	t.Helper()
	options.DenialCache = -1
	store := must.Get(redisstore.New(conn, options))(t)
	t.Cleanup(store.Close)
	w := &reporting{Store: store, policy: policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 10))}
	store.Watch(watchTimeout, func(_ int, cause error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.causes = append(w.causes, cause)
	})
	return w
}

func (w *reporting) reported() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.causes
}

// take takes a permit within a timeout.
func (w *reporting) take(t *testing.T, key string, timeout time.Duration) error {
	o := op(stint.VerbTake, key, w.policy, 1)
	o.Timeout = timeout
	_, err := w.Decide(t.Context(), o)
	return err
}

// A server that is silent is reported, and its callers are told so, whether their calls were sent or waited
// behind those that were.
func TestSilentServerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &muteConn{}
		w := newReporting(t, conn, redisstore.Options{InFlight: 2, MaxBatch: 4})
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				if err := w.take(t, strconv.Itoa(i), watchTimeout); !errors.Is(err, stint.ErrUnavailable) || errors.Is(err, stint.ErrOverloaded) {
					t.Errorf("caller %d: %v, want ErrUnavailable", i, err)
				}
			})
			synctest.Wait()
		}
		callers.Wait()
		if causes := w.reported(); len(causes) != 1 || !errors.Is(causes[0], watchdog.ErrSilent) {
			t.Errorf("reported: %v", causes)
		}
	})
}

// A short timeout of one caller is no reason to report a server.
func TestShortTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newReporting(t, &muteConn{}, redisstore.Options{})
		for range 20 {
			if err := w.take(t, "k", time.Millisecond); err == nil {
				t.Error("no error")
			}
		}
		if causes := w.reported(); causes != nil {
			t.Errorf("after 20 ms: %v", causes)
		}
	})
}

// What this process did not send, or not read, in time is its own overload, and no server's.
func TestBusyProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &muteConn{}
		conn.behind.Store(true)
		w := newReporting(t, conn, redisstore.Options{InFlight: 1})
		var callers sync.WaitGroup
		for i := range 20 {
			callers.Go(func() {
				for range 5 {
					if err := w.take(t, strconv.Itoa(i), watchTimeout); !errors.Is(err, stint.ErrOverloaded) || errors.Is(err, stint.ErrUnavailable) {
						t.Errorf("caller %d: %v, want ErrOverloaded", i, err)
					}
				}
			})
		}
		callers.Wait()
		if causes := w.reported(); causes != nil {
			t.Errorf("reported: %v", causes)
		}
	})
}

// Three refusals in a row are reported; each is the caller's to handle, too. What concerns one
// command only, or will pass by itself, is not counted.
func TestRefusingServerIsReported(t *testing.T) {
	for reply, reports := range map[string]bool{
		"READONLY You can't write against a read only replica.":                             true,
		"LOADING Redis is loading the dataset in memory":                                    true,
		"CLUSTERDOWN The cluster is down":                                                   true,
		"OOM command not allowed when used memory > 'maxmemory'.":                           true,
		"NOAUTH Authentication required.":                                                   true,
		"NOPERM this user has no permissions to run the 'evalsha' command":                  true,
		"BUSY Redis is busy running a script.":                                              true,
		"ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed":  true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                           false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                 false,
		"ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation OOM x": false,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newReporting(t, &muteConn{refusal: replied(reply)}, redisstore.Options{})
			for i := range 3 {
				if causes := w.reported(); causes != nil {
					t.Errorf("%s: reported after %d: %v", reply, i, causes)
				}
				if err := w.take(t, "k", watchTimeout); !errors.Is(err, stint.ErrUnavailable) {
					t.Errorf("%s: %v, want ErrUnavailable", reply, err)
				}
			}
			if got := len(w.reported()) == 1; got != reports {
				t.Errorf("%s: reported: %v", reply, w.reported())
			}
		})
	}
}

// However many callers come and go while the server is silent, what is kept of them is bounded.
func TestSilentServerHoldsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &muteConn{}
		store := must.Get(redisstore.New(conn, redisstore.Options{DenialCache: -1}))(t)
		t.Cleanup(store.Close)
		policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 10))
		for range 20 {
			var callers sync.WaitGroup
			for i := range 200 {
				callers.Go(func() {
					o := op(stint.VerbTake, strconv.Itoa(i), policy, 1)
					o.Timeout = time.Millisecond
					_, _ = store.Decide(t.Context(), o)
				})
			}
			callers.Wait()
		}
		if waiting, kept, sent := store.Waiting(), store.Queued(), conn.evals.Load(); waiting != 0 || kept != 0 || sent > redisstore.DefaultInFlight {
			t.Errorf("of 4,000 callers who left %d operations wait, %d calls are kept and %d script calls were sent; want none, none and %d at most",
				waiting, kept, sent, redisstore.DefaultInFlight)
		}
	})
}
