package server_test

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// An adminFixture is a running server with rules to edit.
type adminFixture struct {
	*running
	manager *rulestore.Manager
	token   string // "" is none
}

// newAdminFixture runs a server on rules of a store, which it follows.
func newAdminFixture(t *testing.T, kept rulestore.Store, change func(*server.Config)) *adminFixture {
	t.Helper()
	r := must.Get(rulestore.NewManager(kept, rulestore.Options{Interval: 10 * time.Millisecond}))(t)
	d := &adminFixture{manager: r}
	d.running = run(t, func(c *server.Config) {
		c.AdminListen, c.Manager, c.Rules = "127.0.0.1:0", r, nil
		if change != nil {
			change(c)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended, followed := make(chan error, 1), make(chan struct{})
	var once sync.Once
	go func() {
		ended <- r.Follow(ctx, func(set *rules.Set) {
			d.server.SwapRules(set)
			once.Do(func() { close(followed) })
		}, func(err error) { t.Errorf("rules are refused: %v", err) })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
	<-followed
	return d
}

// adminDocument loads ../admin/openapi.yaml.
var adminDocument = documentOf("../admin/openapi.yaml")

// adminDescription finds its operations.
var adminDescription = sync.OnceValues(func() (routers.Router, error) {
	document, err := adminDocument()
	if err != nil {
		return nil, err
	}
	for _, mediaType := range []string{"application/yaml", "text/yaml"} {
		openapi3filter.RegisterBodyDecoder(mediaType, openapi3filter.FileBodyDecoder)
	}
	openapi3filter.RegisterBodyDecoder("application/merge-patch+json", openapi3filter.RegisteredBodyDecoder("application/json"))
	return legacy.NewRouter(document)
})

// ask sends a request to the admin listener, with header fields NAME: VALUE, and holds the answer
// against ../admin/openapi.yaml. A body is JSON unless a field says otherwise.
func (d *adminFixture) ask(method, path, body string, fields ...string) reply {
	d.t.Helper()
	r := d.request(method, d.server.AdminAddr().String(), path, body)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if d.token != "" {
		r.Header.Set("Authorization", "Bearer "+d.token)
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	got := d.send(r)
	d.describes(r, body, got)
	return got
}

// describes holds an answer against ../admin/openapi.yaml.
func (d *adminFixture) describes(r *http.Request, body string, got reply) {
	d.t.Helper()
	if strings.HasPrefix(r.URL.Path, "/debug/pprof/") || r.URL.Path == "/session" {
		return
	}
	again := r.Clone(context.Background())
	again.URL = must.Get(url.Parse(strings.ReplaceAll(r.URL.String(), "%2F", "-")))(d.t) // which the router takes for a slash
	if again.Method == http.MethodHead {
		again.Method = http.MethodGet
	}
	if r.Method == http.MethodHead || got.status == http.StatusNotModified || got.status == http.StatusNoContent {
		if got.body != "" {
			d.t.Errorf("%s %s: %d with a body %q", r.Method, r.URL, got.status, got.body)
		}
		got.header = nil
	}
	conforms(d.t, must.Get(adminDescription())(d.t), again, body, got, http.StatusUnauthorized)
}

// is expects a status.
func (r reply) is(status int) reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%d %s, want status %d", r.status, r.body, status)
	}
	return r
}

func (r reply) etag() string { return r.header.Get("Etag") }

// fill puts the rules of the tests into the store.
func (d *adminFixture) fill() *adminFixture {
	d.t.Helper()
	var all bytes.Buffer
	for i, rule := range ruleList() {
		text := must.Get(rulefile.JSON(rule))(d.t)
		if i > 0 {
			all.WriteByte(',')
		}
		all.Write(text)
	}
	d.ask("PUT", "/api/v1/rules", "["+all.String()+"]").is(200)
	return d
}

// auditLines are the records of the log, without their times.
func (d *adminFixture) auditLines() []string {
	var lines []string
	for line := range strings.Lines(d.log.String()) {
		if _, audit, found := strings.Cut(line, "msg=audit "); found {
			lines = append(lines, strings.TrimSpace(audit))
		}
	}
	return lines
}

// a limit that a test writes, in JSON.
const fiveAnHour = `"limits":[{"algorithm":"fixed_window","limit":5,"window":"1h"}]`
