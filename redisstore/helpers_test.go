package redisstore_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testconn"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// encodings are the log's encodings.
var encodings = []redisstore.LogEncoding{redisstore.LogPacked, redisstore.LogZSet, redisstore.LogStream}

// dawn is where pinned clocks start: 2026-01-01T00:00:00Z.
const dawn = stint.Instant(1_767_225_600_000_000)

func policyOf(t testing.TB, name string, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy(name, limits...))(t)
}

func op(verb stint.Verb, key string, policy *stint.Policy, permits int64) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: key, Policy: policy, Permits: permits}}
}

func decide(t testing.TB, store stint.Store, o stint.Op) stint.Decision {
	t.Helper()
	d, err := store.Decide(t.Context(), o)
	if err != nil {
		t.Fatalf("%s %d of %q: %v", o.Verb, o.Permits, o.Key, err)
	}
	return d
}

func take(t testing.TB, store stint.Store, key string, policy *stint.Policy, permits int64) stint.Decision {
	t.Helper()
	return decide(t, store, op(stint.VerbTake, key, policy, permits))
}

// open opens a store on a URL, closed at the end of the test.
func open(t testing.TB, url string, options redisstore.Options) *redisstore.Store {
	t.Helper()
	store := must.Get(redisstore.New(dial(t, url), options))(t)
	t.Cleanup(store.Close)
	must.Do(t, store.Ping(t.Context()))
	return store
}

// newConn is a connection to the shared server that many stores can be made on.
func newConn(t testing.TB) redisconn.Conn {
	t.Helper()
	return dial(t, server.URL())
}

// dial is a connection by a URL, closed at the end of the test.
func dial(t testing.TB, url string) redisconn.Conn {
	t.Helper()
	conn := must.Get(testconn.Open(url))(t)
	t.Cleanup(conn.Close)
	return conn
}

// hooked is a connection on which something happens at script calls of batches, and at questions for the layout.
type hooked struct {
	redisconn.Conn
	before  func(ctx context.Context, keys []string) error        // a call, which fails with its error; nil for nothing
	after   func()                                                // before a reply is handed on; nil for nothing
	layout  func(ctx context.Context, ask asking) (string, error) // nil: it is asked
	cluster bool                                                  // whether it says that it is one to a cluster
	calls   atomic.Int64
}

// asking asks a server.
type asking = func(context.Context) (string, error)

func (h *hooked) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
	if ofLayout(script) {
		return h.Conn.Eval(ctx, script, keys, args)
	}
	h.calls.Add(1)
	if h.before != nil {
		if err := h.before(ctx, keys); err != nil {
			return "", err
		}
	}
	if h.after != nil {
		defer h.after()
	}
	return h.Conn.Eval(ctx, script, keys, args)
}

func (h *hooked) Do(ctx context.Context, args ...string) (string, error) {
	ask := func(ctx context.Context) (string, error) { return h.Conn.Do(ctx, args...) }
	if args[0] == "HGET" && h.layout != nil {
		return h.layout(ctx, ask)
	}
	return ask(ctx)
}

func (h *hooked) Cluster() bool { return h.cluster || h.Conn.Cluster() }

// behind has script calls wait for a gate, or for the end of their contexts.
func behind(gate <-chan struct{}) func(context.Context, []string) error {
	return func(ctx context.Context, _ []string) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lent is a connection that a store does not close, since others use it.
type lent struct{ redisconn.Conn }

func (lent) Close() {}

// storeOn makes a store on a connection, with keys of its own, and says their prefix.
func storeOn(t testing.TB, conn redisconn.Conn, options redisstore.Options) (*redisstore.Store, string) {
	t.Helper()
	options.KeyPrefix = "test" + strconv.FormatInt(prefixes.Add(1), 10)
	store := must.Get(redisstore.New(lent{conn}, options))(t)
	t.Cleanup(store.Close)
	if err := store.Ready(t.Context()); err != nil { // what it does at first is done
		t.Fatal(err)
	}
	return store, options.KeyPrefix
}

// another opens one more store on a connection, as another process would.
func another(t testing.TB, conn redisconn.Conn, options redisstore.Options) *redisstore.Store {
	t.Helper()
	store := must.Get(redisstore.New(lent{conn}, options))(t)
	t.Cleanup(store.Close)
	return store
}

// redis sends a command to the shared server.
func redis(t testing.TB, args ...any) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// timeOf is the server's time, of a reply to TIME.
func timeOf(t testing.TB, reply any) stint.Instant {
	t.Helper()
	at := reply.([]any)
	seconds := must.Get(strconv.ParseInt(at[0].(string), 10, 64))(t)
	micros := must.Get(strconv.ParseInt(at[1].(string), 10, 64))(t)
	return stint.Instant(1_000_000*seconds + micros)
}

// keysOf lists a store's keys with states.
func keysOf(t testing.TB, prefix string) []string {
	t.Helper()
	var keys []string
	for _, key := range redis(t, "KEYS", prefix+":*").([]any) {
		if name, _ := key.(string); !strings.HasSuffix(name, ":settings") {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

// aLimit is a limit of each algorithm, slow enough for none to turn during a test.
func aLimit(algorithm stint.Algorithm, n int64) stint.Limit {
	const slow = 300 * 24 * time.Hour
	l := stint.Limit{Algorithm: algorithm, Capacity: n}
	if l.IsBucket() {
		l.Rate = stint.Per(1, 24*time.Hour)
	} else {
		l.Window, l.FirstRequest = slow, algorithm == stint.AlgorithmFixedWindow
	}
	return l
}

// ofLayout reports whether a script is the one by which processes agree on the layout, and not a batch's.
func ofLayout(script *redisconn.Script) bool { return script.Source == wire.LayoutScript() }
