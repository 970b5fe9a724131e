package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// unsubscribable is a connection on which Subscribe fails.
type unsubscribable struct{ redisconn.Conn }

func (unsubscribable) Subscribe(context.Context, string, func(), func(string)) error {
	return errors.New("pub/sub is cut")
}

// mute is a connection whose subscriptions receive nothing.
type mute struct{ redisconn.Conn }

func (mute) Subscribe(ctx context.Context, _ string, ready func(), _ func(string)) error {
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// counted counts the commands that ask for the head.
type counted struct {
	redisconn.Conn
	polls *atomic.Int64
}

func (c counted) Do(ctx context.Context, args ...string) (string, error) {
	c.polls.Add(1)
	return c.Conn.Do(ctx, args...)
}

// A rule of 10,000 that one process changes is in force in another: by a notification, or, with notifications cut, after the next
// poll. Under the race detector, 1,000 rules show as much.
func TestInForceElsewhere(t *testing.T) {
	count := 10_000
	if testing.Short() {
		count = 1000
	}
	for name, test := range map[string]struct {
		interval time.Duration
		wrap     func(redisconn.Conn) redisconn.Conn
	}{
		"notified":     {time.Minute, func(c redisconn.Conn) redisconn.Conn { return c }},
		"pub/sub cut":  {20 * time.Millisecond, func(c redisconn.Conn) redisconn.Conn { return unsubscribable{c} }},
		"pub/sub mute": {20 * time.Millisecond, func(c redisconn.Conn) redisconn.Conn { return mute{c} }},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := prefix()
			conn := must.Get(rueidis.Dial(rueidis.Config{URL: server.URL()}))(t)
			writer := manage(t, open(t, rueidis.Config{URL: server.URL()}, prefix), 0)
			list := []rules.Rule{rule("a", 1)}
			for i := range count - 1 {
				r := rule(fmt.Sprintf("rule-%d", i), 1)
				r.Match.Paths = []string{"/" + r.ID}
				list = append(list, r)
			}
			put(t, writer, list...)
			var polls atomic.Int64
			type taken struct{ rules, capacity, polls int64 }
			sets, ended := make(chan taken, 100), make(chan error, 1)
			follower := manage(t, openOn(t, counted{test.wrap(conn), &polls}, prefix), test.interval)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				ended <- follower.Follow(ctx, func(s *rules.Set) {
					a, _ := s.Rule("a")
					sets <- taken{int64(s.Len()), a.Limits[0].Capacity, polls.Load()}
				}, func(err error) { t.Error(err) })
			}()
			until := func(capacity int64) taken {
				late := time.NewTimer(patience)
				defer late.Stop()
				for {
					select {
					case now := <-sets:
						if now.capacity == capacity {
							return now
						}
					case <-late.C:
						t.Fatalf("capacity %d is not in force", capacity)
					}
				}
			}
			until(1)
			if name == "notified" {
				subscribed(t, prefix+":rules")
			}
			for n := int64(2); n < 5; n++ {
				put(t, writer, rule("a", n))
				before := polls.Load()
				if now := until(n); now.rules != int64(count) || now.polls > before+1 {
					t.Errorf("edit %d: %d rules are in force after %d polls, want %d after 1", n, now.rules, now.polls-before, count)
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// subscribed waits until somebody listens to a channel.
func subscribed(t testing.TB, channel string) {
	t.Helper()
	eventually(t, "somebody listens", func(context.Context) bool {
		return fmt.Sprint(do(t, server, "PUBSUB", "NUMSUB", channel)) == fmt.Sprintf("[%s 1]", channel)
	})
}

// A server that restarts empty, or is emptied, gets the rules back from a manager that follows it.
func TestRulesComeBack(t *testing.T) {
	s, b, writer := own(t)
	followed := manage(t, open(t, rueidis.Config{URL: s.URL()}, ""), 20*time.Millisecond)
	f := follow(t, followed)
	f.until("")
	put(t, writer, rule("a", 1), rule("b", 2))
	put(t, writer, rule("a", 3))
	f.until("a:3 b:2")
	for i, lose := range []func(){
		func() { do(t, s, "FLUSHALL") },
		func() { s.Restart(t) },
		func() { do(t, s, "DEL", key) },
	} {
		lose()
		eventually(t, fmt.Sprintf("the head is back after loss %d", i), func(late context.Context) bool {
			head, err := b.Head(late)
			return err == nil && head.Number == 1
		})
		has(t, b, 1, "a:3 b:2")
		revisions, err := b.History(t.Context(), 0, 10)
		if err != nil || len(revisions) != 1 || revisions[0].Comment == "" {
			t.Errorf("loss %d: %+v, %v", i, revisions, err)
		}
		must.Get(followed.Current(t.Context()))(t)
		put(t, writer, rule("c", int64(i+1)))
		f.until(fmt.Sprintf("a:3 b:2 c:%d", i+1))
		less := func(d *rulestore.Draft) error { d.Delete("c"); return nil }
		must.Get(writer.Edit(t.Context(), rulestore.Author{}, less))(t)
		f.until("a:3 b:2")
	}
}

// A failover of Sentinel keeps the rules in force, and edits after it notify. The old primary accepts writes until a
// sentinel demotes it, so an edit may succeed there and be lost: it is made again until the new primary has it.
func TestFailover(t *testing.T) {
	watched := testredis.StartSentinel(t)
	at := rueidis.Config{URL: watched.URL()}
	writer := manage(t, open(t, at, ""), 0)
	f := follow(t, manage(t, open(t, at, ""), 20*time.Millisecond))
	put(t, writer, rule("a", 1))
	f.until("a:1")
	for _, replica := range watched.Replicas {
		eventually(t, "a replica has the rules", func(context.Context) bool {
			return do(t, replica, "HEXISTS", key, "1") == int64(1)
		})
	}
	watched.Failover(t)
	primary := open(t, rueidis.Config{URL: watched.Primary.URL()}, "")
	for n := int64(2); n < 4; n++ {
		eventually(t, "the new primary has an edit", func(late context.Context) bool {
			_, _ = tryPut(late, writer, rule("a", n))
			now, err := primary.Load(late, 0)
			return err == nil && short(now.Rules) == fmt.Sprintf("a:%d", n)
		})
	}
	f.until("a:3") // of an edit that only the new primary had
}

// brief is a connection whose subscriptions end without a reason.
type brief struct{ redisconn.Conn }

func (brief) Subscribe(context.Context, string, func(), func(string)) error { return nil }

// A subscription that ends without a reason counts as lost.
func TestSubscriptionEnds(t *testing.T) {
	conn := must.Get(rueidis.Dial(rueidis.Config{URL: server.URL()}))(t)
	if err := openOn(t, brief{conn}, prefix()).Watch(t.Context(), func() {}, func() {}); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("%v, want that notifications are unavailable", err)
	}
}
