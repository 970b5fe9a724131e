package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// Servers implements redisstore.Scanner, as the connection does.
func (e *ear) Servers(ctx context.Context) (string, []redisstore.Server, error) {
	return e.Conn.(redisstore.Scanner).Servers(ctx)
}

// Servers implements redisstore.Scanner, as the connection does.
func (c *shared) Servers(ctx context.Context) (string, []redisstore.Server, error) {
	return c.Conn.(redisstore.Scanner).Servers(ctx)
}

// forgetPolicy forgets a policy and returns how many states were removed.
func forgetPolicy(t testing.TB, store stint.Forgetter, name string) (states int64) {
	t.Helper()
	err := store.ForgetPolicy(t.Context(), name, func(p stint.ForgetProgress) { states = p.States })
	if err != nil {
		t.Fatalf("forgetting %q: %v", name, err)
	}
	return states
}

// A denial that another process remembers does not outlive that its policy is
// forgotten; one of another policy does.
func TestForgetDenials(t *testing.T) {
	for _, algorithm := range stint.Algorithms() {
		gone, kept := policyOf(t, "rule/a", aLimit(algorithm, 10)), policyOf(t, "rule/b", aLimit(algorithm, 10))
		t.Run(algorithm.String()+"/elsewhere", func(t *testing.T) {
			own, store, elsewhere := listening(t, redisstore.Options{})
			deny(t, store, "k", gone)
			deny(t, store, "k", kept)
			denied(t, store, "k", gone, 1, stint.SourceDenialCache)
			before := store.Stats().DenialsKept
			forgetPolicy(t, elsewhere, "rule/a")
			<-own.heard
			if d := take(t, store, "k", gone, 1); !d.Allowed {
				t.Errorf("%+v, want it admitted", d)
			}
			denied(t, store, "k", kept, 1, stint.SourceDenialCache)
			if n := store.Stats().DenialsKept; n != before-1 {
				t.Errorf("%d denials are remembered, want %d", n, before-1)
			}
		})
		t.Run(algorithm.String()+"/own", func(t *testing.T) {
			_, store, _ := listening(t, redisstore.Options{})
			deny(t, store, "k", gone)
			denied(t, store, "k", gone, 1, stint.SourceDenialCache)
			forgetPolicy(t, store, "rule/a")
			if d := take(t, store, "k", gone, 1); !d.Allowed {
				t.Errorf("%+v, want it admitted", d)
			}
		})
	}
}

// A denial that is on its way while the policy is forgotten is not remembered.
func TestForgetOvertakesDenial(t *testing.T) {
	own, store, elsewhere := listening(t, redisstore.Options{})
	policy := policyOf(t, "rule/a", aLimit(stint.AlgorithmTokenBucket, 10))
	take(t, store, "k", policy, 10)
	own.landed = func() {
		own.landed = nil
		forgetPolicy(t, elsewhere, "rule/a")
		<-own.heard
	}
	denied(t, store, "k", policy, 1, stint.SourceStore)
	if d := take(t, store, "k", policy, 1); !d.Allowed {
		t.Errorf("%+v, want it admitted", d)
	}
}

// What is leased of a policy goes with it, in every process: nothing of a share is
// spent or given back afterwards.
func TestForgetLeases(t *testing.T) {
	for name, limit := range leaseLimits(1000) {
		t.Run(name, func(t *testing.T) {
			own, store, elsewhere := listening(t, redisstore.Options{LeaseTime: redisstore.MaxLeaseTime})
			gone, kept := policyOf(t, "rule/a", limit.WithLease(100)), policyOf(t, "rule/b", limit.WithLease(100))
			for _, policy := range []*stint.Policy{gone, kept} {
				take(t, store, "k", policy, 1)
				if d := take(t, store, "k", policy, 1); d.Source != stint.SourceLease {
					t.Fatalf("%+v, want it from a lease", d)
				}
			}
			for _, forgetter := range []*redisstore.Store{elsewhere, store} {
				forgetPolicy(t, forgetter, "rule/a")
				<-own.heard
				if n := left(t, elsewhere, "k", gone); n != 1000 {
					t.Errorf("%d of 1000 remain", n)
				}
				if d := take(t, store, "k", gone, 1); !d.Allowed || d.Source != stint.SourceStore {
					t.Errorf("%+v, want a share asked for anew", d)
				}
			}
			if d := take(t, store, "k", kept, 1); d.Source != stint.SourceLease {
				t.Errorf("another policy: %+v, want it from its lease", d)
			}
			before := left(t, elsewhere, "k", gone)
			forgetPolicy(t, store, "rule/a")
			store.Sweep()
			store.Close() // gives back what it has
			if n := left(t, elsewhere, "k", gone); n != 1000 || before >= 1000 {
				t.Errorf("%d of 1000 remain, %d did before", n, before)
			}
		})
	}
}

// A process that hears no announcements drops its own leases.
func TestForgetOwnLeases(t *testing.T) {
	store, _ := storeOn(t, &shared{Conn: newConn(t)}, redisstore.Options{DenialCache: -1, LeaseTime: redisstore.MaxLeaseTime})
	t.Cleanup(store.Close)
	policy := policyOf(t, "rule/a", aLimit(stint.AlgorithmTokenBucket, 1000).WithLease(100))
	take(t, store, "k", policy, 1)
	forgetPolicy(t, store, "rule/a")
	if d := take(t, store, "k", policy, 1); d.Source != stint.SourceStore {
		t.Errorf("%+v, want a share asked for anew", d)
	}
}

// A share that is on its way while the policy is forgotten is not spent.
func TestForgetOvertakesLease(t *testing.T) {
	own, store, elsewhere := listening(t, redisstore.Options{LeaseTime: redisstore.MaxLeaseTime})
	policy := policyOf(t, "rule/a", aLimit(stint.AlgorithmFixedWindow, 1000).WithLease(100))
	own.landed = func() {
		own.landed = nil
		forgetPolicy(t, elsewhere, "rule/a")
		<-own.heard
	}
	for range 2 {
		if d := take(t, store, "k", policy, 1); !d.Allowed || d.Source != stint.SourceStore {
			t.Errorf("%+v, want it from the store", d)
		}
	}
	if n := left(t, elsewhere, "k", policy); n != 1000-101 {
		t.Errorf("%d of 1000 remain, want the second share gone", n)
	}
}

// What is leased when the channel is lost, or while it is, may be of a policy that is
// forgotten unheard: it is spent no more, and nothing of it is given back.
func TestForgetUnheard(t *testing.T) {
	own, store, elsewhere := listening(t, redisstore.Options{LeaseTime: redisstore.MaxLeaseTime})
	policy := policyOf(t, "rule/a", aLimit(stint.AlgorithmFixedWindow, 1000).WithLease(100))
	taken := func(what string, sources ...stint.Source) {
		t.Helper()
		for _, source := range sources {
			if d := take(t, store, "k", policy, 1); !d.Allowed || d.Source != source {
				t.Errorf("%s: %+v, want it from the %s", what, d, source)
			}
		}
	}
	taken("at first", stint.SourceStore, stint.SourceLease)
	<-own.listens
	own.hold = make(chan struct{})
	own.cut()
	<-own.listens
	taken("when the channel is lost", stint.SourceStore, stint.SourceLease)
	forgetPolicy(t, elsewhere, "rule/a")
	close(own.hold)
	<-own.ready
	store.Sweep()
	if n := left(t, elsewhere, "k", policy); n != 1000 {
		t.Errorf("%d of 1000 remain", n)
	}
	taken("when the channel is back", stint.SourceStore, stint.SourceLease)
	if n := left(t, elsewhere, "k", policy); n != 1000-101 {
		t.Errorf("%d of 1000 remain, want one share gone", n)
	}
}

// A connection without a way to each server says so.
func TestForgetNoScanner(t *testing.T) {
	store, _ := storeOn(t, struct{ redisstore.Conn }{newConn(t)}, redisstore.Options{})
	if err := store.ForgetPolicy(t.Context(), "x", nil); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "Scanner") {
		t.Errorf("got %v, want %v", err, stint.ErrInvalid)
	}
}

// A server that is away makes it unavailable.
func TestForgetNobody(t *testing.T) {
	own := testredis.Start(t)
	store := open(t, own.URL(), redisstore.Options{})
	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := store.ForgetPolicy(t.Context(), "x", nil); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, stint.ErrUnavailable)
	}
}

// A prefix is not taken for a pattern, and its keys are not another's that begin alike.
func TestForgetPrefix(t *testing.T) {
	policy := policyOf(t, "rule/a", aLimit(stint.AlgorithmTokenBucket, 10), aLimit(stint.AlgorithmSlidingWindowLog, 10))
	base := "test" + strconv.FormatInt(prefixes.Add(1), 10)
	for _, prefix := range []string{base + "*", base + "[x]", base + "?", base + `\x`, base + "x"} {
		stores := map[string]*redisstore.Store{}
		for _, other := range []string{prefix, base + "x", base + ":x", base + "xx"} {
			store, err := redisstore.New(newConn(t), redisstore.Options{KeyPrefix: other})
			if err != nil {
				t.Fatal(err)
			}
			stores[other] = store
			decide(t, store, op(stint.Reset, "k", policy, 0))
			take(t, store, "k", policy, 4)
		}
		if n := forgetPolicy(t, stores[prefix], "rule/a"); n != 2 {
			t.Errorf("%q: %d states were removed, want 2", prefix, n)
		}
		for other, store := range stores {
			want := int64(6)
			if other == prefix {
				want = 10
			}
			if n := left(t, store, "k", policy); n != want {
				t.Errorf("%q was forgotten: %d remain with %q, want %d", prefix, n, other, want)
			}
		}
	}
}

// staged is a Scanner whose steps a test makes up.
type staged struct {
	redisstore.Conn
	views []string // one after another; the last stays
	steps []func() redisstore.Scanned
	asked []uint64 // the cursors
}

func (s *staged) Servers(context.Context) (string, []redisstore.Server, error) {
	view := s.views[0]
	if len(s.views) > 1 {
		s.views = s.views[1:]
	}
	return view, []redisstore.Server{s}, nil
}

func (s *staged) Scan(_ context.Context, cursor uint64, _ string, _ int) (redisstore.Scanned, error) {
	s.asked = append(s.asked, cursor)
	if len(s.steps) == 0 {
		return redisstore.Scanned{}, errors.New("no more steps")
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	return step(), nil
}

// What a walk has passed and is not met any more: a state in a generation that turned
// meanwhile, keys of another run of the server, or of another server, to which the
// cursor was foreign, and keys that moved from one node of a cluster to another.
func TestForgetWalks(t *testing.T) {
	const first, second = "# Server\r\nrun_id:1\r\n", "# Server\r\nrun_id:2\r\n"
	for name, row := range map[string]struct {
		views []string
		steps func(turn func(), keys func() []string) []func() redisstore.Scanned
		asked []uint64
	}{
		"turned": {
			[]string{""},
			func(turn func(), keys func() []string) []func() redisstore.Scanned {
				return []func() redisstore.Scanned{
					func() redisstore.Scanned { return redisstore.Scanned{Info: first, Cursor: 7} },
					func() redisstore.Scanned {
						turn()
						var now []string
						for _, key := range keys() {
							if strings.HasSuffix(key, ":cur") {
								now = append(now, key)
							}
						}
						return redisstore.Scanned{Info: first, Keys: now}
					},
				}
			},
			[]uint64{0, 7},
		},
		"another run": {
			[]string{""},
			func(_ func(), keys func() []string) []func() redisstore.Scanned {
				return []func() redisstore.Scanned{
					func() redisstore.Scanned { return redisstore.Scanned{Info: first, Cursor: 7} },
					func() redisstore.Scanned { return redisstore.Scanned{Info: second} },
					func() redisstore.Scanned { return redisstore.Scanned{Info: second, Keys: keys()} },
				}
			},
			[]uint64{0, 7, 0},
		},
		"moved": {
			[]string{"before", "after", "after"},
			func(_ func(), keys func() []string) []func() redisstore.Scanned {
				return []func() redisstore.Scanned{
					func() redisstore.Scanned { return redisstore.Scanned{Info: first} },
					func() redisstore.Scanned { return redisstore.Scanned{Info: first, Keys: keys()} },
				}
			},
			[]uint64{0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			conn := &staged{Conn: newConn(t), views: row.views}
			store, prefix := storeOn(t, conn, redisstore.Options{Now: clock.Now, Partitions: 1})
			policy := policyOf(t, "rule/a", stint.TokenBucket(100, stint.PerSecond(1)).WithMaxDebt(stint.NoDebt))
			take(t, store, "first", policy, 1)
			clock.Advance(109 * time.Second)
			take(t, store, "k", policy, 100)
			conn.steps = row.steps(func() {
				clock.Advance(2 * time.Second)
				take(t, store, "third", policy, 1)
				if n := left(t, store, "k", policy); n != 2 || len(keysOf(t, prefix)) != 2 {
					t.Errorf("%d remain after the turn, want 2; the keys are %q", n, keysOf(t, prefix))
				}
			}, func() []string { return keysOf(t, prefix) })
			forgetPolicy(t, store, "rule/a")
			if n := left(t, store, "k", policy); n != 100 {
				t.Errorf("%d of 100 remain", n)
			}
			if fmt.Sprint(conn.asked) != fmt.Sprint(row.asked) {
				t.Errorf("the cursors were %v, want %v", conn.asked, row.asked)
			}
		})
	}
}

// counted is a Scanner that notes how much each command is asked for.
type counted struct {
	redisstore.Conn
	scans, evals      atomic.Int64
	mostKeys, mostHit atomic.Int64
}

func (c *counted) Servers(ctx context.Context) (string, []redisstore.Server, error) {
	view, servers, err := c.Conn.(redisstore.Scanner).Servers(ctx)
	for i := range servers {
		servers[i] = countedServer{servers[i], c}
	}
	return view, servers, err
}

type countedServer struct {
	redisstore.Server
	counted *counted
}

func (s countedServer) Scan(ctx context.Context, cursor uint64, match string, count int) (redisstore.Scanned, error) {
	s.counted.scans.Add(1)
	s.counted.mostHit.Store(max(s.counted.mostHit.Load(), int64(count)))
	return s.Server.Scan(ctx, cursor, match, count)
}

func (c *counted) Eval(ctx context.Context, script *redisstore.Script, keys, args []string) (string, error) {
	c.evals.Add(1)
	c.mostKeys.Store(max(c.mostKeys.Load(), int64(len(keys))))
	return c.Conn.Eval(ctx, script, keys, args)
}

// 100,000 clients of one policy and 1,000 of another: however many there are, each
// command looks at, or removes, a bounded number of keys, and the server decides in
// between, which a client asks it to all the while.
func TestForgetCrowd(t *testing.T) {
	const many, logs, few = 100_000, 10_000, 1_000
	own := testredis.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{own.Addr()}, DisableCache: true, DisableRetry: true, ForceSingleClient: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := &counted{Conn: redisstore.Rueidis(client, false)}
	store, err := redisstore.New(conn, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	busy := open(t, own.URL(), redisstore.Options{})
	gone, kept := policyOf(t, "rule/a", aLimit(stint.AlgorithmTokenBucket, 10)), policyOf(t, "rule/b", aLimit(stint.AlgorithmTokenBucket, 10))
	logged := policyOf(t, "rule/a", aLimit(stint.AlgorithmSlidingWindowLog, 10))
	keptLogged := policyOf(t, "rule/b", aLimit(stint.AlgorithmSlidingWindowLog, 10))
	for policy, n := range map[*stint.Policy]int{gone: many, logged: logs, kept: few, keptLogged: few} {
		takeOfAll(t, busy, policy, n)
	}

	begun, over := make(chan struct{}), make(chan struct{})
	var probe sync.WaitGroup
	asked := 0
	probe.Go(func() {
		probing := policyOf(t, "probe", aLimit(stint.AlgorithmFixedWindow, 1_000_000))
		close(begun)
		for {
			if d := take(t, busy, "probe", probing, 1); d.Remaining != int64(999_999-asked) {
				t.Errorf("probe %d: %+v", asked, d)
			}
			asked++
			select {
			case <-over:
				return
			default:
			}
		}
	})
	<-begun
	before := commandCalls(t, own)
	evals := conn.evals.Load()
	removed := forgetPolicy(t, store, "rule/a")
	evals = conn.evals.Load() - evals
	after := commandCalls(t, own)
	close(over)
	probe.Wait()

	if removed != many+logs {
		t.Errorf("%d states were removed, want %d", removed, many+logs)
	}
	if most := conn.mostHit.Load(); most > 500 {
		t.Errorf("a SCAN looks at %d keys", most)
	}
	if most := conn.mostKeys.Load(); most > 200 {
		t.Errorf("a script has %d keys", most)
	}
	// The server counts what it has executed.
	if n := after["scan"] - before["scan"]; n != conn.scans.Load() || n < logs/500 {
		t.Errorf("%d SCANs, of which %d were sent here; %d keys", n, conn.scans.Load(), logs)
	}
	if n := after["unlink"] - before["unlink"]; n < logs/200 || n > 2*evals {
		t.Errorf("%d UNLINKs in %d script calls for %d keys", n, evals, logs)
	}
	for _, command := range []string{"keys", "flushdb", "flushall", "hgetall", "hkeys", "hscan"} {
		if n := after[command] - before[command]; n != 0 {
			t.Errorf("%d calls of %s", n, command)
		}
	}
	for policy, want := range map[*stint.Policy]int64{gone: 10, logged: 10, kept: 9, keptLogged: 9} {
		if n := countLeft(t, busy, policy, few, want); n != few {
			t.Errorf("of policy %q %d of %d clients have %d left", policy.Name(), n, few, want)
		}
	}
}

// takeOfAll takes a permit of each of n clients.
func takeOfAll(t *testing.T, store *redisstore.Store, policy *stint.Policy, n int) {
	t.Helper()
	for _, r := range decideAll(t, store, stint.Take, policy, n) {
		if r.Err != nil || !r.Decision.Allowed {
			t.Fatalf("%+v", r)
		}
	}
}

// countLeft counts those of n clients of which so much remains.
func countLeft(t *testing.T, store *redisstore.Store, policy *stint.Policy, n int, want int64) (count int) {
	t.Helper()
	for _, r := range decideAll(t, store, stint.Peek, policy, n) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if r.Decision.Remaining == want {
			count++
		}
	}
	return count
}

func decideAll(t *testing.T, store *redisstore.Store, verb stint.Verb, policy *stint.Policy, n int) []stint.Result {
	t.Helper()
	ops := make([]stint.Op, n)
	results := make([]stint.Result, n)
	for i := range ops {
		ops[i] = op(verb, strconv.Itoa(i), policy, 1)
	}
	store.DecideAll(t.Context(), ops, results)
	return results
}

// commandCalls is how often a server has executed each command.
func commandCalls(t *testing.T, own *testredis.Server) map[string]int64 {
	t.Helper()
	stats, err := own.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int64{}
	for name, text := range stats {
		number, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q", name, text)
		}
		calls[strings.TrimPrefix(name, "cmdstat_")] = n
	}
	return calls
}

// Of a cluster all primaries are walked through, by the store's own connection and by a
// rueidis client's.
func TestForgetCluster(t *testing.T) {
	cluster := testredis.StartCluster(t, 3, testredis.Replicas(1))
	for name, newStore := range map[string]func() *redisstore.Store{
		"own": func() *redisstore.Store { return open(t, cluster.URL(), redisstore.Options{KeyPrefix: "own"}) },
		"rueidis": func() *redisstore.Store {
			client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: cluster.Addrs(), DisableCache: true, DisableRetry: true})
			if err != nil {
				t.Fatal(err)
			}
			store, err := redisstore.New(redisstore.Rueidis(client, true), redisstore.Options{KeyPrefix: "rueidis"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(store.Close)
			return store
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			var limits []stint.Limit
			for _, algorithm := range stint.Algorithms() {
				limits = append(limits, aLimit(algorithm, 10))
			}
			const clients = 500
			gone, kept := policyOf(t, "rule/a", limits...), policyOf(t, "rule/b", limits...)
			takeOfAll(t, store, gone, clients)
			takeOfAll(t, store, kept, clients)
			if n := forgetPolicy(t, store, "rule/a"); n != int64(clients*len(limits)) {
				t.Errorf("%d states were removed, want %d", n, clients*len(limits))
			}
			if n := countLeft(t, store, gone, clients, 10); n != clients {
				t.Errorf("%d of %d clients are as new", n, clients)
			}
			if n := countLeft(t, store, kept, clients, 9); n != clients {
				t.Errorf("%d of %d clients of the other policy are as they were", n, clients)
			}
			for _, node := range cluster.Nodes {
				if calls := commandCalls(t, node); calls["scan"] == 0 {
					t.Errorf("%s was not walked through", node.Addr())
				}
			}
		})
	}
}
