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

// simulated returns the lines that a simulation writes for its decisions.
func simulated(t *testing.T, args ...string) (decisions []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	code, _, stderr := do(t, nil, slices.Concat([]string{"simulate", "--decisions", path}, args)...)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	return strings.Split(strings.TrimSpace(readFile(t, path)), "\n")
}

// What is reported is in testdata/simulate.txt.
func TestSimulateLog(t *testing.T) {
	log, rules := writeFile(t, accessLog), writeFile(t, `
- {id: all, scope: per_ip, limits: [{algorithm: fixed_window, limit: 2, window: 1m}]}
- {id: wget, scope: per_ip, on_exceed: shadow, match: {headers: {User-Agent: wget}}, limits: [{algorithm: fixed_window, limit: 1, window: 1m}]}
`)
	args := []string{"--limit", "{algorithm: token_bucket, capacity: 1, refill: 1/1h}", "--candidate", rules, log}
	if lines := simulated(t, args...); len(lines) != 8 ||
		!strings.Contains(lines[3], `"line":2,`) || !strings.Contains(lines[2], `"allowed":false,"reason":"limit","rule":"limit","key":"192.0.2.1"`) {
		t.Errorf("decisions:\n%s", strings.Join(lines, "\n"))
	}
	report := simulatedReport(t, args...)
	first, second := report.Candidates[0], report.Candidates[1]
	if first.Total.Admitted != 2 || first.Total.Denied != 2 || second.Total.Denied != 1 || len(second.Rules) != 2 || second.Rules[1].Requests != 1 {
		t.Errorf("%+v\n%+v", first, second)
	}
}

// simulatedReport is the report of a simulation.
func simulatedReport(t *testing.T, args ...string) (report simulate.Report) {
	t.Helper()
	said := says(t, nil, exitOK, "", slices.Concat([]string{"simulate", "--json"}, args)...)
	must.Do(t, json.Unmarshal([]byte(said), &report))
	return report
}

// A rule that counts networks has clients that are networks, of a log, too.
func TestSimulateNetworks(t *testing.T) {
	log, rules := writeFile(t, accessLog), writeFile(t, "- {id: all, scope: {per_ip: {ipv4: 24}}, limits: [{algorithm: fixed_window, limit: 3, window: 1h}]}\n")
	lines := strings.Join(simulated(t, "--candidate", rules, log), "\n")
	if strings.Count(lines, `"key":"192.0.2.0/24"`) != 4 || strings.Count(lines, `"allowed":false`) != 1 {
		t.Errorf("decisions:\n%s", lines)
	}
	says(t, nil, exitOK, "192.0.2.0/24", "rules", "explain", "--rules", rules, "--ip", "192.0.2.77")
}

// TestSimulateParts: requests are counted by an attribute, and what the log says is a candidate.
func TestSimulateParts(t *testing.T) {
	table := writeFile(t, "time,ip,team,status\n1000,a,search,200\n1001,a,search,429\n1002,b,<ads>,200\n1003,a,,429\n1004,b,<ads>,503\n")
	lines := simulated(t, "--limit", "{algorithm: fixed_window, limit: 1, window: 1h}", "--logged", "--by", "team", table)
	want := `"line":3,"time":1001000000,"candidate":"as logged","allowed":false,"reason":"logged"`
	if !strings.Contains(strings.Join(lines, "\n"), want) {
		t.Errorf("no %s in the decisions %q", want, lines)
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
	const places = "algorithm: concurrency, capacity: 2, cost: 1"
	const rate = "algorithm: sliding_window_counter, limit: 100, window: 1h"
	args := []string{"--limit", "[{" + places + "}, {" + rate + "}]", table}
	var allowed []string
	for _, line := range simulated(t, args...) {
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
	says(t, nil, exitOK, "at once", append([]string{"simulate"}, args...)...)
	report := simulatedReport(t, args...)
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
