package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/bench"
)

// benchLimit refills so slowly that of benched's 600 requests for 3 keys some are denied, however slow the machine is.
const benchLimit = "token_bucket:30:1/60s"

// benched runs `stint bench --json` on a light load and returns its report.
func benched(t testing.TB, want int, args ...string) (report bench.Report) {
	t.Helper()
	patient := []string{"--timeout", "1m"}
	if !slices.Contains(args, "--target") {
		patient = []string{"--store-timeout", "1m"}
	}
	args = append(patient, args...)
	args = append([]string{"bench", "--json", "--requests", "600", "--for", "10m", "--keys", "3", "--callers", "8"}, args...)
	if !slices.Contains(args, "--limit") {
		args = append(args, "--limit", benchLimit)
	}
	code, out, stderr := do(t, nil, args...)
	if err := json.Unmarshal([]byte(out), &report); code != want || err != nil {
		t.Fatalf("%q: exit %d (%v)\n%s%s", args, code, err, out, stderr)
	}
	return report
}

// correct fails unless a target decided, and no decision differs.
func correct(t testing.TB, report bench.Report, exact bool) {
	t.Helper()
	r := report.Targets[0]
	if r.Findings.Differ() != 0 || r.Findings.Exact != exact || r.Admitted == 0 || r.Denied == 0 || r.Failed > 0 || r.Latency["p50"] <= 0 {
		t.Errorf("%s: %+v", r.Name, r)
	}
}

func TestBenchLibrary(t *testing.T) {
	redis := testredis.Start(t)
	for _, store := range []string{"memory://", redis.URL()} {
		correct(t, benched(t, exitOK, "--store", store, "--distribution", "zipf"), true)
		correct(t, benched(t, exitOK, "--store", store, "--distribution", "hot", "--rate", "5000/s"), true)
		correct(t, benched(t, exitOK, "--store", store, "--permits", "2", "--limit", "{algorithm: fixed_window, limit: 20, window: 1h}"), true)
	}
}

const benchConfig = `
policies:
  api: [{algorithm: token_bucket, capacity: 30, refill: 1/60s}]
`

// Every protocol of a service, over Redis.
func TestBenchService(t *testing.T) {
	domains := writeFile(t, "domain: bench\ndescriptors: [{key: key, rate_limit: {unit: hour, requests_per_unit: 50}}]\n")
	config := writeFile(t, benchConfig+"envoy: {config: "+domains+"}\n")
	service, log := start(t, "--config", config, "--store", testredis.Start(t).URL(), "--store-timeout", "1m", "--grpc-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0")
	rls, resp := awaitMatch(t, log, `service=grpc addr=(\S+)`), awaitMatch(t, log, `service=resp addr=(\S+)`)
	correct(t, benched(t, exitOK, "--target", "rest", "--server", service, "--policy", "api"), true)
	correct(t, benched(t, exitOK, "--target", "resp", "--addr", resp, "--policy", "api"), true)
	correct(t, benched(t, exitOK, "--target", "resp", "--addr", resp), false)
	code, out, _ := do(t, nil, "bench", "--limit", "fixed_window:50:1h", "--target", "rls", "--addr", rls, "--timeout", "1m", "--requests", "300", "--keys", "2")
	if code != exitOK || !strings.HasPrefix(out, "0 decisions differ of ") || !strings.Contains(out, "in any order that") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if r := benched(t, exitUnreachable, "--target", "rls", "--addr", rls, "--domain", "other").Targets[0]; r.Failed == 0 || !strings.Contains(r.Error, "no limit") {
		t.Errorf("%+v", r)
	}
	// The limit that is claimed is not the service's.
	if f := benched(t, exitFailed, "--target", "rest", "--server", service, "--policy", "api", "--limit", "fixed_window:1000000:1h").Targets[0].Findings; f.TooLittle == 0 || f.Beyond > 0 {
		t.Errorf("%+v", f)
	}
}

const benchRules = `
rules:
  - {id: login, set: accounts, match: {methods: [POST], path: /login}, scope: per_ip, limits: [{algorithm: token_bucket, capacity: 30, refill: 1/60s}]}
  - {id: user, match: {path: /users, headers: {X-Plan: free}}, scope: [per_user, "custom:team"], missing: deny, on_exceed: wait, max_wait: 1m,
     limits: [{algorithm: token_bucket, capacity: 30, refill: 1/60s}]}
  - {id: path, match: {path: "/teams/{team}"}, scope: "custom:team", cost: {attribute: size, default: 1}, limits: [{algorithm: fixed_window, limit: 60, window: 24h}]}
  - {id: shared, match: {path: /shared}, scope: global, limits: [{algorithm: token_bucket, capacity: 30, refill: 1/60s}]}
  - {id: line, match: {path: /line}, scope: per_ip, limits: [{algorithm: leaky_bucket, capacity: 30, leak: 1/60s}]}
  - {id: banned, match: {path: /banned}, scope: per_ip, banned: true}
  - {id: least, match: {methods: [POST], path: /login}, scope: global, limits: [{algorithm: token_bucket, capacity: 20, refill: 1/60s}]}
`

// Rules of a service, whomever they count.
func TestBenchRules(t *testing.T) {
	service, _ := start(t, "--config", writeFile(t, benchRules+"api: {tokens_file: "+writeFile(t, "bench-bench-bench\n")+"}\n"), "--store", testredis.Start(t).URL(), "--store-timeout", "1m")
	asked := func(want int, args string) *bench.TargetReport {
		t.Helper()
		return benched(t, want, append([]string{"--target", "rest", "--server", service, "--token", "bench-bench-bench"}, strings.Fields(args)...)...).Targets[0]
	}
	const login = "--rule login --method POST --path /login --set accounts"
	for _, args := range []string{
		login,
		login + " --ip 192.0.2.1 --keys 1",
		"--rule user --path /users --user {key} --attribute team={key} --header X-Plan:free",
		"--rule path --path /teams/{key} --ip 192.0.2.1 --attribute size=2 --permits 2 --limit fixed_window:60:24h",
		"--rule shared --path /shared --keys 1",
		"--rule line --path /line --limit leaky_bucket:30:1/60s",
	} {
		r := asked(exitOK, args)
		if correct(t, bench.Report{Targets: []*bench.TargetReport{r}}, true); t.Failed() {
			t.Fatal(args)
		}
	}
	// The limit that is claimed is not the rule's.
	if f := asked(exitFailed, "--rule path --path /teams/{key} --limit fixed_window:1000:24h").Findings; f.TooLittle == 0 || f.Beyond > 0 {
		t.Errorf("%+v", f)
	}
	for args, want := range map[string]string{
		"--rule logon --method POST --path /login --set accounts": `rule "login" decided, not "logon"; the rules that hold for the request are ["login"]`,
		"--rule login --path /login":                              `no rule decided, not "login"; the rules that hold for the request are []`,
		"--rule login --method POST --path /login":                `rule "least" decided, not "login"; the rules that hold for the request are ["least" "login"]`,
		"--rule user --path /users --header X-Plan:free":          `rule "user" decided without its limits: missing per_user custom:team`,
		"--rule banned --path /banned":                            `rule "banned" decided without its limits: banned`,
		"--rule login --path login":                               "400 Bad Request: path",
		"--rule login --path /login --token u":                    "401 Unauthorized: Authorization holds an unknown token",
	} {
		if r := asked(exitUnreachable, "--callers 1 "+args); r.Failed != 600 || !strings.HasPrefix(r.Error, want) {
			t.Errorf("%s: %d failed, %q; want %q", args, r.Failed, r.Error, want)
		}
	}
	// The keys share a client.
	if r := asked(exitFailed, login+" --ip 192.0.2.2"); r.Failed == 0 || !strings.HasPrefix(r.Error, `rule "login" counts the keys bench-`) {
		t.Errorf("%d failed, %q", r.Failed, r.Error)
	}
}

// The scripts of others are compared, and verified.
func TestBenchAgainst(t *testing.T) {
	redis := testredis.Start(t).URL()
	page := filepath.Join(t.TempDir(), "report.html")
	report := benched(t, exitOK, "--against", redis, "--report", page)
	if len(report.Targets) != 4 {
		t.Fatalf("%+v", report.Targets)
	}
	for _, r := range report.Targets {
		if r.Failed > 0 || r.Admitted == 0 || !r.Findings.Exact {
			t.Errorf("%+v", r)
		}
	}
	if r := report.Targets[2]; r.Name != "script gcra" || r.Findings.Differ() > 0 {
		t.Errorf("%+v", r)
	}
	if r := report.Targets[3]; r.Name != "script fixed_window" {
		t.Errorf("%+v", r)
	}
	if html := readFile(t, page); strings.Count(html, "<svg") != 8 || !strings.Contains(html, "script redis_rate") {
		t.Error(html)
	}
	// The scripts know nothing of a least interval.
	for _, r := range benched(t, exitOK, "--against", redis, "--limit", "{algorithm: sliding_window_log, limit: 30, window: 24h, min_interval: 24h}").Targets[1:] {
		if r.Findings.Beyond == 0 || r.Findings.TooLittle > 0 {
			t.Errorf("%+v", r)
		}
	}
}

// A store that decides nothing is not verified by what the failure policy says in its place.
func TestBenchOfStoreThatDecidesNothing(t *testing.T) {
	t.Parallel()
	args := []string{"--store", "redis://127.0.0.1:1", "--on-store-failure", "open", "--rate", "20/s", "--requests", "60", "--limit", "token_bucket:30:1/60s"}
	if r := benched(t, exitUnreachable, args...).Targets[0]; r.Decisions == 0 || r.Degraded != r.Decisions {
		t.Errorf("%+v", r)
	}
	code, out, stderr := do(t, nil, append([]string{"bench", "--requests", "10"}, args...)...)
	if code != exitUnreachable || !strings.HasPrefix(out, "nothing is verified: ") || !strings.Contains(stderr, "the store decided nothing") {
		t.Errorf("exit %d, %q %q", code, out, stderr)
	}
}

// Listeners that speak TLS, with a certificate of an authority that SSL_CERT_FILE names. A program reads it once.
func TestBenchTLS(t *testing.T) {
	authority := testredis.NewAuthority(t)
	certificate, key := authority.Issue(t, "service")
	domains := writeFile(t, "domain: bench\ndescriptors: [{key: key, rate_limit: {unit: hour, requests_per_unit: 50}}]\n")
	pair := fmt.Sprintf("{cert_file: %q, key_file: %q}\n", certificate, key)
	config := writeFile(t, benchConfig+"envoy: {config: "+domains+"}\ntls: "+pair+"grpc_tls: "+pair+"resp_tls: "+pair)
	_, log := start(t, "--config", config, "--grpc-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0")
	address := func(service string) string { return awaitMatch(t, log, `service=`+service+` addr=(\S+)`) }
	for _, target := range []string{
		"--target resp --policy api --tls --limit " + benchLimit + " --addr " + address("resp"),
		"--target rls --limit fixed_window:50:1h --tls --addr " + address("grpc"),
		"--target rest --policy api --limit " + benchLimit + " --server https://" + address("http"),
	} {
		args := append([]string{"bench", "--timeout", "1m", "--requests", "300", "--keys", "2"}, strings.Fields(target)...)
		command := exec.CommandContext(t.Context(), os.Args[0], args...)
		command.Env = append(os.Environ(), asProgram+"=1", "SSL_CERT_FILE="+authority.CAFile)
		if out, err := command.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "0 decisions differ of 300") {
			t.Errorf("%q: %v\n%s", target, err, out)
		}
		says(t, nil, exitUnreachable, "certificate", args...)
	}
}

// A handler of a program's own, behind httplimit's middleware: each key is a client of its own. Without the limit, requests
// are admitted beyond it.
func TestBenchHandler(t *testing.T) {
	limiter := must.Get(stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(30, stint.Per(1, time.Minute))))(t)
	limit := must.Get(httplimit.New(httplimit.Config{Limiter: limiter, Key: func(r *http.Request) (string, error) { return r.URL.Query().Get("user"), nil }}))(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	limited, bare := httptest.NewServer(limit.Wrap(handler)), httptest.NewServer(handler)
	defer limited.Close()
	defer bare.Close()
	correct(t, benched(t, exitOK, "--target", "http", "--url", limited.URL+"/?user={key}"), false)
	if f := benched(t, exitFailed, "--target", "http", "--url", bare.URL).Targets[0].Findings; f.Beyond == 0 || f.TooLittle > 0 {
		t.Errorf("%+v", f)
	}
	failing := httptest.NewServer(http.NotFoundHandler())
	defer failing.Close()
	if r := benched(t, exitUnreachable, "--target", "http", "--url", failing.URL).Targets[0]; r.Failed != 600 || !strings.HasPrefix(r.Error, "status 404") {
		t.Errorf("%d failed, %q", r.Failed, r.Error)
	}
}

func TestBenchFlags(t *testing.T) {
	service, _ := start(t)
	transcript(t, "bench.txt", nil, "HTTP", strings.TrimPrefix(service, "http://"))
	says(t, nil, exitUsage, "--policy", "bench", "--limit", benchLimit, "--policy", "a/\n", "--target", "rest")
}
