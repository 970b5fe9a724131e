package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/redis"
)

// patience bounds how long a test waits.
const patience = 5 * time.Minute

// rule is a valid rule. Its capacity says which edit made it.
func rule(id string, capacity int64) rules.Rule {
	return rules.Rule{ID: id, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(capacity, time.Minute)}}
}

// short is rules in short: a:1 b:2.
func short(list []rules.Rule) string {
	var words []string
	for _, r := range list {
		words = append(words, fmt.Sprintf("%s:%d", r.ID, r.Limits[0].Capacity))
	}
	return strings.Join(words, " ")
}

func manage(t testing.TB, b rulestore.Store, interval time.Duration) *rulestore.Manager {
	t.Helper()
	return must.Get(rulestore.NewManager(b, rulestore.Options{Interval: interval}))(t)
}

func put(t testing.TB, r *rulestore.Manager, list ...rules.Rule) rulestore.Edited {
	t.Helper()
	return must.Get(tryPut(t.Context(), r, list...))(t)
}

func tryPut(ctx context.Context, r *rulestore.Manager, list ...rules.Rule) (rulestore.Edited, error) {
	return r.Edit(ctx, rulestore.Author{}, func(d *rulestore.Draft) error {
		for _, r := range list {
			d.Put(r)
		}
		return nil
	})
}

// has compares the store's rules with rules in short.
func has(t testing.TB, b *redis.Store, number int64, want string) {
	t.Helper()
	s := must.Get(b.Load(t.Context(), 0))(t)
	if got := short(s.Rules); s.Number != number || got != want {
		t.Errorf("revision %d: %s; want %d: %s", s.Number, got, number, want)
	}
}

// A follower follows a store.
type follower struct {
	t     testing.TB
	taken chan string // the sets in short
	told  chan error
}

// follow follows a manager until the end of the test.
func follow(t testing.TB, r *rulestore.Manager) *follower {
	f := &follower{t: t, taken: make(chan string, 1000), told: make(chan error, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- r.Follow(ctx, func(s *rules.Set) { f.taken <- short(s.Rules()) }, func(err error) { f.told <- err })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

// until waits for a set in force.
func (f *follower) until(want string) {
	f.t.Helper()
	late, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	last := "nothing"
	for last != want {
		select {
		case last = <-f.taken:
		case <-late.Done():
			f.t.Fatalf("in force is %s; want %s", last, want)
		}
	}
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func(context.Context) bool) {
	t.Helper()
	late, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !is(late) {
		if late.Err() != nil {
			t.Fatalf("it has not come about that %s", what)
		}
	}
}

// dump is all data of a server.
func dump(t testing.TB, s *testredis.Server) map[string]any {
	t.Helper()
	held := map[string]any{}
	for _, key := range do(t, s, "KEYS", "*").([]any) {
		held[key.(string)] = do(t, s, "DUMP", key)
	}
	return held
}

// unavailable checks that an error is that of an unreachable server, and says why.
func unavailable(t testing.TB, err error, why string) {
	t.Helper()
	if !errors.Is(err, stint.ErrUnavailable) || errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), why) {
		t.Errorf("%v; want that it is unavailable: %q", err, why)
	}
}

// own starts a server of the test's own, with a store and a manager.
func own(t testing.TB, options ...testredis.Option) (*testredis.Server, *redis.Store, *rulestore.Manager) {
	t.Helper()
	s := testredis.Start(t, options...)
	b := open(t, rueidis.Config{URL: s.URL()}, "")
	return s, b, manage(t, b, 0)
}
