package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/alerts"
)

// checkAs makes a check under a request ID, and returns the status and the ID of the answer.
func checkAs(t *testing.T, url, id, query string) (status int, answered string) {
	t.Helper()
	status, _, header := exchange(t, http.MethodGet, url+"/api/v1/rate-limit/check?"+query, "", "X-Request-ID: "+id)
	return status, header.Get("X-Request-ID")
}

// yearly is a flag by which no fixed window ends while a test runs, as one of a minute may between two checks.
func yearly(t *testing.T) string {
	t.Helper()
	return "--config=" + writeFile(t, "defaults: {fixed_window: {limit: 100, window: 365d}}\n")
}

// metricOf is a metric's value as text, without labels; "" if there is none.
func metricOf(t *testing.T, url, name string) string {
	t.Helper()
	_, text := get(t, url+"/metrics")
	match := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindStringSubmatch(text)
	if match == nil {
		return ""
	}
	return match[1]
}

// TestAlerts: two services on one Redis tell a receiver once that a client is near its limit, and once that it is
// denied, signed.
func TestAlerts(t *testing.T) {
	t.Parallel()
	const secret = "a secret of the test"
	var mu sync.Mutex
	confirmed := map[alerts.Kind]int{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if want := alerts.Sign([]byte(secret), r.Header.Get("Stint-Timestamp"), text); err != nil || r.Header.Get("Stint-Signature") != want {
			t.Errorf("%v; the signature is %q, want %q", err, r.Header.Get("Stint-Signature"), want)
		}
		var body struct{ Events []alerts.Alert }
		if err := json.Unmarshal(text, &body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, event := range body.Events {
			if event.Client != "ann" || event.Rule != "algorithm/FIXED_WINDOW" || event.RequestID == "" || event.Limit != 100 {
				t.Errorf("the event is %+v", event)
			}
			confirmed[event.Kind]++
		}
	}))
	t.Cleanup(receiver.Close)
	redis := testredis.Start(t)
	variables := map[string]string{"STINT_ALERTS_URL": receiver.URL + "/T0?token=hush", "STINT_ALERTS_SECRET": secret, "STINT_ALERTS_TIMEOUT": "10s"}
	var urls []string
	var logs []*lines
	for range 2 {
		url, log, stop := startIn(t, variables, yearly(t), "--store", redis.URL(), "--store-timeout=1m")
		t.Cleanup(stop)
		urls, logs = append(urls, url), append(logs, log)
	}
	for i, want := range []int{200, 200, 429, 429, 429} { // 70 and 15 are taken, so that 15 are left
		permits := []string{"70", "15", "50", "50", "50"}[i]
		if status, _ := checkAs(t, urls[i%2], "r", "key=ann&algorithm=FIXED_WINDOW&permits="+permits); status != want {
			t.Fatalf("check %d: %d, want %d", i, status, want)
		}
	}
	of := func(name string) (sum float64) {
		for _, url := range urls {
			var n float64
			if err := json.Unmarshal([]byte(metricOf(t, url, name)), &n); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			sum += n
		}
		return sum
	}
	eventually(t, "both alerts are confirmed", func() bool { return of("rate_limiter_alerts_sent_total") == 2 })
	// Of three denials the second one of a process is known to it, and one of the two processes' claims comes late.
	eventually(t, "the others are left out", func() bool { return of("rate_limiter_alerts_repeated_total") == 2 })
	mu.Lock()
	defer mu.Unlock()
	if len(confirmed) != 2 || confirmed[alerts.NearLimit] != 1 || confirmed[alerts.Denied] != 1 {
		t.Errorf("confirmed: %v", confirmed)
	}
	for _, log := range logs {
		if strings.Contains(log.String(), "hush") || strings.Contains(log.String(), secret) {
			t.Errorf("the log shows a secret:\n%s", log)
		}
	}
}

// Without Redis an alert is sent all the same, and what waits at the end as well.
func TestAlertsOfOne(t *testing.T) {
	received := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		received <- string(text)
	}))
	t.Cleanup(receiver.Close)
	url, stop := startWith(t, map[string]string{"STINT_ALERTS_URL": receiver.URL, "STINT_ALERTS_NEAR_LIMIT": "off"}, yearly(t))
	for range 3 {
		checkAs(t, url, "r-1", "key=ann&algorithm=FIXED_WINDOW&permits=90")
	}
	stop()
	if text := <-received; !strings.Contains(text, `"kind":"denied","rule":"algorithm/FIXED_WINDOW","client":"ann","limit":100,"remaining":10,"reason":"limit","requestId":"r-1"`) {
		t.Error(text)
	}
	if len(received) > 0 {
		t.Errorf("and %s", <-received)
	}
}

// TestAlertsThatFail: the log says where alerts are sent, that the receiver refuses them, and that those that wait are lost, all
// before the service says that it has stopped.
func TestAlertsThatFail(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(receiver.Close)
	url, log, stop := startIn(t, map[string]string{"STINT_ALERTS_URL": receiver.URL + "/T0?token=hush", "STINT_ALERTS_NEAR_LIMIT": "off"}, yearly(t))
	for range 2 {
		checkAs(t, url, "r-1", "key=ann&algorithm=FIXED_WINDOW&permits=90")
	}
	awaitLog(t, log, "403 Forbidden")
	stop()
	awaitLog(t, log, "msg=stopped")
	text := log.String()
	for _, line := range []string{
		`level=INFO msg="alerts are sent" receiver=` + receiver.URL, `level=WARN msg="alerts can't be sent: they are tried again" receiver=` + receiver.URL + ` err="the receiver answered 403 Forbidden"`,
		`level=WARN msg="alerts were lost: the receiver did not confirm them" events=1 err="the receiver answered 403 Forbidden"`, "level=INFO msg=stopped",
	} {
		_, after, found := strings.Cut(text, line+"\n")
		if text = after; !found {
			t.Fatalf("the log lacks, after the lines before it, %s:\n%s", line, log)
		}
	}
	if text != "" || strings.Contains(log.String(), "T0?") || strings.Contains(log.String(), "hush") {
		t.Errorf("the log goes on after its end, or shows a secret:\n%s", log)
	}
}

// The rights that docs/redis.md lists do for the traffic of all processes and for alerts.
func TestRights(t *testing.T) {
	t.Parallel()
	_, rights, found := strings.Cut(readFile(t, "../../../docs/redis.md"), "ACL SETUSER limiter on >PASSWORD ")
	rights, _, _ = strings.Cut(rights, "\n")
	redis := testredis.Start(t)
	command := []any{"ACL", "SETUSER", "limiter", "on", ">hunter2"}
	for right := range strings.FieldsSeq(rights) {
		command = append(command, right)
	}
	if _, err := redis.Do(command...); err != nil || !found {
		t.Fatal(err, found)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	url, stop := startWith(t, map[string]string{"STINT_ALERTS_URL": receiver.URL}, yearly(t), "--store", strings.Replace(redis.URL(), "redis://", "redis://limiter:hunter2@", 1))
	for range 2 {
		checkAs(t, url, "r-1", "key=ann&algorithm=FIXED_WINDOW&permits=60")
	}
	eventually(t, "the alert is sent", func() bool { return metricOf(t, url, "rate_limiter_alerts_sent_total") == "1" })
	keys := map[string]bool{}
	eventually(t, "the traffic is shared", func() bool {
		reply := must.Get(redis.Do("KEYS", "rate_limiter:a*"))(t)
		for _, key := range reply.([]any) {
			name, _, _ := strings.Cut(strings.TrimPrefix(key.(string), "rate_limiter:"), ":")
			keys[name] = true
		}
		return keys["activity"]
	})
	stop()
	if denied, err := redis.Do("ACL", "LOG"); err != nil || len(denied.([]any)) > 0 || !keys["alert"] {
		t.Errorf("Redis refused %v, %v; keys %v", denied, err, keys)
	}
}

// TestDecisionsInTheLog: a denial names its rule, its client by an HMAC, its reason and the request, and an admission
// is not logged, but at debug, where a line says what the decision left.
func TestDecisionsInTheLog(t *testing.T) {
	// As `printf '%s' user:ann | openssl dgst -sha256 -hmac 0123456789abcdef` begins.
	const of = "rule=algorithm/FIXED_WINDOW client=9a2ced55ea496e67 "
	for flag, want := range map[string]string{
		"--log-denials=sampled": "level=INFO msg=denied " + of + "reason=limit request_id=r-1\n",
		"--log-level=debug":     "level=DEBUG msg=allowed " + of + "request_id=r-1 remaining=40\n",
	} {
		url, log := start(t, yearly(t), flag, "--log-key-file", writeFile(t, "0123456789abcdef\n"))
		for range 2 {
			if _, id := checkAs(t, url, "r-1", "key=user:ann&algorithm=FIXED_WINDOW&permits=60"); id != "r-1" {
				t.Errorf("the answer's request ID is %q", id)
			}
		}
		awaitLog(t, log, want)
		all := flag == "--log-level=debug"
		if text := log.String(); strings.Contains(text, "user:ann") || !all && strings.Count(text, "request_id=") != 1 {
			t.Error(text)
		}
	}
}

// TestDegradedInTheLog: the first degraded answer names its client and its cause, a summary follows, and neither shows the store's password.
func TestDegradedInTheLog(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, testredis.Password("hunter2"))
	must.Do(t, redis.Stop())
	url, log, stop := startIn(t, nil, "--store", redis.URL(), "--store-timeout=1m", "--log-key-file", writeFile(t, "0123456789abcdef\n"))
	for range 3 {
		if status, _ := checkAs(t, url, "r-1", "key=user:ann"); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	stop()
	text := log.String()
	if strings.Count(text, `msg="answers are degraded: a failure policy decides instead of the store" client=9a2ced55ea496e67 cause=`) != 1 || !strings.Contains(text, "connection refused") ||
		!strings.Contains(text, `msg="answers were degraded" admitted=3 denied=0 client=9a2ced55ea496e67`) || strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}
