package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

// measured is a connection that keeps the size of the largest reply, and how many there were.
type measured struct {
	redisstore.Conn
	largest, replies int
}

func (m *measured) Eval(ctx context.Context, script *redisstore.Script, keys, args []string) (string, error) {
	reply, err := m.Conn.Eval(ctx, script, keys, args)
	m.largest, m.replies = max(m.largest, len(reply)), m.replies+1
	return reply, err
}

// Large rules are loaded by pages of few, and small ones by pages of many.
func TestPages(t *testing.T) {
	for name, c := range map[string]struct{ rules, bytes, largest, replies int }{
		"large": {380, 20_000, 3 << 20, 60},
		"small": {5000, 100, 1 << 20, 40},
	} {
		conn, err := rueidis.Dial(rueidis.Connection{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		m := &measured{Conn: conn}
		b := openOn(t, m, prefix())
		var list []rules.Rule
		for i := range c.rules {
			r := rule(fmt.Sprintf("rule-%d", i), 1)
			r.Match.Paths = []string{fmt.Sprintf("/%d", i)} // no request meets all of them
			r.Labels = map[string]string{"text": strings.Repeat("x", c.bytes)}
			list = append(list, r)
		}
		put(t, registryOn(t, b, 0), list...)
		m.largest, m.replies = 0, 0
		s, err := b.Load(t.Context())
		if err != nil || len(s.Rules) != c.rules {
			t.Fatalf("%s: %d rules, %v", name, len(s.Rules), err)
		}
		if m.largest > c.largest || m.replies > c.replies {
			t.Errorf("%s: %d replies, of up to %d bytes; want at most %d of %d", name, m.replies, m.largest, c.replies, c.largest)
		}
	}
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
	var b registry.Backend = openOn(t, brief{conn}, prefix())
	if err := b.Watch(t.Context(), func() {}, func() {}); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("%v, want that the news are unavailable", err)
	}
}
