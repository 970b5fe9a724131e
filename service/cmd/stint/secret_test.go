package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// What must never be shown, each with a part that says where it comes from.
const (
	secretPassword = "hunter2-store-password"
	secretToken    = "hunter2-api-token-0123456789"
	secretAdmin    = "hunter2-admin-token-0123456789"
	secretKey      = "hunter2-key-of-a-client"
	secretField    = "hunter2-api-key-in-a-header"
)

// tells fails the test when a text has a secret in it.
func tells(t *testing.T, what, text string) {
	t.Helper()
	if at := strings.Index(text, "hunter2"); at >= 0 {
		t.Errorf("%s tells a secret: ...%.200s", what, text[max(0, at-100):])
	}
}

// A service that knows every kind of secret shows none: not in its log, at the most
// talkative, nor in its metrics, its health, /actuator/info or the answers to others.
func TestNoSecretIsTold(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, testredis.Password(secretPassword))
	tokens, admins := writeFile(t, secretToken+"\n"), writeFile(t, secretAdmin+"\n")
	url, log := start(t, "--store", redis.URL(), "--store-timeout=5s", "--log-level=debug", "--api-tokens-file", tokens, "--admin-tokens-file", admins,
		"--admin-listen=127.0.0.1:0", "--identity-api-key=X-Api-Key")
	admin := awaitMatch(t, log, `service=admin addr=(\S+)\n`) // it is announced after the other
	ask := func(method, url, token, body string) (int, string) {
		return fetch(t, method, url, body, "Authorization: Bearer "+token, "X-Api-Key: "+secretField)
	}
	const checkPath = "/api/v1/rate-limit/check?key=" + secretKey
	if status, answer := ask("GET", url+checkPath, secretToken, ""); status != http.StatusOK || !strings.Contains(answer, secretKey) {
		t.Errorf("the token does not open the service: %d %s", status, answer)
	}
	paths := []string{
		"/actuator/info", "/actuator/health", "/actuator/health/readiness", "/metrics", "/openapi.yaml", "/nowhere", checkPath, checkPath + "&permits=x",
	}
	talk := func() {
		for _, path := range paths {
			for _, token := range []string{"hunter2-a-wrong-token", ""} {
				_, answer := ask("GET", url+path, token, "")
				tells(t, path, answer)
			}
		}
	}
	talk()
	for _, token := range []string{secretAdmin, "hunter2-a-wrong-token"} {
		_, answer := ask("GET", "http://"+admin+"/debug/pprof/goroutine?debug=1", token, "")
		tells(t, "the admin listener", answer)
	}
	must.Do(t, redis.Stop())
	if status, answer := ask("GET", url+checkPath, secretToken, ""); status != http.StatusOK || !strings.Contains(answer, `"degraded":true`) {
		t.Errorf("without its store: %d %s", status, answer)
	}
	talk()
	eventually(t, "the log says that the store is unreachable", func() bool {
		ask("GET", url+checkPath, secretToken, "")
		return strings.Contains(log.String(), "the store is unreachable")
	})
	tells(t, "the log", log.String())
}

// A store that nobody answers for is told of without what is secret in its URL, by the
// service, which goes on, and by a command, which does not.
func TestNoSecretIsToldByAbsence(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"nobody there":      "redis://user:" + secretPassword + "@127.0.0.1:1",
		"nobody there, TLS": "rediss://:" + secretPassword + "@127.0.0.1:1",
		"no cluster there":  "redis-cluster://user:" + secretPassword + "@127.0.0.1:1",
		"no sentinel there": "redis-sentinel://user:" + secretPassword + "@127.0.0.1:1/name",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, log := start(t, "--store", url, "--log-level=debug")
			awaitLog(t, log, "the store is unreachable")
			tells(t, "the log", log.String())
			code, stdout, stderr := do(t, nil, "peek", "k", "--store", url)
			if code != exitUnreachable || stdout != "" || !strings.Contains(stderr, "stint: store ") {
				t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
			}
			tells(t, "the command", stderr)
		})
	}
}
