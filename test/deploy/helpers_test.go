package deploy_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
	"github.com/stint-go/stint/internal/testprogram"
)

var programs string // the folder of stint

// TestMain runs the tests in the folder that they test.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../deploy"); err != nil {
		panic(err)
	}
	os.Exit(testprogram.Main(m.Run, &programs, "../service/cmd/stint"))
}

// start runs a program that ends with the test, and returns what the patterns find in its standard error.
func start(t *testing.T, patterns []string, program string, args ...string) []string {
	t.Helper()
	command := exec.CommandContext(context.Background(), program, args...)
	_, found := testprogram.Start(t, command, patterns...)
	return found
}

// patience is how long a test waits for what should come soon.
const patience = 5 * time.Minute

const adminToken = "a-token-that-the-test-knows"

// startService runs a service on a store, and returns the addresses of its two listeners.
func startService(t *testing.T, store string, flags ...string) (service, admin string) {
	t.Helper()
	dir := t.TempDir()
	tokens, config := filepath.Join(dir, "tokens"), filepath.Join(dir, "stint.yaml")
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	certificate, key := pair(t)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	text := fmt.Sprintf(`
listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
grpc_listen: 127.0.0.1:0
grpc_tls: {cert_file: %q, key_file: %q}
admin: {tokens_file: %q}
rules_default: deny
metrics: {store_health: 1s}
alerts: {url: %q}
record: %q
rules:
  - {id: login, set: web, match: {path: /login}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 3, window: 24h}]}
  - {id: trial, match: {path: /login}, scope: per_ip, on_exceed: shadow, limits: [{algorithm: token_bucket, capacity: 2, refill: 1/24h}]}
  - {id: classes, match: {path: /login}, scope: global, limits: [{algorithm: token_bucket, capacity: 9, refill: 1/24h}], on_exceed: shadow,
     classes: {by: {attribute: class}, keep: {batch: 10%%}, default: batch}}
`, certFile, keyFile, tokens, receiver.URL, filepath.Join(dir, "record"))
	for name, content := range map[string]string{
		tokens: adminToken + "\n", config: text, certFile: certificate, keyFile: key,
	} {
		must.Do(t, os.WriteFile(name, []byte(content), 0o600))
	}
	found := start(t, testprogram.Listeners("http", "admin"), filepath.Join(programs, "stint"), append([]string{
		"serve", "--config", config, "--store", store,
		"--store-timeout=10s",
	}, flags...)...) // so that a busy machine is not taken for a store that is unreachable
	return found[0], found[1]
}

// pair is a certificate and its key in PEM.
func pair(t *testing.T) (certificate, key string) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	own := server.TLS.Certificates[0]
	der := must.Get(x509.MarshalPKCS8PrivateKey(own.PrivateKey))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// load makes requests of all kinds that metrics tell apart.
func load(t *testing.T, service, admin string) {
	t.Helper()
	for _, path := range []string{"/login", "/login", "/login", "/login", "/nothing"} {
		send(t, http.MethodPost, "http://"+service+"/api/v1/rate-limit/evaluate", "", `{"path":"`+path+`","ip":"192.0.2.1"}`)
	}
	for _, algorithm := range []string{"TOKEN_BUCKET", "LEAKY_BUCKET", "FIXED_WINDOW", "SLIDING_WINDOW_LOG", "SLIDING_WINDOW_COUNTER"} {
		send(t, http.MethodPost, "http://"+service+"/api/v1/rate-limit/check", "", `{"key":"ann","algorithm":"`+algorithm+`"}`)
	}
	for _, token := range []string{"", adminToken} {
		send(t, http.MethodPost, "http://"+admin+"/api/v1/rules/login/reset", token, `{"all": true}`)
		send(t, http.MethodPost, "http://"+admin+"/api/v1/rules", token, `{}`)
	}
}

// loadTrace is the trace of the requests of keepLoading.
const loadTrace = "0af7651916cd43dd8448eb211c80319c"

// keepLoading asks services again and again until the test ends, so that rates are not 0.
func keepLoading(t *testing.T, services []string) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for t.Context().Err() == nil {
			for _, service := range services {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+service+"/api/v1/rate-limit/check?key=bob", http.NoBody)
				if err != nil {
					return
				}
				request.Header.Set("Traceparent", "00-"+loadTrace+"-b7ad6b7169203331-01")
				if response, err := http.DefaultClient.Do(request); err == nil {
					_ = response.Body.Close()
				}
			}
			<-time.After(20 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { <-ended })
}

// send sends a request and returns the body of the answer.
func send(t *testing.T, method, target, token, body string) string {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer func() { _ = response.Body.Close() }()
	text := must.Get(io.ReadAll(response.Body))(t)
	return string(text)
}

// startPrometheus runs a Prometheus that scrapes the services each second, with the repository's rules, which it evaluates
// each second and whose alerts need not last.
func startPrometheus(t *testing.T, services []string, flags ...string) (address string) {
	t.Helper()
	return runPrometheus(t, fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml, alerts.yaml, slo.yaml]
scrape_configs: [{job_name: stint, static_configs: [{targets: ["%s"]}]}]
`, strings.Join(services, `", "`)), flags...)
}

// runPrometheus runs a Prometheus with a configuration, beside the repository's rules.
func runPrometheus(t *testing.T, config string, flags ...string) (address string) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"prometheus.yml": config}
	for _, name := range []string{"rules.yaml", "alerts.yaml", "slo.yaml"} {
		text := regexp.MustCompile(`interval: \d+s`).ReplaceAllString(read(t, "prometheus/"+name), "interval: 1s")
		files[name] = regexp.MustCompile(`for: \d+m`).ReplaceAllString(text, "for: 0s")
	}
	for name, content := range files {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	address = testport.Address(t)
	start(t, []string{`msg="(Server is ready to receive web requests\.)"`}, "prometheus", append(flags,
		"--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)...)
	return address
}

// query asks a Prometheus, and returns how many series the answer has, or why there is none.
func query(t *testing.T, address, promql string) (series int, fault string) {
	t.Helper()
	text := send(t, http.MethodGet, "http://"+address+"/api/v1/query?query="+url.QueryEscape(promql), "", "")
	var answer struct {
		Error string
		Data  struct{ Result []any }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return len(answer.Data.Result), answer.Error
}

// answered waits until all queries have series.
func answered(t *testing.T, address string, queries []string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, promql := range queries {
		var fault string
		if answered := until(deadline, func() bool {
			var series int
			series, fault = query(t, address, promql)
			return series > 0 || fault != ""
		}); !answered || fault != "" {
			t.Errorf("no series: %s %s", promql, fault)
		}
	}
}

// soon waits until a condition holds, and reports whether it does.
func soon(holds func() bool) bool { return until(time.Now().Add(patience), holds) }

func until(deadline time.Time, holds func() bool) bool {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for ; !holds(); <-ticker.C {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(name))(t)
	return string(text)
}

// replaced is a text with words replaced, each of which has to be there.
func replaced(t *testing.T, text string, words ...string) string {
	t.Helper()
	for pair := range slices.Chunk(words, 2) {
		if !strings.Contains(text, pair[0]) {
			t.Fatalf("there is no %q in\n%s", pair[0], text)
		}
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

// shell runs commands in a folder and returns their standard output.
func shell(t *testing.T, dir, commands string) string {
	t.Helper()
	text, err := try(t, dir, commands)
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, text)
	}
	return text
}

// try is shell for commands that may fail.
func try(t *testing.T, dir, commands string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	command.Dir = dir
	var faults strings.Builder
	command.Stderr = &faults
	text, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, faults.String())
	}
	return string(text), err
}

// blocks are a page's blocks of code in a language.
func blocks(t *testing.T, name, language string) (texts []string) {
	t.Helper()
	for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(read(t, name), -1) {
		texts = append(texts, found[1])
	}
	return texts
}

// block is the page's block of code that begins so.
func block(t *testing.T, name, language, beginning string) string {
	t.Helper()
	for _, text := range blocks(t, name, language) {
		if strings.HasPrefix(text, beginning) {
			return text
		}
	}
	t.Fatalf("%s has no block that begins with %q", name, beginning)
	return ""
}

// write writes a file of the test.
func write(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(text), 0o600))
}
