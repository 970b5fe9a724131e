package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// The commands of docs/holds-service.md reserve and commit by the page's policy and rules.
func TestHoldsDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/holds-service.md")
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/stint.yaml"
	var yaml []byte
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		yaml = append(yaml, block[1]...)
	}
	if err := os.WriteFile(file, yaml, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(c *server.Config) { c.Policies, c.Rules = loaded.Policies, compile(t, loaded.Rules) })
	var held api.ReserveResponse
	commands := regexp.MustCompile(`curl -s localhost:8080(\S+) -d '(.*)'`).FindAllStringSubmatch(string(text), -1)
	for _, c := range commands {
		path, body := c[1], c[2]
		if path == api.PathReserve {
			if held, _ = f.hold(path, body, http.StatusOK); !held.Allowed {
				t.Errorf("%s: %+v", c[0], held)
			}
			continue
		}
		var commit api.HoldRequest
		if err := json.Unmarshal([]byte(body), &commit); err != nil {
			t.Fatal(err)
		}
		if commit.TTL != "2m" || commit.ExpiresAt == 0 {
			t.Errorf("%s: a late commit of a lost hold would not be charged", c[0])
		}
		if _, end := f.hold(path, body, http.StatusOK); end.Applied != -380 || end.ID != held.ID {
			t.Errorf("%s: %+v", c[0], end)
		}
	}
	if len(commands) != 4 || !strings.Contains(commands[3][2], `"rules"`) {
		t.Errorf("%d commands", len(commands))
	}
}
