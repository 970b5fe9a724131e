package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// A server starts with docs/redis.conf, has each of its settings, gives stint nothing to warn about, and knows after
// a restart what a client has used.
func TestRedisConf(t *testing.T) {
	path, err := filepath.Abs("docs/redis.conf")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	server := testredis.Start(t, testredis.Config("include", path))
	settings := 0
	for line := range strings.Lines(string(text)) {
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

	store, err := rueidis.OpenBare(rueidis.Connection{URL: server.URL()}, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if advice := store.Advise(t.Context()); len(advice) != 0 {
		t.Errorf("stint warns of %q", advice)
	}
	limiter, err := stint.New(store, "api", stint.FixedWindow(10, 365*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if decision, err := limiter.AllowN(t.Context(), "ann", 7); err != nil || !decision.Allowed {
		t.Fatal(decision, err)
	}
	server.Restart(t)
	var decision stint.Decision
	for end := time.Now().Add(10 * time.Second); ; {
		if decision, err = limiter.Peek(t.Context(), "ann"); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil || decision.Remaining != 3 {
		t.Errorf("after a restart: %v, %v; want 3 of 10 left", decision, err)
	}
}
