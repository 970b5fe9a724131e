package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/mongo"
	"github.com/stint-go/stint/service/internal/rulestore/redis"
	"github.com/stint-go/stint/service/internal/testmongo"
)

// editor opens the rules in a Redis as another process would.
func editor(t *testing.T, url string) *rulestore.Manager {
	t.Helper()
	conn := must.Get(rueidis.Dial(rueidis.Config{URL: url}))(t)
	opened := must.Get(redis.New(conn, redis.Options{}))(t)
	t.Cleanup(opened.Close)
	return manage(t, opened)
}

func manage(t *testing.T, opened rulestore.Store) *rulestore.Manager {
	t.Helper()
	return must.Get(rulestore.NewManager(opened, rulestore.Options{}))(t)
}

// putLogin edits the login rule.
func putLogin(t *testing.T, r *rulestore.Manager, limit int64) {
	t.Helper()
	rule := rules.Rule{
		ID: "login", Match: rules.Match{Paths: []string{"/login"}}, Scope: []string{rules.PerIP},
		Limits: []stint.Limit{stint.CalendarWindow(limit, stint.CalendarYear, "")},
	}
	must.Get(r.Edit(t.Context(), rulestore.Author{}, func(d *rulestore.Draft) error {
		d.Put(rule)
		return nil
	}))(t)
}

// Processes on one Redis have the rules that are kept in it, and each edit of them.
func TestServeSharedRules(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	shared := editor(t, server.URL())
	putLogin(t, shared, 2)
	one, _ := start(t, "--store", server.URL())
	other, log := start(t, "--store", server.URL())
	decides(t, one, "login", http.StatusOK)
	decides(t, other, "login", http.StatusOK)
	decides(t, one, "login", http.StatusTooManyRequests)
	putLogin(t, shared, 3)
	awaitLog(t, log, "changed=[login]")
	decides(t, other, "login", http.StatusOK, http.StatusTooManyRequests)
	explain := []string{"rules", "explain", "--store", server.URL(), "--path", "/login", "--ip", "192.0.2.1"}
	says(t, nil, exitDenied, "rule login decides", explain...)
}

// A process that may not subscribe has the edits of others nonetheless, and says once that they take
// longer.
func TestServeDeaf(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, testredis.User("deaf", ">s3cret", "~*", "&*", "+@all", "-subscribe"))
	shared := editor(t, server.URL())
	putLogin(t, shared, 1)
	url := strings.Replace(server.URL(), "redis://", "redis://deaf:s3cret@", 1)
	service, log := start(t, "--rules-from", url)
	awaitLog(t, log, "no notifications of edited rules")
	putLogin(t, shared, 2)
	awaitLog(t, log, "changed=[login]")
	decides(t, service, "login", http.StatusOK)
	if text := log.String(); strings.Count(text, "no notifications of edited rules") != 1 || !strings.Contains(text, "NOPERM") || strings.Contains(text, "s3cret") {
		t.Error(text)
	}
}

// Rules in a MongoDB decide by states that are elsewhere.
func TestServeRulesInMongo(t *testing.T) {
	t.Parallel()
	url := testmongo.Start(t).URL("stint")
	opened := must.Get(mongo.New(url))(t)
	t.Cleanup(opened.Close)
	shared := manage(t, opened)
	putLogin(t, shared, 1)
	service, log := start(t, "--rules-from", url)
	decides(t, service, "login", http.StatusOK, http.StatusTooManyRequests)
	putLogin(t, shared, 2)
	awaitLog(t, log, "changed=[login]")
	decides(t, service, "login", http.StatusOK)
}

// A process that starts while its rules are unreachable has none until they can be read, and says so: it is not
// ready, and requests get what is asked for while a store is unreachable.
func TestServeWithoutItsRules(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	putLogin(t, editor(t, server.URL()), 1)
	must.Do(t, server.Stop())
	open, log := start(t, "--store", server.URL())
	closed, _ := start(t, "--store", server.URL(), "--on-store-failure", "closed")
	local, _ := start(t, "--store", server.URL(), "--on-store-failure", "local")
	for url, want := range map[string]int{open: http.StatusOK, closed: http.StatusServiceUnavailable, local: http.StatusServiceUnavailable} {
		decides(t, url, "", want)
		if status, body := get(t, url+apipath.Readiness); status != http.StatusServiceUnavailable || !strings.Contains(body, `"rules":{"status":"DOWN"`) {
			t.Errorf("readiness: %d %s", status, body)
		}
	}
	awaitLog(t, log, "no rules are in force yet")
	if text := log.String(); !strings.Contains(text, "the rules could not be read yet") || strings.Contains(text, "stay in force") || strings.Contains(text, "rules are refused") {
		t.Errorf("the log:\n%s", text)
	}
	current(t, open, "0")
	says(t, nil, exitUnreachable, "the rules of redis://", "rules", "explain", "--store", server.URL())
	server.Restart(t)
	putLogin(t, editor(t, server.URL()), 1)
	for _, url := range []string{open, closed, local} {
		eventually(t, "the rules are there", func() bool {
			_, matched := evaluated(t, url, `{"path":"/login","ip":"192.0.2.9"}`)
			return len(matched) == 1
		})
		current(t, url, "1")
		eventually(t, "it is ready", func() bool { // the states' connection is found again by itself
			status, _ := get(t, url+apipath.Readiness)
			return status == http.StatusOK
		})
	}
}

// A process that starts while its rules are unreachable begins with those of rules_cache, and restores nothing by them.
func TestServeFromRulesCache(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "rules.json")
	server := testredis.Start(t)
	putLogin(t, editor(t, server.URL()), 1)
	first, _ := start(t, "--rules-from", server.URL(), "--rules-cache", cache)
	current(t, first, "1")
	about, err := os.Stat(cache)
	if err != nil || about.Mode().Perm() != 0o600 {
		t.Fatalf("the cache: %v, %v", about, err)
	}
	putLogin(t, editor(t, server.URL()), 2)
	eventually(t, "the edit is kept", func() bool {
		text, err := os.ReadFile(cache)
		return err == nil && strings.Contains(string(text), `"limit":2`)
	})
	must.Do(t, server.Stop())
	url, log := start(t, "--rules-from", server.URL(), "--rules-cache", cache, "--on-store-failure", "closed")
	decides(t, url, "login", http.StatusOK, http.StatusOK, http.StatusTooManyRequests)
	if status, body := get(t, url+apipath.Readiness); status != http.StatusOK || !strings.Contains(body, "from rules_cache") {
		t.Errorf("readiness: %d %s", status, body)
	}
	current(t, url, "0")
	if !strings.Contains(log.String(), "rules of rules_cache are in force") {
		t.Errorf("the log:\n%s", log)
	}
	server.Restart(t) // without what it held
	eventually(t, "the source's rules are in force", func() bool {
		_, body := get(t, url+apipath.Readiness)
		return strings.Contains(body, `"rules":{"status":"UP"}`)
	})
}

// A wrong password is said as such, with the settings to check.
func TestServeWrongPassword(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, testredis.User("limiter", ">s3cret", "~*", "&*", "+@all"))
	url := strings.Replace(server.URL(), "redis://", "redis://limiter:wrong@", 1)
	_, log := start(t, "--rules-from", url)
	awaitLog(t, log, "wrong user name or password")
	if text := log.String(); !strings.Contains(text, `check="the user and password in rules_from"`) || strings.Contains(text, ":wrong@") {
		t.Errorf("the log:\n%s", text)
	}
}

// current waits until the metric says whether a process has the rules that their source has.
func current(t *testing.T, url, want string) {
	t.Helper()
	eventually(t, "rate_limiter_rules_current "+want, func() bool {
		_, metrics := get(t, url+apipath.Metrics)
		return strings.Contains(metrics, "rate_limiter_rules_current "+want+"\n")
	})
}

// ruleHealth reads what health says of the rules to an operator.
func ruleHealth(t *testing.T, url string, wants ...string) {
	t.Helper()
	status, body := get(t, url+apipath.Readiness+"?details=true")
	for _, want := range wants {
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("health: %d %s, want 200 with %s", status, body, want)
		}
	}
}

// What rules were in force is written back to a server that lost them, which is said.
func TestServeRestoresRules(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	shared := editor(t, server.URL())
	putLogin(t, shared, 1)
	putLogin(t, shared, 2)
	url, log := start(t, "--store", server.URL())
	current(t, url, "1")
	must.Do(t, server.Stop())
	current(t, url, "0")
	ruleHealth(t, url, `"state":"unreachable"`, `"detail":"the rules' source is unreachable; the current rules stay in force"`, `"reason":"`)
	eventually(t, "the log says so", func() bool {
		return strings.Contains(log.String(), `msg="the rules' source is unreachable; the current rules stay in force"`)
	})
	server.Restart(t) // without what it held
	eventually(t, "the rules are back", func() bool {
		now, err := editor(t, server.URL()).Current(context.Background())
		return err == nil && len(now.Rules) == 1 && now.Rules[0].ID == "login"
	})
	awaitLog(t, log, "their history is gone")
	current(t, url, "1")
	awaitLog(t, log, "the rules' source is reachable again")
	if text := log.String(); strings.Contains(text, "rules are refused") || !strings.Contains(text, " restored=2 revision=1 rules=1\n") {
		t.Errorf("the log:\n%s", text)
	}
}
