package resp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// goRedis opens a client with its default options, but for the version of the protocol.
func goRedis(t *testing.T, s *service, protocol int, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	options := &redis.Options{Addr: s.addr, Protocol: protocol}
	for _, do := range change {
		do(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A doer is a client of go-redis, or a pipeline.
type doer interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// askThrottle asks CL.THROTTLE.
func askThrottle(ctx context.Context, client doer, args ...any) *redis.Cmd {
	return client.Do(ctx, append([]any{"CL.THROTTLE"}, args...)...)
}

// expectThrottle compares an answer of CL.THROTTLE.
func expectThrottle(t *testing.T, what string, answer any, err error, want ...int64) {
	t.Helper()
	if err != nil || !matches(fmt.Sprint(want), fmt.Sprint(answer)) {
		t.Errorf("%s: %v, %v; want %v", what, answer, err, want)
	}
}

// expectError compares an error with a pattern.
func expectError(t *testing.T, what string, err error, pattern string) {
	t.Helper()
	if err == nil || !matches(pattern, err.Error()) {
		t.Errorf("%s: %v; want the error %s", what, err, pattern)
	}
}

// protocols runs a test in each version of the protocol.
func protocols(t *testing.T, do func(t *testing.T, protocol int)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP ", protocol), func(t *testing.T) { do(t, protocol) })
	}
}

func TestGoRedis(t *testing.T) {
	s := startService(t, memory, limits)
	protocols(t, func(t *testing.T, protocol int) {
		client, ctx, key := goRedis(t, s, protocol), t.Context(), fmt.Sprint("key-", protocol)
		answer, err := askThrottle(ctx, client, key, 15, 30, 3600).Result()
		expectThrottle(t, "one", answer, err, 0, 16, 15, -1, 120)

		for name, open := range map[string]func() redis.Pipeliner{"Pipeline": client.Pipeline, "TxPipeline": client.TxPipeline} {
			pipe := open()
			first := askThrottle(ctx, pipe, key+name, 2, 1, 3600)
			wrong := askThrottle(ctx, pipe, key+name, 2, 1, "long")
			second := askThrottle(ctx, pipe, key+name, 2, 1, 3600, 2)
			third := askThrottle(ctx, pipe, key+name, 2, 1, 3600)
			ttl, exists, del, ping := pipe.TTL(ctx, key+name), pipe.Exists(ctx, key+name), pipe.Del(ctx, key+name), pipe.Ping(ctx)
			_, err := pipe.Exec(ctx)
			expectError(t, name, err, `ERR period is "long"; allowed: an integer from 1 to 31622400`)
			expectThrottle(t, name, first.Val(), first.Err(), 0, 3, 2, -1, 3600)
			if wrong.Err() == nil {
				t.Errorf("%s: a wrong command has no error", name)
			}
			expectThrottle(t, name, second.Val(), second.Err(), 0, 3, 0, -1, 10800)
			expectThrottle(t, name, third.Val(), third.Err(), 1, 3, 0, 3600, 10800)
			if !isAbout(int64(ttl.Val().Seconds()), 10800) || exists.Val() != 1 || del.Val() != 1 || ping.Val() != "PONG" {
				t.Errorf("%s: %v, %v, %v, %v", name, ttl, exists, del, ping)
			}
		}

		decision, err := client.Do(ctx, "STINT.CHECK", "two", key).Result()
		if said := pairs(decision); err != nil || !said.allowed() || said["limit"] != int64(3) || said["algorithm"] != "TOKEN_BUCKET" {
			t.Errorf("STINT.CHECK: %v, %v", decision, err)
		}
		expectError(t, "STINT.CHECK", client.Do(ctx, "STINT.CHECK", "nothing", key).Err(), `ERR policy is "nothing".*`)
		expectError(t, "GET", client.Get(ctx, key).Err(), "ERR unknown command.*")
		if id, err := client.ClientID(ctx).Result(); err != nil || id < 1 {
			t.Errorf("CLIENT ID: %v, %v", id, err)
		}
		if found, err := client.ConfigGet(ctx, "databases").Result(); err != nil || found["databases"] != "16" {
			t.Errorf("CONFIG GET: %v, %v", found, err)
		}
		if found, err := client.Command(ctx).Result(); err != nil || found["cl.throttle"] == nil || found["cl.throttle"].FirstKeyPos != 1 {
			t.Errorf("COMMAND: %v, %v", found["cl.throttle"], err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A decision is an answer of names and values, in either version of the protocol.
type decision map[any]any

func (d decision) allowed() bool { return d["allowed"] == true || d["allowed"] == int64(1) }

// pairs reads a decision of go-redis or of rueidis.
func pairs(answer any) decision {
	said := decision{}
	switch answer := answer.(type) {
	case map[any]any:
		return answer
	case map[string]any:
		for name, value := range answer {
			said[name] = value
		}
	case []any:
		for pair := range slices.Chunk(answer, 2) {
			said[pair[0]] = pair[len(pair)-1]
		}
	}
	return said
}

// What is no command here is one that go-redis does not send again.
func TestUnknownCommands(t *testing.T) {
	client := goRedis(t, startInMemory(t), 3)
	for _, command := range [][]any{
		{"SET", "k", 1},
		{"INCR", "k"},
		{"WATCH", "k"},
		{"FLUSHALL"},
		{"KEYS", "*"},
		{"SUBSCRIBE", "c"},
		{"MONITOR"},
		{"THROTTLE", "k"},
		{"", "k"},
	} {
		expectError(t, fmt.Sprint(command), client.Do(t.Context(), command...).Err(), "ERR unknown command.*")
	}
}

func TestGoRedisByToken(t *testing.T) {
	s := startService(t, memory, tokens(t))
	protocols(t, func(t *testing.T, protocol int) {
		ctx := t.Context()
		for name, user := range map[string]string{"without a user": "", "with a user": "anybody"} {
			client := goRedis(t, s, protocol, func(o *redis.Options) { o.Username, o.Password, o.ClientName = user, token, "app" })
			answer, err := askThrottle(ctx, client, fmt.Sprint(protocol, name), 15, 30, 3600).Result()
			expectThrottle(t, name, answer, err, 0, 16, 15, -1, 120)
			if said, err := client.ClientGetName(ctx).Result(); err != nil || said != "app" {
				t.Errorf("CLIENT GETNAME: %q, %v", said, err)
			}
		}
		wrong := goRedis(t, s, protocol, func(o *redis.Options) { o.Password = "wrong"; o.MaxRetries = -1 })
		expectError(t, "with a wrong token", askThrottle(ctx, wrong, "k", 15, 30, 3600).Err(), "WRONGPASS.*")
		none := goRedis(t, s, protocol, func(o *redis.Options) { o.MaxRetries = -1 })
		expectError(t, "without a token", askThrottle(ctx, none, "k", 15, 30, 3600).Err(), "NOAUTH.*")
	})
}

// secure is the configuration of a service with TLS, and of its clients.
func secure(t *testing.T, authority *testredis.Authority) (configuration string, client *tls.Config) {
	t.Helper()
	certificate, key := authority.Issue(t, "service")
	ca := must.Get(os.ReadFile(authority.CAFile))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return fmt.Sprintf("resp_tls: {cert_file: %q, key_file: %q}\n", certificate, key), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

func TestGoRedisByTLS(t *testing.T) {
	configuration, encrypted := secure(t, testredis.NewAuthority(t))
	s := startService(t, memory, configuration+tokens(t))
	protocols(t, func(t *testing.T, protocol int) {
		client := goRedis(t, s, protocol, func(o *redis.Options) { o.TLSConfig, o.Password = encrypted, token })
		answer, err := askThrottle(t.Context(), client, fmt.Sprint(protocol), 15, 30, 3600).Result()
		expectThrottle(t, "by TLS", answer, err, 0, 16, 15, -1, 120)
		fromURL := must.Get(redis.ParseURL(fmt.Sprintf("rediss://:%s@%s/0?protocol=%d", token, s.addr, protocol)))(t)
		fromURL.TLSConfig = encrypted
		byURL := redis.NewClient(fromURL)
		defer func() { _ = byURL.Close() }()
		if err := byURL.Ping(t.Context()).Err(); err != nil {
			t.Errorf("by %s: %v", "rediss://", err)
		}
	})
}

// A key is any text without control characters, as over HTTP.
func TestTextOfKeys(t *testing.T) {
	client := goRedis(t, startInMemory(t), 3)
	for _, key := range []string{"a b", "grün", "{tag}", "*", `"quoted'`, strings.Repeat("k", 256)} {
		answer, err := askThrottle(t.Context(), client, key, 4, 1, 3600).Result()
		expectThrottle(t, fmt.Sprintf("%.20q", key), answer, err, 0, 5, 4, -1, 3600)
		if n, err := client.Exists(t.Context(), key).Result(); n != 1 || err != nil {
			t.Errorf("EXISTS %.20q: %d, %v", key, n, err)
		}
		if n, err := client.Del(t.Context(), key).Result(); n != 1 || err != nil {
			t.Errorf("DEL %.20q: %d, %v", key, n, err)
		}
	}
	for _, key := range []string{"", "a\r\nb", "a\x00b", "\xff\xfe", strings.Repeat("k", 257)} {
		for _, command := range [][]any{{"CL.THROTTLE", key, 4, 1, 3600}, {"DEL", key}, {"EXISTS", key}, {"TTL", key}} {
			expectError(t, fmt.Sprint(command), client.Do(t.Context(), command...).Err(), "ERR key is .*")
		}
	}
}

// There are sixteen databases, each with keys of its own.
func TestGoRedisDatabases(t *testing.T) {
	s := startInMemory(t)
	protocols(t, func(t *testing.T, protocol int) {
		client := goRedis(t, s, protocol)
		if said, err := client.Do(t.Context(), "SELECT", 0).Result(); err != nil || said != "OK" {
			t.Errorf("SELECT 0: %v, %v", said, err)
		}
		for db := range 17 {
			other := goRedis(t, s, protocol, func(o *redis.Options) { o.DB, o.MaxRetries = db, -1 })
			answer, err := askThrottle(t.Context(), other, fmt.Sprint("k", protocol), 15, 30, 3600).Result()
			if db < 16 {
				expectThrottle(t, fmt.Sprint("database ", db), answer, err, 0, 16, 15, -1, 120)
			} else {
				expectError(t, "database 16", err, "ERR DB index is out of range.*")
			}
		}
	})
}

// hammer asks about one key from 64 goroutines, each so often, and returns how often it was admitted.
func hammer(t *testing.T, each int, ask func(i int) (admitted bool, err error)) int64 {
	t.Helper()
	const goroutines = 64
	var admitted atomic.Int64
	var done sync.WaitGroup
	for i := range goroutines {
		done.Go(func() {
			for range each {
				ok, err := ask(i)
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					admitted.Add(1)
				}
			}
		})
	}
	done.Wait()
	return admitted.Load()
}

// admitted reads an answer of CL.THROTTLE.
func admitted(answer any, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	items, ok := answer.([]any)
	if !ok || len(items) != 5 {
		return false, fmt.Errorf("%v is no answer of CL.THROTTLE", answer)
	}
	limited, ok := items[0].(int64)
	if !ok || limited != 0 && limited != 1 {
		return false, errors.New("the first element is neither 0 nor 1")
	}
	return limited == 0, nil
}

// hammerPipes asks in pipelines and transactions by turns, of so many commands, and by several clients by turns.
func hammerPipes(t *testing.T, each, commands int, key string, burst int, clients ...*redis.Client) int64 {
	t.Helper()
	var total atomic.Int64
	hammer(t, each, func(i int) (bool, error) {
		client := clients[i%len(clients)]
		pipe := client.Pipeline()
		if i/len(clients)%2 == 0 {
			pipe = client.TxPipeline()
		}
		for range commands {
			askThrottle(t.Context(), pipe, key, burst, 1, 86400)
		}
		answers, err := pipe.Exec(t.Context())
		for _, answer := range answers {
			command, _ := answer.(*redis.Cmd)
			ok, err := admitted(command.Result())
			if err != nil {
				return false, err
			}
			if ok {
				total.Add(1)
			}
		}
		return false, err
	})
	return total.Load()
}

// A pool of connections under 64 goroutines admits exactly the limit.
func TestGoRedisPool(t *testing.T) {
	s := startInMemory(t)
	protocols(t, func(t *testing.T, protocol int) {
		client := goRedis(t, s, protocol)
		got := hammer(t, 50, func(int) (bool, error) {
			return admitted(askThrottle(t.Context(), client, fmt.Sprint("k", protocol), 999, 1, 86400).Result())
		})
		if got != 1000 {
			t.Errorf("%d of 3200 were admitted; the limit is 1000", got)
		}
		if got := hammerPipes(t, 5, 10, fmt.Sprint("pipe", protocol), 999, client); got != 1000 {
			t.Errorf("%d of 3200 in pipelines were admitted; the limit is 1000", got)
		}
	})
}

// A service that is told to stop answers what it was asked, and ends; a client that goes on hears an error.
func TestStop(t *testing.T) {
	s := startInMemory(t)
	client := goRedis(t, s, 3, func(o *redis.Options) { o.MaxRetries = -1 })
	idle := goRedis(t, s, 2)
	must.Do(t, idle.Ping(t.Context()).Err())
	var asked atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for {
			_, err := askThrottle(t.Context(), client, "k", 999, 1, 86400).Result()
			if err != nil {
				ended <- err
				return
			}
			asked.Add(1)
		}
	}()
	until(t, "it was asked", func() bool { return asked.Load() > 100 })
	if err := s.Stop(); err != nil {
		t.Errorf("the service ended with %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the client goes on")
	}
}

// A client with a password, where the service has no tokens, is let in, as the default user of Redis is.
func TestTokenThatIsNotNeeded(t *testing.T) {
	s := startInMemory(t)
	protocols(t, func(t *testing.T, protocol int) {
		client := goRedis(t, s, protocol, func(o *redis.Options) { o.Password, o.MaxRetries = token, -1 })
		must.Do(t, client.Ping(t.Context()).Err())
	})
}

// A client may send as much as it likes before it reads, as redis-py and go-redis do with a pipeline.
func TestLongPipeline(t *testing.T) {
	t.Parallel()
	const commands = 200_000
	w := dial(t, startInMemory(t))
	must.Do(t, w.conn.SetDeadline(time.Now().Add(patience)))
	w.send(strings.Repeat(testredis.Command("CL.THROTTLE", "a-key-of-a-client", "999999", "100", "1"), commands))
	for i := range commands {
		if got := w.reply(); !strings.HasPrefix(got, "[0 1000000 ") {
			t.Fatalf("reply %d is %s", i, got)
		}
	}
}

// A transaction of 2,000 commands is no large one. In redis-py each pipeline is a transaction unless it says otherwise.
func TestLongTransaction(t *testing.T) {
	client := goRedis(t, startInMemory(t), 3)
	pipe := client.TxPipeline()
	for range 2000 {
		askThrottle(t.Context(), pipe, "a-key-of-a-client", 999, 1, 3600)
	}
	must.Get(pipe.Exec(t.Context()))(t)
}

// A command that is too long is answered with an error, which says what is allowed. The client can read it, always, though
// it has sent more than the service has read.
func TestLongCommands(t *testing.T) {
	s := startInMemory(t)
	for _, n := range []int{1, 100, 500, 1000, 1100, 5000, 20_000} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint("key-of-client-", i)
		}
		unread, why := 0, error(nil)
		const rounds = 20
		for range rounds {
			client := goRedis(t, s, 3, func(o *redis.Options) { o.MaxRetries = -1 })
			if _, err := client.Del(t.Context(), keys...).Result(); err != nil && !strings.Contains(err.Error(), "allowed: ") {
				unread++
				why = err
			}
		}
		if unread > 0 {
			t.Errorf("%d of %d times the answer to DEL of %d keys was not read: %v", unread, rounds, n, why)
		}
	}
}
