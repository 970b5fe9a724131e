package main

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

// The commands of docs/migrate/envoy-ratelimit.md do what the page says: its file is valid, in shadow everything is admitted
// and counted, and after that, on the same Redis, the limit is in force with what was counted.
func TestRateLimitGuide(t *testing.T) {
	t.Parallel()
	guide := readFile(t, "../../../docs/migrate/envoy-ratelimit.md")
	find := func(pattern string) string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(guide)
		if found == nil {
			t.Fatalf("the page has no %s", pattern)
		}
		return found[1]
	}
	root := t.TempDir()
	file := filepath.Join(root, find("this file at `(.*?)`"))
	put(t, file, strings.Replace(find("(?s)```yaml\n(domain:.*?)```"), "minute", "year", 1))

	folder := filepath.Join(root, find(`stint rules validate (\S+)\n`))
	says(t, nil, exitOK, "1 domain", "rules", "validate", folder)
	variables := map[string]string{}
	for _, each := range strings.Fields(find(`\nexport (.*)\n`)) {
		name, text, _ := strings.Cut(each, "=")
		variables[name] = text
	}
	variables["RUNTIME_ROOT"] = filepath.Join(root, variables["RUNTIME_ROOT"])
	variables["REDIS_URL"] = testredis.Start(t).Addr()
	body := find(`/json -d '(.*)'`)
	expected := find(`grep -E '(.*)'`)

	shadow, _, _ := strings.Cut(find(`\n(SHADOW_MODE=\w+) stint ratelimit`), " ")
	name, text, _ := strings.Cut(shadow, "=")
	variables[name] = text
	d := drop(t, variables)
	for i := range 6 {
		if status, text := postJSON(t, d.http, body); status != http.StatusOK {
			t.Errorf("request %d in shadow: %d %s", i, status, text)
		}
	}
	eventually(t, "the sixth request is counted as one that would be denied", func() bool {
		_, text := get(t, d.metrics+"/metrics")
		var lines []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") && regexp.MustCompile(expected).MatchString(line) {
				lines = append(lines, line)
			}
		}
		shown := strings.Join(lines, "")
		return strings.Contains(shown, `ratelimit_service_rate_limit_over_limit{domain="web",key1="remote_address",key2=""} 1`+"\n") &&
			strings.Contains(shown, "ratelimit_service_global_shadow_mode 1\n")
	})
	d.stop()

	delete(variables, name)
	d = drop(t, variables)
	if status, text := postJSON(t, d.http, body); status != http.StatusTooManyRequests {
		t.Errorf("a request after the shadow: %d %s", status, text)
	}
}
