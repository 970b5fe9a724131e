package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules/store"
)

// deaf is a connection over which nobody can subscribe.
type deaf struct{ redisstore.Conn }

func (deaf) Subscribe(context.Context, string, func(), func(string)) error {
	return errors.New("pub/sub is cut")
}

// mute is one with subscriptions on which nothing comes.
type mute struct{ redisstore.Conn }

func (mute) Subscribe(ctx context.Context, _ string, ready func(), _ func(string)) error {
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// A rule that one process changes is in force in another, by news or, with these cut, by asking.
func TestInForceElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		interval time.Duration
		wrap     func(redisstore.Conn) redisstore.Conn
	}{
		"news":         {time.Minute, func(c redisstore.Conn) redisstore.Conn { return c }},
		"pub/sub cut":  {50 * time.Millisecond, func(c redisstore.Conn) redisstore.Conn { return deaf{c} }},
		"pub/sub mute": {0, func(c redisstore.Conn) redisstore.Conn { return mute{c} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := prefix()
			conn, err := rueidis.Dial(rueidis.Connection{URL: server.URL()})
			if err != nil {
				t.Fatal(err)
			}
			writer := manage(t, open(t, rueidis.Connection{URL: server.URL()}, prefix), 0)
			put(t, writer, rule("a", 1))
			backend := openOn(t, test.wrap(conn), prefix)
			f := follow(t, manage(t, backend, test.interval))
			f.until("a:1")
			if name == "news" {
				subscribed(t, prefix+":rules")
			}
			longest := time.Duration(0)
			for n := int64(2); n < 7; n++ {
				began := time.Now()
				put(t, writer, rule("a", n))
				f.until(fmt.Sprintf("a:%d", n))
				longest = max(longest, time.Since(began))
			}
			t.Logf("in force elsewhere within %s", longest)
		})
	}
}

// subscribed waits until somebody listens to a channel.
func subscribed(t testing.TB, channel string) {
	t.Helper()
	late, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for fmt.Sprint(do(t, server, "PUBSUB", "NUMSUB", channel)) != fmt.Sprintf("[%s 1]", channel) {
		if late.Err() != nil {
			t.Fatalf("nobody listens to %s", channel)
		}
	}
}

// A server that restarts empty, or is emptied, gets the rules back from who follows.
func TestRulesComeBack(t *testing.T) {
	s, b, writer := own(t)
	followed := manage(t, open(t, rueidis.Connection{URL: s.URL()}, ""), 20*time.Millisecond)
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
		late, cancel := context.WithTimeout(t.Context(), patience)
		for {
			head, err := b.Head(late)
			if err == nil && head.Number == 1 {
				break
			}
			if late.Err() != nil {
				t.Fatalf("loss %d: the head is %+v, %v", i, head, err)
			}
		}
		cancel()
		has(t, b, 1, "a:3 b:2")
		versions, err := b.History(t.Context(), 0, 10)
		if err != nil || len(versions) != 1 || versions[0].Comment == "" {
			t.Errorf("loss %d: %+v, %v", i, versions, err)
		}
		if _, err := followed.Current(t.Context()); err != nil {
			t.Error(err)
		}
		put(t, writer, rule("c", int64(i+1)))
		f.until(fmt.Sprintf("a:3 b:2 c:%d", i+1))
		if _, err := writer.Edit(t.Context(), store.Author{}, func(d *store.Draft) error { d.Delete("c"); return nil }); err != nil {
			t.Fatal(err)
		}
		f.until("a:3 b:2")
	}
}

// A failover of Sentinel keeps the rules in force, and those after it are heard of.
func TestFailover(t *testing.T) {
	watched := testredis.StartSentinel(t)
	at := rueidis.Connection{URL: watched.URL()}
	writer := manage(t, open(t, at, ""), 0)
	f := follow(t, manage(t, open(t, at, ""), 20*time.Millisecond))
	put(t, writer, rule("a", 1))
	f.until("a:1")
	if n := do(t, watched.Primary, "WAIT", "2", "10000"); n != int64(2) {
		t.Fatalf("%v replicas follow", n)
	}
	watched.Failover(t)
	late, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, err := tryPut(late, writer, rule("a", 2))
		if err == nil {
			break
		}
		if late.Err() != nil {
			t.Fatal(err)
		}
	}
	f.until("a:2")
}

// brief is a connection whose subscriptions end without a reason.
type brief struct{ redisstore.Conn }

func (brief) Subscribe(context.Context, string, func(), func(string)) error { return nil }

// A subscription that ends without a reason is one that was lost.
func TestSubscriptionEnds(t *testing.T) {
	conn, err := rueidis.Dial(rueidis.Connection{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if err := openOn(t, brief{conn}, prefix()).Watch(t.Context(), func() {}, func() {}); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("%v, want that notifications are unavailable", err)
	}
}
