package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
)

// borrowed is memory that holds one key after another, as servers use theirs again.
type borrowed []byte

// key puts a key into the memory, whose length every key has.
func (b borrowed) key(key string) string {
	copy(b, key)
	return unsafe.String(&b[0], len(b)) //nolint:gosec // it is about strings that change
}

// The denials remembered are those of the keys as they were, whatever becomes of their
// memory.
func TestDenialsOfBorrowedKeys(t *testing.T) {
	c := newDenialCache(2*denialShards, func() time.Duration { return 0 })
	c.subscribed()
	var claims []stint.Claim
	for _, name := range []string{"a", "b"} {
		policy := must.Get(stint.NewPolicy(name, stint.FixedWindow(1, time.Hour)))(t)
		claims = append(claims, stint.Claim{Policy: policy, Permits: 1})
	}
	name := func(i int) string { return fmt.Sprintf("%04d", i) }
	memory := make(borrowed, len(name(0)))
	denied := func(i int) (n int) {
		for _, claim := range claims {
			claim.Key = name(i)
			if _, hit := c.claim(&claim, 0, 0, nil); hit {
				n++
			}
		}
		return n
	}
	keep := func(i int) {
		for _, claim := range claims {
			claim.Key = memory.key(name(i))
			c.keep(c.mark(), claim.Key, &denial{policy: claim.Policy, permits: 1, decision: stint.Decision{RetryAfter: time.Hour}}, time.Hour)
			memory.key("????")
		}
	}
	keep(1)
	memory.key(name(2))
	if denied(1) != 2 || denied(2) != 0 {
		t.Errorf("%d denials of the client that was denied twice, %d of the other", denied(1), denied(2))
	}
	for i := range 10_000 {
		keep(i)
	}
	count := 0
	for i := range c.shards {
		for _, list := range c.shards[i].clients {
			count += len(list)
		}
	}
	if most := int64(c.maxPerShard * denialShards); c.entries.Load() > most || int64(count) != c.entries.Load() {
		t.Errorf("%d denials are kept and counted as %d, want at most %d", count, c.entries.Load(), most)
	}
}

// held is a connection whose scripts are sent when the test lets them.
type held struct {
	redisconn.Conn // nil: nothing else is asked
	cluster        bool
	came           chan struct{}      // an Eval is there
	send           chan chan []string // it is to say what it sends
}

func (c *held) Eval(_ context.Context, _ *redisconn.Script, _, args []string) (string, error) {
	c.came <- struct{}{}
	sent := <-c.send
	sent <- slices.Clone(args)
	return "", errors.New("no reply")
}

func (c *held) Do(context.Context, ...string) (string, error) {
	return fmt.Sprintf("%d packed", defaultClusterPartitions), nil // the layout that all agree on
}

func (c *held) Subscribe(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c *held) Ready(context.Context) error { return nil }
func (c *held) Cluster() bool               { return c.cluster }
func (c *held) Reads() uint64               { return 0 }
func (c *held) Behind() bool                { return false }
func (c *held) Close()                      {}

func (c *held) Servers(context.Context) ([]redisconn.Server, error) { return nil, nil }

// A batch sends the keys as they were, even if the caller has left it and uses their memory
// for others.
func TestBatchesOfBorrowedKeys(t *testing.T) {
	for name, limits := range map[string][]stint.Limit{
		"one limit":  {stint.FixedWindow(5, time.Hour)},
		"two limits": {stint.FixedWindow(5, time.Hour), stint.TokenBucket(5, stint.PerSecond(1))},
		"a log":      {stint.SlidingWindowLog(5, time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &held{came: make(chan struct{}), send: make(chan chan []string)}
			store := must.Get(New(conn, Options{}))(t)
			defer store.Close()
			policy := must.Get(stint.NewPolicy("a", limits...))(t)
			memory := make(borrowed, 4)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			claim := stint.Claim{Key: memory.key("mine"), Policy: policy, Permits: 1}
			go func() {
				_, err := store.Decide(ctx, stint.Op{Claim: claim})
				ended <- err
			}()
			<-conn.came
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			memory.key("next")
			sent := make(chan []string)
			conn.send <- sent
			if args := <-sent; !slices.Contains(args, "mine") || slices.Contains(args, "next") {
				t.Errorf("%q is sent", args)
			}
		})
	}
}

// So do the shares of an operation on a cluster, which are released without the caller's knowledge.
func TestSharesOfBorrowedKeys(t *testing.T) {
	store := must.Get(New(&held{cluster: true}, Options{}))(t)
	defer store.Close()
	policy := must.Get(stint.NewPolicy("a", stint.FixedWindow(5, time.Hour)))(t)
	one, two := make(borrowed, 4), make(borrowed, 4)
	claim := func(key string) stint.Claim { return stint.Claim{Key: key, Policy: policy, Permits: 1} }
	shares := store.split(&stint.Op{Claim: claim(one.key("mine")), And: []stint.Claim{claim(two.key("ours"))}})
	var keys []string
	one.key("next")
	two.key("next")
	for _, h := range shares {
		keys = append(keys, h.op.Key)
		for _, claim := range h.op.And {
			keys = append(keys, claim.Key)
		}
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"mine", "ours"}) {
		t.Errorf("the shares are of %q", keys)
	}
}
