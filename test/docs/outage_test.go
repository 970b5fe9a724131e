package docs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"         //nolint:depguard // docs/start.md shows a program that has a go-redis client
	"github.com/redis/go-redis/v9/logging" //nolint:depguard // docs/failure.md shows what such a client logs

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/goredis"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// clients open a store by each of the clients that there are.
var clients = map[string]func(*testing.T, *testredis.Server, failover.Config) (*failover.Store, error){
	"rueidis": func(_ *testing.T, server *testredis.Server, config failover.Config) (*failover.Store, error) {
		return rueidis.Open(rueidis.Config{URL: server.URL(), Failover: config})
	},
	"goredis": func(t *testing.T, server *testredis.Server, config failover.Config) (*failover.Store, error) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		return goredis.Open(client, goredis.Config{Failover: config})
	},
}

// open opens a store, and a limiter of 2 a day on it, and tells the channel of changes.
func open(t *testing.T, client string, server *testredis.Server) (*failover.Store, *stint.Limiter, <-chan failover.Change) {
	t.Helper()
	changes := make(chan failover.Change, 10)
	config := failover.Config{StateChanged: func(c failover.Change) { changes <- c }}
	store := must.Get(clients[client](t, server, config))(t)
	t.Cleanup(store.Close)
	limiter := must.Get(stint.New(store, "api", stint.FixedWindow(2, 24*time.Hour)))(t)
	return store, limiter, changes
}

// next is the next change, which comes.
func next(t *testing.T, changes <-chan failover.Change) failover.Change {
	t.Helper()
	select {
	case c := <-changes:
		return c
	case <-time.After(5 * time.Minute):
		t.Fatal("no change was told")
		return failover.Change{}
	}
}

// Ready does not wait for a server that refuses connections, or for longer than its context, and a program that goes on
// after its error admits, and decides by the store when the server has come.
func TestReadyWithoutServer(t *testing.T) {
	for client := range clients {
		t.Run(client, func(t *testing.T) {
			server := testredis.Start(t)
			must.Do(t, server.Stop())
			store, limiter, changes := open(t, client, server)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if err := store.Ready(ctx); !errors.Is(err, stint.ErrUnavailable) || ctx.Err() != nil {
				t.Errorf("a server that refuses: %v; want %v before the context ends", err, stint.ErrUnavailable)
			}
			for range 3 {
				if d, err := limiter.Allow(ctx, "ann"); err != nil || !d.Allowed || !d.Degraded {
					t.Errorf("without a server: %v, %v; want it admitted, degraded", d, err)
				}
			}
			if c := next(t, changes); c.Up {
				t.Errorf("the first change is %+v", c)
			}
			server.Restart(t)
			if c := next(t, changes); !c.Up {
				t.Errorf("the second change is %+v", c)
			}
			within(t, "the server decides", func() bool { // a busy machine may not answer the first one in time
				d, err := limiter.Allow(ctx, "ann")
				return err == nil && !d.Degraded
			})

			must.Do(t, server.Pause())
			store, _, _ = open(t, client, server)
			short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer end()
			if err := store.Ready(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a server that is silent: %v; want %v", err, context.DeadlineExceeded)
			}
			must.Do(t, server.Resume())
		})
	}
}

// lines take a log over, line by line.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text) // slog writes whole lines
	return len(text), nil
}

// Printf takes go-redis's lines over.
func (l lines) Printf(_ context.Context, format string, values ...any) {
	l <- fmt.Sprintf(format, values...)
}

// expect fails unless the next line has all of the words.
func (l lines) expect(t *testing.T, words ...string) {
	t.Helper()
	select {
	case line := <-l:
		for _, word := range words {
			if !strings.Contains(line, word) {
				t.Errorf("%q lacks %q", line, word)
			}
		}
	case <-time.After(5 * time.Minute):
		t.Fatalf("no line has %q", words)
	}
}

// A program is told of an outage, once, with the cause that the page names for each client, and of its end.
func TestStateChanged(t *testing.T) {
	causes := map[string]string{
		"rueidis": "no connection for 100ms: ", // how it ended, or why no other could be made
		"goredis": "the server does not answer for 100ms",
	}
	for client := range clients {
		t.Run(client, func(t *testing.T) {
			log := make(lines, 100)
			logger := slog.New(slog.NewTextHandler(log, nil))
			config := failover.Config{StateChanged: func(change failover.Change) { // must not block
				if change.Up {
					logger.Info("the store is back", "shard", change.Shard)
				} else {
					logger.Warn("the store is unreachable", "shard", change.Shard, "cause", change.Cause)
				}
			}}
			server := testredis.Start(t)
			store := must.Get(clients[client](t, server, config))(t)
			defer store.Close()
			must.Do(t, store.Ready(t.Context()))
			limiter := must.Get(stint.New(store, "api", stint.FixedWindow(2, 24*time.Hour)))(t)
			must.Do(t, server.Stop())
			if d, err := limiter.Allow(t.Context(), "ann"); err != nil || !d.Degraded {
				t.Errorf("without a server: %v, %v", d, err)
			}
			log.expect(t, causes[client], `msg="the store is unreachable"`, "shard=0")
			if len(store.Down()) != 1 {
				t.Errorf("unreachable are %v", store.Down())
			}
			server.Restart(t)
			log.expect(t, `msg="the store is back"`)
			if len(log) != 0 {
				t.Errorf("one more line: %s", <-log)
			}
		})
	}
}

// While the server is away the page's policy of logins is refused, and the others are decided by the process's share.
func TestForPolicy(t *testing.T) {
	config := failover.Config{
		Mode: failover.Local,
		ForPolicy: func(policy *stint.Policy) (failover.PolicyOptions, bool) {
			return failover.PolicyOptions{Mode: failover.Closed, Timeout: 50 * time.Millisecond}, policy.Name() == "login"
		},
	}
	server := testredis.Start(t)
	store := must.Get(clients["rueidis"](t, server, config))(t)
	defer store.Close()
	must.Do(t, store.Ready(t.Context()))
	must.Do(t, server.Stop())
	for name, refused := range map[string]bool{"login": true, "api": false} {
		limiter := must.Get(stint.New(store, name, stint.FixedWindow(2, 24*time.Hour)))(t)
		d, err := limiter.Allow(t.Context(), "ann")
		if errors.Is(err, stint.ErrUnavailable) != refused || d.Allowed == refused {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

// go-redis has a logger for all its clients, which a program may replace.
func TestLogOfGoRedis(t *testing.T) {
	defer logging.Enable()
	server := testredis.Start(t)
	must.Do(t, server.Stop())
	log := make(lines, 1000)
	redis.SetLogger(log)
	store, _, _ := open(t, "goredis", server)
	if err := store.Ready(t.Context()); !errors.Is(err, stint.ErrUnavailable) {
		t.Fatal(err)
	}
	log.expect(t, "failed to dial after 5 attempts")

	redis.SetLogger(&logging.VoidLogger{})
	for len(log) > 0 {
		<-log
	}
	if err := store.Ready(t.Context()); !errors.Is(err, stint.ErrUnavailable) {
		t.Fatal(err)
	}
	if len(log) != 0 {
		t.Errorf("one more line: %s", <-log)
	}
}
