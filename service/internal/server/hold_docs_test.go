package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// The commands of docs/holds-service.md reserve and commit by the page's policy and rules.
func TestHoldsDocs(t *testing.T) {
	text := must.Get(os.ReadFile("../../../docs/holds-service.md"))(t)
	path := t.TempDir() + "/stint.yaml"
	var yaml []byte
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		yaml = append(yaml, block[1]...)
	}
	must.Do(t, os.WriteFile(path, yaml, 0o600))
	loaded := must.Get(config.Load(config.Sources{File: path}))(t)
	f := newFixture(t, func(c *server.Config) { c.Policies, c.Rules = loaded.Policies, compile(t, loaded.Rules) })
	var held api.ReserveResponse
	commands := regexp.MustCompile(`curl -s localhost:8080(\S+) -d '(.*)'`).FindAllStringSubmatch(string(text), -1)
	for _, c := range commands {
		path, body := c[1], c[2]
		if path == apipath.Reserve {
			if f.post(path, body).is(http.StatusOK).into(&held); !held.Allowed {
				t.Errorf("%s: %+v", c[0], held)
			}
			continue
		}
		var commit api.HoldRequest
		must.Do(t, json.Unmarshal([]byte(body), &commit))
		if commit.TTL != "2m" || commit.ExpiresAt == 0 {
			t.Errorf("%s: a late commit of a lost hold would not be charged", c[0])
		}
		var end api.HoldEndResponse
		if f.post(path, body).is(http.StatusOK).into(&end); end.Applied != -380 || end.ID != held.ID {
			t.Errorf("%s: %+v", c[0], end)
		}
	}
	if len(commands) != 4 || !strings.Contains(commands[3][2], `"rules"`) {
		t.Errorf("%d commands", len(commands))
	}
}

// The command of docs/reference/rules.md settles a loan by the rules of docs/organisations.md.
func TestSettleDocs(t *testing.T) {
	read := func(page, pattern string) []string {
		t.Helper()
		text := must.Get(os.ReadFile("../../../docs/" + page))(t)
		found := regexp.MustCompile(pattern).FindStringSubmatch(string(text))
		if found == nil {
			t.Fatalf("%s has no %s", page, pattern)
		}
		return found
	}
	set, _, err := rulefile.ParseSet("rules.yaml", []byte(read("organisations.md", "(?s)```yaml\n(rules:.*?)```")[1]), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(c *server.Config) { c.Rules = set })
	command := read("reference/rules.md", `(?s)curl http://127.0.0.1:8080(/\S+/settle) -d '(.*?)'`)
	for _, step := range []struct{ body, says string }{
		{strings.Replace(command[2], "-120", "500", 1), `"applied":500`},
		{command[2], `"remaining":120,`}, // beside the 500 of the floors
	} {
		if got := f.post(command[1], step.body); got.status != 200 || !strings.Contains(got.body, step.says) {
			t.Errorf("%s: %d %s, want %s", step.body, got.status, got.body, step.says)
		}
	}
}

// A client may have 1,000 holds where nothing else is configured.
func TestMostHoldsByDefault(t *testing.T) {
	f := newFixture(t, func(c *server.Config) { c.Policies["many"] = []stint.Limit{stint.Concurrency(5000)} })
	for i := range bounds.DefaultMaxHolds {
		f.post(apipath.Reserve, fmt.Sprintf(`{"id":"%d","key":"k","policy":"many"}`, i)).is(http.StatusOK)
	}
	f.post(apipath.Reserve, `{"id":"one-more","key":"k","policy":"many"}`).is(http.StatusTooManyRequests)
}
