package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/testredis"
)

// On a cluster a reserve by rules takes of limits that count by user and by tenant, if the rules have partition_by; without
// it the answer says that they are in several partitions.
func TestReserveByRulesOnACluster(t *testing.T) {
	t.Parallel()
	rule := `{id: %s, match: {path: %s}, scope: %s, missing: deny, limits: [{algorithm: %s}]%s}`
	places, tokens, apart := "concurrency, capacity: 1", "fixed_window, limit: 100, window: 1h, cost: {attribute: tokens}", ", partition_by: tenant"
	var list []string
	for _, r := range [][5]any{
		{"places", "/split", "per_user", places, apart},
		{"tokens", "/split", "custom:tenant", tokens, apart},
		{"places-whole", "/whole", "per_user", places, ""},
		{"tokens-whole", "/whole", "custom:tenant", tokens, ""},
	} {
		list = append(list, fmt.Sprintf(rule, r[:]...))
	}
	url, _ := start(t, "--store", testredis.StartCluster(t, 3).URL(), "--store-timeout=1m", "--on-store-failure=closed",
		"--rules-from", writeFile(t, "["+strings.Join(list, ",\n")+"]"))
	ask := func(path, body string) (status int, text string) { return fetch(t, http.MethodPost, url+path, body) }
	whole := 0
	for _, tenant := range []string{"acme", "globex", "initech", "umbrella"} {
		request := func(path, id, more string) string {
			return fmt.Sprintf(`{"id":%q,"path":%q,"attributes":{"userId":"ann","tenant":%q,"tokens":30}%s}`, tenant+id, path, tenant, more)
		}
		eventually(t, "the cluster decides", func() bool {
			status, _ := ask(apipath.Reserve, request("/split", "1", ""))
			return status == http.StatusOK
		})
		if status, text := ask(apipath.Reserve, request("/split", "2", "")); status != http.StatusTooManyRequests || !strings.Contains(text, `"rule":"places"`) {
			t.Errorf("%s, a second place: %d %s", tenant, status, text)
		}
		status, text := ask(apipath.Commit, request("/split", "1", `,"permits":10,"rules":["places","tokens"]`))
		if status != http.StatusOK || !strings.Contains(text, `"applied":-20`) {
			t.Errorf("%s: %d %s", tenant, status, text)
		}
		switch status, text := ask(apipath.Reserve, request("/whole", "3", "")); {
		case status == http.StatusBadRequest && strings.Contains(text, "hash tag"):
		case status == http.StatusOK:
			whole++ // its keys happen to be in one partition
		default:
			t.Errorf("%s without partition_by: %d %s", tenant, status, text)
		}
	}
	if whole == 4 {
		t.Error("no reserve is over several partitions")
	}
}
