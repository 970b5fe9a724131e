package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/dashboard"
	"github.com/stint-go/stint/service/internal/simulate"
)

const accessLog = `192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl"
192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET /b HTTP/1.1" 429 5 "-" "curl"
oops
192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET /c HTTP/1.1" 200 5 "-" "curl"
192.0.2.2 - - [10/Oct/2026:13:55:37 +0000] "POST /c HTTP/1.1" 200 5 "-" "wget"
`

func TestSimulateLog(t *testing.T) {
	log, rules := writeFile(t, accessLog), writeFile(t, `
- {id: all, scope: per_ip, limits: [{algorithm: fixed_window, limit: 2, window: 1m}]}
- {id: wget, scope: per_ip, on_exceed: shadow, match: {headers: {User-Agent: wget}}, limits: [{algorithm: fixed_window, limit: 1, window: 1m}]}
`)
	decisions := filepath.Join(t.TempDir(), "a.jsonl")
	args := []string{"simulate", "--limit", "{algorithm: token_bucket, capacity: 1, refill: 1/1h}", "--candidate", rules, log}
	code, out, stderr := do(t, nil, append(args, "--decisions", decisions)...)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{
		"1 requests of the log were answered with 429", "1 of 5 lines are malformed", `line 3: no " " behind $remote_addr: "oops"`,
		"the times of 4 requests are whole seconds", "up to 3 permits in a second",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if lines := strings.Split(strings.TrimSpace(readFile(t, decisions)), "\n"); len(lines) != 8 ||
		!strings.Contains(lines[3], `"line":2,`) || !strings.Contains(lines[2], `"allowed":false,"reason":"limit","rule":"limit","key":"192.0.2.1"`) {
		t.Errorf("decisions:\n%s", strings.Join(lines, "\n"))
	}
	code, out, stderr = do(t, nil, append(args, "--json")...)
	var report simulate.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitOK {
		t.Fatalf("%v, exit %d: %s", err, code, stderr)
	}
	first, second := report.Candidates[0], report.Candidates[1]
	if first.Total.Admitted != 2 || first.Total.Denied != 2 || second.Total.Denied != 1 || len(second.Rules) != 2 || second.Rules[1].Requests != 1 {
		t.Errorf("%+v\n%+v", first, second)
	}
}

// A rule that counts networks has clients that are networks, of a log, too.
func TestSimulateNetworks(t *testing.T) {
	log, rules := writeFile(t, accessLog), writeFile(t, "- {id: all, scope: {per_ip: {ipv4: 24}}, limits: [{algorithm: fixed_window, limit: 3, window: 1h}]}\n")
	decisions := filepath.Join(t.TempDir(), "a.jsonl")
	if code, _, stderr := do(t, nil, "simulate", "--candidate", rules, log, "--decisions", decisions); code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	lines := readFile(t, decisions)
	if strings.Count(lines, `"key":"192.0.2.0/24"`) != 4 || strings.Count(lines, `"allowed":false`) != 1 {
		t.Errorf("decisions:\n%s", lines)
	}
	if _, out, _ := do(t, nil, "rules", "explain", "--rules", rules, "--ip", "192.0.2.77"); !strings.Contains(out, "192.0.2.0/24") {
		t.Errorf("explained: %s", out)
	}
}

// TestSimulateParts: requests are counted by an attribute, and what the log says is a candidate.
func TestSimulateParts(t *testing.T) {
	table := writeFile(t, "time,ip,team,status\n1000,a,search,200\n1001,a,search,429\n1002,b,<ads>,200\n1003,a,,429\n1004,b,<ads>,503\n")
	decisions := filepath.Join(t.TempDir(), "a.jsonl")
	code, out, stderr := do(t, nil, "simulate", "--limit", "{algorithm: fixed_window, limit: 1, window: 1h}", "--logged", "--by", "team",
		"--decisions", decisions, table)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{
		"window: 1h}, by team: search 1 of 2 (50.00%), <ads> 1 of 2 (50.00%), none 0 of 1 (0.00%)\n",
		"admitted by as logged, by team: search 1 of 2 (50.00%), <ads> 2 of 2 (100.00%), none 0 of 1 (0.00%)\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if lines := readFile(t, decisions); !strings.Contains(lines, `"line":3,"time":1001000000,"candidate":"as logged","allowed":false,"reason":"logged"`) {
		t.Errorf("decisions:\n%s", lines)
	}
}

// TestSimulatePage: the page has the report, a script that draws it, and loads nothing. A program without the dashboard
// refuses it.
func TestSimulatePage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "a.html")
	table := writeFile(t, "time,ip,team\n1000,a,search\n1001,a,<ads>\n1002,a,<ads>\n")
	code, _, stderr := do(t, nil, "simulate", "--limit", "{algorithm: fixed_window, limit: 2, window: 1h}", "--by", "team", "--html", page, table)
	if script, _ := dashboard.Report(); script == "" {
		if code != exitUsage || !strings.Contains(stderr, "--html is given; allowed: in a program with the dashboard") {
			t.Errorf("exit %d: %s", code, stderr)
		}
		return
	}
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	html := readFile(t, page)
	for _, want := range []string{
		"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-", `"notes":["format csv: 3 of 4 lines are requests (75.00%)",`,
		`"by":"team"`, `{"value":"\u003cads\u003e","admitted":1,"denied":1,`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(html, "src=") || strings.Contains(strings.ReplaceAll(html, "url(#hatch)", ""), "url(") || strings.Count(html, "</script>") != 2 {
		t.Error("the page loads something, or its scripts are not two")
	}
}

func TestSimulateFaults(t *testing.T) {
	transcript(t, "simulate.txt", nil, "LOG", writeFile(t, accessLog), "XZ", writeFile(t, "\xfd7zXZ\x00\x00\x04"))
	says(t, nil, exitFailed, "does not begin where its process began", "simulate", "--replay", writeFile(t, "{}\n"))
	says(t, nil, exitFailed, "stint: there are no decisions in the record", "simulate", "--replay", writeFile(t, ""))
}

// TestSimulateHead: the report begins with how the log was read, and says what rules look at in vain.
func TestSimulateHead(t *testing.T) {
	log := writeFile(t, `nginx-1  | 10.0.0.9 [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 "198.51.100.1, 10.0.0.5"
nginx-1  | 10.0.0.9 [10/Oct/2026:13:55:37 +0000] "\\x16\\x03" 400 "198.51.100.2"
nginx-1  | starting
nginx-1  | 192.0.2.1 [10/Oct/2026:13:55:38 +0000] "GET /a HTTP/1.1" 200 "-"
`)
	rules := writeFile(t, `
- {id: users, scope: per_user, missing: skip, limits: [{algorithm: fixed_window, limit: 2, window: 1m}]}
- {id: hosts, scope: per_ip, match: {hosts: [a.example.com]}, limits: [{algorithm: fixed_window, limit: 2, window: 1m}]}
- {id: paths, scope: per_ip, match: {paths: [/b]}, limits: [{algorithm: fixed_window, limit: 2, window: 1m}]}
`)
	args := []string{"simulate", "--candidate", rules, "--format", `nginx:$remote_addr [$time_local] "$request" $status "$http_x_forwarded_for"`}
	code, out, stderr := do(t, nil, append(args, log)...)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{
		`format nginx:$remote_addr [$time_local] "$request" $status "$http_x_forwarded_for" behind compose: 3 of 4 lines are requests (75.00%)` + "\n",
		"1 of 4 lines are malformed and left out. The first: line 3: ", "clients such as 10.0.0.9, 192.0.2.1\n",
		"2 requests name hops before the client", "3 requests in 2s, from 2026-10-10T13:55:36", "1 requests have no method and path", "line 2: ",
		"look at what none of the log's 3 requests has, so that none met them by it: hosts (host), users (user).", "No request met these rules",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	code, out, _ = do(t, nil, append(args, "--trusted-proxies", "10.0.0.0/8", log)...)
	if code != exitOK || !strings.Contains(out, "clients such as 198.51.100.1, 198.51.100.2, 192.0.2.1\n") || strings.Contains(out, "hops") {
		t.Errorf("exit %d: %s", code, out)
	}
	config := writeFile(t, "trusted_proxies: [10.0.0.0/8]\n")
	if code, out, stderr = do(t, nil, append(args, "--config", config, log)...); code != exitOK || !strings.Contains(out, "such as 198.51.100.1,") {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	code, _, stderr = do(t, nil, append(args, "--strict", log)...)
	if code != exitFailed || !strings.Contains(stderr, "--strict: line 3: no ") || !strings.Contains(stderr, `"nginx-1  | starting"`) {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestExplainFormat prints lines as they are read, and with what is wrong with those that are not.
func TestExplainFormat(t *testing.T) {
	log := writeFile(t, accessLog+strings.Repeat(`192.0.2.3 - ann [10/Oct/2026:13:55:38 +0000] "GET /\x1b[31m HTTP/1.1" 200 5 "-" "curl"`+"\n", 20))
	code, out, stderr := do(t, nil, "simulate", "--explain-format", log)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 12 || lines[0] != "format: combined" || !strings.HasPrefix(lines[1], "LINE ") ||
		strings.Join(strings.Fields(lines[3]), " ") != "2 2026-10-10T13:55:36.000000Z 192.0.2.1 - GET - /b 429" ||
		!strings.HasSuffix(lines[4], ` -       not read: no " " behind $remote_addr: "oops"`) || !strings.Contains(lines[11], `ann`) || strings.Contains(out, "\x1b") {
		t.Errorf("%s", out)
	}
	for _, args := range [][]string{{"--explain-format", writeFile(t, "oops\n")}, {"--explain-format", log + ".not"}} {
		if code, _, stderr := do(t, nil, append([]string{"simulate"}, args...)...); code != exitFailed {
			t.Errorf("%q: exit %d: %s", args, code, stderr)
		}
	}
}

// TestSimulateHolds: a table with holds is decided by a concurrency limit and a rate together, and every report has the
// most that was held at once. --limit takes the cost of each limit.
func TestSimulateHolds(t *testing.T) {
	table := writeFile(t, "time,key,cost,hold,actual\n1000.0,a,60,10s,20\n1001.0,a,60,10,\n1010.0,a,60,1s,0\n1010.5,a,20,1s,\n1010.6,a,20,1s,\n")
	decisions := filepath.Join(t.TempDir(), "a.jsonl")
	args := []string{"simulate", "--limit", "[{algorithm: concurrency, capacity: 2, cost: 1}, {algorithm: sliding_window_counter, limit: 100, window: 1h}]", table}
	code, out, stderr := do(t, nil, append(args, "--decisions", decisions)...)
	if code != exitOK || stderr != "" || !strings.Contains(out, "at once") {
		t.Fatalf("exit %d: %s\n%s", code, stderr, out)
	}
	var allowed []string
	for line := range strings.Lines(readFile(t, decisions)) {
		var verdict struct {
			Allowed   bool
			Remaining int64
		}
		must.Do(t, json.Unmarshal([]byte(line), &verdict))
		allowed = append(allowed, fmt.Sprint(verdict.Allowed, verdict.Remaining))
	}
	// 60 are held; 60 more do not fit; 20 were used and 60 are held; 20 more, in the second place; none is left.
	if want := []string{"true 1", "false 40", "true 1", "true 0", "false 0"}; !slices.Equal(allowed, want) {
		t.Errorf("decisions %q, want %q", allowed, want)
	}
	code, out, stderr = do(t, nil, append(args, "--json")...)
	var report simulate.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitOK {
		t.Fatalf("%v, exit %d: %s", err, code, stderr)
	}
	for _, limit := range report.Candidates[0].Rules[0].Limits {
		switch limit.Limit {
		case "concurrency 2":
			if limit.Span != 0 || limit.ClientPeak != 2 {
				t.Errorf("%+v", limit)
			}
		default:
			if limit.ClientPeak != 100 {
				t.Errorf("%+v", limit)
			}
		}
	}
}

// TestSuggestNothing: of a rule without clients nothing is suggested.
func TestSuggestNothing(t *testing.T) {
	users := writeFile(t, "- {id: u, scope: per_user, missing: skip, limits: [{algorithm: fixed_window, limit: 5, window: 1m}]}\n")
	code, out, _ := do(t, nil, "simulate", "--candidate", users, "--suggest", "90%", writeFile(t, "time,ip\n1,10.0.0.1\n2,10.0.0.1\n"))
	if code != exitOK || !strings.Contains(out, "no request has a client of this rule") {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestSimulateSuggest(t *testing.T) {
	code, out, stderr := do(t, nil, "simulate", "--pattern", "poisson", "--length", "4m", "--limit", "{algorithm: sliding_window_log, limit: 5, window: 1m}", "--suggest", "95%")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, want := range []string{"limit: sliding_window_log ", "clients (95.", "with one less it is ", "tested on the last: there, ", "share never denied  "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
