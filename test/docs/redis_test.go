package docs_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// A server starts with docs/redis.conf, has each of its settings, gives stint nothing to warn about, and knows after
// a restart what a client has used.
func TestRedisConf(t *testing.T) {
	path := must.Get(filepath.Abs("docs/redis.conf"))(t)
	server := testredis.Start(t, testredis.Config("include", path))
	settings := 0
	for line := range strings.Lines(read(t, "docs/redis.conf")["docs/redis.conf"]) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		settings++
		want := strings.NewReplacer(`""`, "", "2gb", "2147483648", "64mb", "67108864").Replace(value)
		got, err := server.Do("CONFIG", "GET", name)
		if pair, ok := got.([]any); err != nil || !ok || len(pair) != 2 || pair[1] != want {
			t.Errorf("%s is %v, %v; the file says %q", name, got, err, value)
		}
	}
	if settings < 10 {
		t.Errorf("only %d settings were found", settings)
	}

	store := bareStore(t, server.URL(), redisstore.Options{})
	if advice := store.Advise(t.Context()); len(advice) != 0 {
		t.Errorf("stint warns of %q", advice)
	}
	limiter := must.Get(stint.New(store, "api", stint.FixedWindow(10, 365*24*time.Hour)))(t)
	if decision, err := limiter.AllowN(t.Context(), "ann", 7); err != nil || !decision.Allowed {
		t.Fatal(decision, err)
	}
	server.Restart(t)
	within(t, "after a restart 3 of 10 are left", func() bool {
		decision, err := limiter.Peek(t.Context(), "ann")
		if err == nil && decision.Remaining != 3 {
			t.Fatalf("after a restart: %v; want 3 of 10 left", decision)
		}
		return err == nil
	})
}

// In a cluster with docs/redis.conf that loses a primary, and has no replica of it, all other clients are decided as
// before: also when the nodes have noticed.
func TestRedisConfOfACluster(t *testing.T) {
	path := must.Get(filepath.Abs("docs/redis.conf"))(t)
	cluster := testredis.StartCluster(t, 3, testredis.Config("include", path))
	store := bareStore(t, cluster.URL(), redisstore.Options{})
	if advice := store.Advise(t.Context()); len(advice) != 0 {
		t.Errorf("stint warns of %q", advice)
	}
	const limit = 1_000_000
	limiter := must.Get(stint.New(store, "api", stint.FixedWindow(limit, 365*24*time.Hour)))(t)
	admitted := map[string]int64{}
	// round has each client ask, and returns those that nobody decides.
	round := func() (lost []string) {
		for i := range 64 {
			client := fmt.Sprint("client ", i)
			d, err := limiter.Allow(t.Context(), client)
			switch {
			case errors.Is(err, stint.ErrUnavailable):
				lost = append(lost, client)
				continue
			case err != nil || !d.Allowed:
				t.Fatalf("%s: %+v, %v", client, d, err)
			}
			if admitted[client]++; d.Remaining != limit-admitted[client] {
				t.Errorf("%s has %d left after %d", client, d.Remaining, admitted[client])
			}
		}
		return lost
	}
	if lost := round(); lost != nil {
		t.Fatalf("nobody decides %q", lost)
	}
	must.Do(t, cluster.Nodes[0].Kill())
	first := round()
	if len(first) == 0 || len(first) == 64 {
		t.Fatalf("of 64 clients on three primaries, of which one is gone, nobody decides %q", first)
	}
	for noticed, after := false, 0; after < 20; {
		if lost := round(); !slices.Equal(lost, first) {
			t.Fatalf("noticed %v: nobody decides %q; just after the primary was killed it was %q", noticed, lost, first)
		}
		if noticed = noticed || failed(t, cluster.Nodes[1]) && failed(t, cluster.Nodes[2]); noticed {
			after++
		}
	}
	cluster.Nodes[0].Restart(t)
	within(t, "its clients are decided again", func() bool { // its file may lack the last second
		_, err := limiter.Allow(t.Context(), first[0])
		return err == nil
	})
}

// failed reports whether a node has noticed that another one is gone.
func failed(t *testing.T, node *testredis.Server) bool {
	t.Helper()
	nodes := must.Get(node.Do("CLUSTER", "NODES"))(t)
	return strings.Contains(fmt.Sprint(nodes), "master,fail ")
}

// rights are what the page lets a user do, by the user's name.
func rights(t *testing.T, user string) []string {
	t.Helper()
	_, line, found := strings.Cut(pages(t)["docs/redis.md"], "ACL SETUSER "+user+" on >PASSWORD ")
	line, _, ended := strings.Cut(line, "\n")
	if !found || !ended {
		t.Fatalf("the page has no rights of %s", user)
	}
	return strings.Fields(line)
}

// The smaller line of rights does for one server, packed logs and rules in a file: Redis refuses nothing that the service
// asks. All of it stands in the larger line, too.
func TestFewerRights(t *testing.T) {
	all, fewer := rights(t, "limiter"), rights(t, "limiter-small")
	for _, right := range fewer {
		if !slices.Contains(all, right) {
			t.Errorf("%s is not in the line of all rights", right)
		}
	}
	// Nothing is given that nothing asks for: neither a script of ours nor what connections do by themselves.
	code := read(t, "redisstore/internal/wire/*.lua", "service/internal/activity/*.lua", "service/internal/rulestore/redis/*.lua",
		"redisstore/*.go", "redisstore/rueidis/*.go")
	maps.DeleteFunc(code, func(name, _ string) bool { return strings.HasSuffix(name, "_test.go") })
	asked := strings.Join(slices.Collect(maps.Values(code)), "\n")
	connects := []string{"+select", "+asking", "+eval", "+evalsha", "+cluster|slots", "+cluster|shards"}
	for _, right := range all {
		command, isCommand := strings.CutPrefix(right, "+")
		quoted := `(?i)['"]` + regexp.QuoteMeta(strings.ReplaceAll(command, "|", `", "`)) + `['"]`
		if isCommand && !slices.Contains(connects, right) && !regexp.MustCompile(quoted).MatchString(asked) {
			t.Errorf("nothing asks for %s, which the page gives", right)
		}
	}
	// What scripts call after a long time, or of long logs, as well.
	scripts := read(t, "redisstore/internal/wire/*.lua", "service/internal/activity/share.lua")
	if len(scripts) < 11 {
		t.Fatalf("only %d scripts were found", len(scripts))
	}
	for script, text := range scripts {
		for function := range strings.SplitSeq(text, "\nfunction ") {
			if strings.HasPrefix(function, "zset.") || strings.HasPrefix(function, "stream.") {
				continue
			}
			for _, call := range groups(`redis\.call\('([A-Z]+)'`, function) {
				if right := "+" + strings.ToLower(call); !slices.Contains(fewer, right) {
					t.Errorf("%s needs %s, which the page does not give", script, right)
				}
			}
		}
	}
	redis := testredis.Start(t, testredis.User("limiter-small", append([]string{">s3cret"}, fewer...)...))
	s := serve(t, `
rules_from: rules.yaml
policies:
  all:
    - {algorithm: token_bucket, capacity: 10, refill: 1/1h}
    - {algorithm: leaky_bucket, capacity: 10, leak: 1/1h}
    - {algorithm: fixed_window, limit: 10, window: 1h}
    - {algorithm: sliding_window_log, limit: 10, window: 1h}
    - {algorithm: sliding_window_counter, limit: 10, window: 1h}
  running: [{algorithm: concurrency, capacity: 10}]
`, map[string]string{"rules.yaml": "rules: [{id: api, scope: per_ip, limits: [{algorithm: sliding_window_log, limit: 2, window: 1h}]}]\n"},
		"--store", strings.Replace(redis.URL(), "redis://", "redis://limiter-small:s3cret@", 1), "--store-timeout", "10s", "--on-store-failure", "closed")
	const ask = "curl -s localhost:8080/api/v1/rate-limit/"
	for _, step := range []struct{ command, answer string }{
		{ask + "'check?key=ann&policy=all&permits=4'", `{"allowed":true,…"remaining":6,…`},
		{ask + "'check?key=ann&policy=all&permits=7'", `{"allowed":false,…`},
		{ask + "'remaining?key=ann&policy=all'", `{…"remaining":6,…`},
		{ask + "'check?key=ben&algorithm=SLIDING_WINDOW_LOG&permits=50'", `{"allowed":true,…"remaining":50,…`},
		{ask + `settle -d '{"key": "ben", "algorithm": "SLIDING_WINDOW_LOG", "permits": -10}'`, `{…"remaining":60,…`},
		{ask + `reserve -d '{"id": "a", "key": "ann", "policy": "running", "permits": 1, "ttl": "1m"}'`, `{…"allowed":true,…`},
		{ask + `commit -d '{"id": "a", "key": "ann", "policy": "running", "permits": 1}'`, `{…`},
		{ask + `reserve -d '{"id": "b", "key": "ann", "policy": "running", "permits": 1, "ttl": "1m"}'`, `{…"allowed":true,…`},
		{ask + `cancel -d '{"id": "b", "key": "ann", "policy": "running"}'`, `{…`},
		{ask + `evaluate -d '{"path": "/", "ip": "192.0.2.1"}'`, `{"allowed":true,…"rule":"api",…`},
		{"curl -s -X DELETE 'localhost:8080/api/v1/rate-limit/reset?key=ann&policy=all'", `{…"reset":true}`},
		{ask + "'remaining?key=ann&policy=all'", `{…"remaining":10,…`},
		{`curl -s localhost:8079/api/v1/reset -H 'Content-Type: application/json' -d '{"all": true}'`, `{…"state":"done",…`},
	} {
		s.expect(t, step.command, step.answer)
	}
	within(t, "the traffic is shared", func() bool {
		return must.Get(redis.Do("EXISTS", "rate_limiter:activity"))(t) == int64(1)
	})
	if refused, err := redis.Do("ACL", "LOG"); err != nil || len(refused.([]any)) > 0 {
		t.Errorf("Redis refused %v, %v", refused, err)
	}
}

// The service decides by a Redis with TLS that asks for a certificate, by the configuration that the page shows.
func TestRedisTLS(t *testing.T) {
	authority := testredis.NewAuthority(t)
	redis := testredis.Start(t, testredis.TLS(authority))
	var shown string
	for _, block := range blocks(t, "docs/redis.md", "yaml") {
		if strings.Contains(block, "server_name") {
			shown = block
		}
	}
	configuration := strings.NewReplacer("redis.example.com:6379", redis.Addr(), "server_name: redis.example.com", "server_name: server",
		"/etc/stint/ca.pem", authority.CAFile, "/etc/stint/client.pem", authority.CertFile, "/etc/stint/client.key", authority.KeyFile).Replace(shown)
	if shown == "" || strings.Contains(configuration, "example.com") || strings.Contains(configuration, "/etc/stint") {
		t.Fatalf("the page shows %q", shown)
	}
	s := serve(t, configuration, nil, "--store-timeout", "10s", "--on-store-failure", "closed")
	s.expect(t, "curl -s 'localhost:8080/api/v1/rate-limit/check?key=ann'", `{"allowed":true,…"source":"store"}`)
}
