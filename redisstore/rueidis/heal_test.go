package rueidis_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// Between two decisions the server forgets its keys, its scripts or everything: the
// next one is answered.
func TestHeals(t *testing.T) {
	own := testredis.Start(t)
	do := func(args ...any) func(testing.TB) {
		return func(t testing.TB) { must.Get(own.Do(args...))(t) }
	}
	var limits []stint.Limit
	for _, algorithm := range notation.Algorithms() {
		limits = append(limits, aLimit(algorithm, 5))
	}
	for _, c := range []struct {
		name    string
		happens func(testing.TB)
		left    int64 // of a limit of 5, after one was taken before and one after
	}{
		{"nothing", func(testing.TB) {}, 3},
		{"FLUSHALL", do("FLUSHALL"), 4},
		{"SCRIPT FLUSH", do("SCRIPT", "FLUSH"), 3},
		{"restart", own.Restart, 4},
		{"crash and restart", func(t testing.TB) {
			must.Do(t, own.Kill())
			own.Restart(t)
		}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, encoding := range encodings {
				options := redisstore.Options{LogEncoding: encoding, KeyPrefix: "heal." + string(encoding) + c.name[:1]}
				if i == 0 {
					options.DenialCache = -1 // so that nothing but decisions keeps the connection busy
				}
				store, policy := openURL(t, own.URL(), options), policyOf(t, c.name, limits...)
				must.Do(t, store.Ready(t.Context())) // no script is loaded in advance any more
				take(t, store, "k", policy, 1)
				c.happens(t)
				if strings.Contains(c.name, "restart") { // an attempt that began before the server listened may fail
					must.Do(t, testredis.Answered(t.Context(), store.Ping))
				}
				o, loads := op(stint.VerbTake, "k", policy, 1), store.Stats().ScriptLoads
				o.Each = make([]stint.Outcome, len(limits))
				must.Get(store.Decide(t.Context(), o))(t)
				for j, state := range o.Each {
					if state.Remaining != c.left {
						t.Errorf("%s, %s: remaining %d; want %d", encoding, limits[j].Algorithm, state.Remaining, c.left)
					}
				}
				if c.name == "SCRIPT FLUSH" && store.Stats().ScriptLoads == loads {
					t.Errorf("%s: a script that was sent again is not counted", encoding)
				}
			}
		})
	}
}

// SCRIPT FLUSH again and again under load: no call fails and none counts twice.
func TestScriptFlushUnderLoad(t *testing.T) {
	own := testredis.Start(t)
	const limit = 1_000_000
	c := newCrowd(t, openURL(t, own.URL(), redisstore.Options{}), 1, 16, limit, longPatience)
	for range 300 {
		must.Get(own.Do("SCRIPT", "FLUSH"))(t)
		before := c.admitted[0].Load()
		until(t, "one is admitted", func() bool { return c.admitted[0].Load() > before || t.Failed() })
	}
	c.check(limit)
}

// A server that is gone is an error that says so, and never a decision; when it is
// back, so are decisions.
func TestUnavailable(t *testing.T) {
	own := testredis.Start(t)
	store := openURL(t, own.URL(), redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 5))
	take(t, store, "k", policy, 1)
	must.Do(t, own.Kill())
	results := make([]stint.Result, 3)
	o := op(stint.VerbTake, "k", policy, 1)
	store.DecideAll(t.Context(), []stint.Op{o, o, o}, results)
	for i, r := range results {
		if !errors.Is(r.Err, stint.ErrUnavailable) || r.Decision != (stint.Decision{}) {
			t.Errorf("operation %d: %+v, want %v and no decision", i, r, stint.ErrUnavailable)
		}
	}
	for what, err := range map[string]error{
		"ping": store.Ping(t.Context()), "reset": store.ResetAll(t.Context(), stint.Scope{Policy: "x"}),
	} {
		if !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("%s: %v, want %v", what, err, stint.ErrUnavailable)
		}
	}
	own.Restart(t)
	take(t, store, "k", policy, 1)
}

// A connection cut while the answer is awaited: whether permits were taken is not
// known.
func TestConnectionCut(t *testing.T) {
	own := testredis.Start(t)
	store := openURL(t, own.URL(), redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 5))
	take(t, store, "k", policy, 1)
	must.Do(t, own.Pause())
	answer := make(chan error)
	go func() {
		_, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1))
		answer <- err
	}()
	must.Do(t, own.Kill())
	if err := <-answer; !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, stint.ErrUnavailable)
	}
}
