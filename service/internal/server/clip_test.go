package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

const (
	// longName is how long the names are that the tests send.
	longName = 5_000
	// longestAnswer bounds an answer that refuses one name, and each field of its head, longestOfMany one that
	// refuses a thousand, and longestLine a line of the log.
	longestAnswer = 4 << 10
	longestOfMany = 20 << 10
	longestLine   = 4 << 10
)

// names are long ones that are quoted in different ways.
func names() map[string]string {
	return map[string]string{
		"plain":   strings.Repeat("x", longName),
		"unicode": strings.Repeat("é€", longName/5),
		"quotes":  strings.Repeat(`"\`, longName/2),
		"control": strings.Repeat("\x01\n", longName/2),
		"list":    strings.Repeat("a,", longName/2),
		"slashes": strings.Repeat("/a", longName/2),
		"digits":  strings.Repeat("9", longName),
		"invalid": strings.Repeat("\xff", longName),
	}
}

// A sent is a request with a long name in one place.
type sent struct {
	where, method, path, body, contentType, host string
	header                                       http.Header
}

// A name is one of them as it is written in a query, in a path, and in JSON.
type name struct{ text, query, path, json string }

func newName(text string) name {
	json := strconv.Quote(strings.ToValidUTF8(text, "?"))
	json = strings.ReplaceAll(json[1:len(json)-1], `\x`, `\u00`)
	return name{text, url.QueryEscape(text), url.PathEscape(text), json}
}

// fill puts a name into the places of a template: %Q in a query, %P in a path, %J in JSON.
func (s sent) fill(n name) sent {
	s.path = strings.NewReplacer("%Q", n.query, "%P", n.path).Replace(s.path)
	s.body = strings.ReplaceAll(s.body, "%J", n.json)
	return s
}

// Whatever a client calls anything, what it is told of it is short, and so is what the log says.
func TestNoNameIsEchoedUnclipped(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.HTTP.MaxHeaderBytes = 1 << 20
		c.API = config.API{ExplicitKeys: true, Open: true}
		c.ClientIP = config.ClientIP{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
		c.Identity = config.Identity{User: "X-User-Id", APIKey: "X-Api-Key"}
	})
	d.fill()
	public, admin := "http://"+d.server.Addr().String(), "http://"+d.server.AdminAddr().String()

	refused := 0
	send := func(kind string, s sent) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), s.method, s.path, nil)
		if err != nil {
			return // it can't be sent by Go's client
		}
		if s.body != "" {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(s.body)), int64(len(s.body))
			r.Header.Set("Content-Type", "application/json")
		}
		if s.contentType != "" {
			r.Header.Set("Content-Type", s.contentType)
		}
		for name, lines := range s.header {
			r.Header[name] = lines
		}
		if s.host != "" {
			r.Host = s.host
		}
		response, err := d.client.Do(r)
		if err != nil {
			return // no client of HTTP sends such a thing
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		at := fmt.Sprintf("%s, %s: %d", s.where, kind, response.StatusCode)
		for field, lines := range response.Header {
			if n := len(strings.Join(lines, "")); n > longestAnswer && response.StatusCode >= 400 {
				t.Errorf("%s: %s has %d bytes", at, field, n)
			}
		}
		if validation := strings.Contains(s.path, "/validate"); response.StatusCode >= 400 || validation {
			refused++
			most := longestAnswer
			if strings.Contains(string(text), " more\"}") { // of many faults, each of which is short
				most = longestOfMany
			}
			if len(text) > most {
				t.Errorf("%s: the answer has %d bytes: %.200s", at, len(text), text)
			}
		}
	}
	for kind, text := range names() {
		if testing.Short() && kind != "plain" {
			continue // each takes seconds under the race detector
		}
		name := newName(text)
		for _, s := range templates(public, admin) {
			// Documents take their time.
			if !strings.Contains(s.body, "limits") || kind == "plain" || kind == "control" {
				send(kind, s.fill(name))
			}
		}
		for _, field := range []string{
			"Authorization", "Content-Type", "X-Forwarded-For", "X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host",
			"X-Original-Uri", "X-Original-Method", "X-User-Id", "X-Api-Key", "If-Match", "If-None-Match", "Origin", "Sec-Fetch-Site", "Expect",
		} {
			header := http.Header{field: {text}}
			send(kind, sent{where: "field " + field, method: "GET", path: public + check + "?key=k", header: header})
			send(kind, sent{where: "field " + field, method: "GET", path: public + apipath.ForwardAuth, header: header})
			forwarded := http.Header{"X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {"/"}, "X-Forwarded-Host": {"h"}, field: {text}}
			send(kind, sent{where: "forwarded " + field, method: "GET", path: public + apipath.ForwardAuth, header: forwarded})
			send(kind, sent{where: "admin field " + field, method: "DELETE", path: admin + "/api/v1/rules/none", header: header})
			send(kind, sent{where: "admin body field " + field, method: "POST", path: admin + "/api/v1/rules", body: "{}", header: header})
		}
		send(kind, sent{where: "field name", method: "GET", path: public + check + "?keys=k", header: http.Header{text: {"x"}}})
		send(kind, sent{where: "host", method: "GET", path: public + check + "?key=k", host: text})
		send(kind, sent{where: "admin host", method: "GET", path: admin + "/api/v1/rules", host: text})
		send(kind, sent{where: "method", method: text, path: public + check})
		send(kind, sent{where: "admin method", method: text, path: admin + "/api/v1/rules"})
	}
	for line := range strings.Lines(d.log.String()) {
		if len(line) > longestLine {
			t.Errorf("a line of the log has %d bytes: %.300s", len(line), line)
		}
	}
	if refused < 500 {
		t.Errorf("%d requests are refused: the test asks too little", refused)
	} else {
		t.Logf("%d requests are refused", refused)
	}
}

// templates are requests with a place for a name.
func templates(public, admin string) []sent {
	var all []sent
	add := func(method, path, body string) {
		where := path
		if body != "" {
			where += " " + body
		}
		all = append(all, sent{where: where, method: method, path: path, body: body})
	}
	add("GET", public+"/%P", "")
	for _, path := range []string{check, apipath.Remaining, apipath.Reset} {
		method := map[bool]string{true: "DELETE", false: "GET"}[path == apipath.Reset]
		for _, query := range []string{
			"%Q", "%Q=1", "key=%Q", "algorithm=%Q", "policy=%Q", "permits=%Q", "keep=%Q", "key=k&key=%Q", "policy=%Q&algorithm=%Q", "key=%Q%zz", "key=k&permits=-%Q",
		} {
			add(method, public+path+"?"+query, "")
		}
	}
	add("GET", public+apipath.ForwardAuth+"?deny_status=%Q", "")
	add("GET", public+apipath.ForwardAuth+"?%Q", "")
	for _, path := range []string{check, apipath.Settle, apipath.Evaluate} {
		for _, body := range []string{
			`"%J"`, `%J`, `{"%J":1}`, `{"key":"%J"}`, `{"key":"k","permits":"%J"}`, `{"key":"k","permits":%J}`, `{"key":"k","keep":%J}`, `{"algorithm":"%J"}`, `{"policy":"%J"}`,
			`{"policy":"%J","algorithm":"%J"}`, `[{"key":"%J","x":1}]`, `[{"%J":"k"}]`, `{"key":"k","%J":{"a":1}}`, `{"key":{"%J":1}}`,
			`{"method":"%J"}`, `{"path":"%J"}`, `{"host":"%J"}`, `{"ip":"%J"}`, `{"headers":{"%J":1}}`, `{"headers":{"%J":"a","%J":"b"}}`, `{"headers":"%J"}`,
			`{"attributes":{"%J":[]}}`, `{"attributes":{"%J":1e9}}`, `{"attributes":{"%J":"a","%J":"b"}}`, `{"attributes":{"a":%J}}`, `{"path":"/x","path":"%J"}`,
		} {
			add("POST", public+path, body)
		}
		add("POST", public+path+"?%Q", "{}")
	}
	add("GET", admin+"/%P", "")
	add("GET", admin+"/debug/pprof/%P", "")
	for _, query := range []string{"%Q", "%Q=1", "enabled=%Q", "label=%Q", "limit=%Q", "after=a&after=%Q", "limit=%Q&limit=1", "%Q=%zz", "prefix=%zz%Q"} {
		add("GET", admin+"/api/v1/rules?"+query, "")
	}
	for _, query := range []string{"before=%Q", "limit=%Q", "rule=%Q&x=1", "%Q=1"} {
		add("GET", admin+adminapi.PathRuleRevisions+"?"+query, "")
	}
	for _, path := range []string{
		"/rules/%P", "/rules/%P/overrides", "/rules/login/overrides/%P", "/rules/%P/overrides/%P", "/rules/%P/reset", "/rules/%P/%P",
		"/rule-revisions/%P", "/rule-revisions/%P/rollback", "/rules/%P/a/b/c",
	} {
		for _, method := range []string{"GET", "PUT", "PATCH", "POST", "DELETE"} {
			body := ""
			if method == "PUT" || method == "PATCH" || method == "POST" {
				body = "{}"
			}
			add(method, admin+"/api/v1"+path, body)
		}
	}
	add("POST", admin+"/api/v1/rules?comment=%Q", `{"id":"a"}`)
	rule := func(members string) string { return `{"id":"long",` + fiveAnHour + `,` + members + `}` }
	bodies := []string{
		`"%J"`, `%J`, `{"%J":1}`, `{"id":"%J"}`, `{"id":"%J",` + fiveAnHour + `}`, `{"id":["%J"]}`, `{"id":{"%J":"%J"}}`,
		`{"id":"long","limits":[{"algorithm":"%J"}]}`, `{"id":"long","limits":[{"algorithm":"fixed_window","limit":5,"window":"%J"}]}`,
		`{"id":"long","limits":[{"algorithm":"fixed_window","limit":5,"%J":1}]}`, `{"id":"long","limits":[{"algorithm":"fixed_window","limit":%J,"window":"1h"}]}`,
		`{"id":"long","limits":[{"name":"%J","algorithm":"fixed_window","limit":5,"window":"1h"}]}`,
		`{"id":"long","limits":[{"name":"%J","algorithm":"fixed_window","limit":5,"window":"1h"},{"name":"%J","algorithm":"fixed_window","limit":6,"window":"1h"}]}`,
		`{"id":"long","limits":[{"algorithm":"token_bucket","capacity":5,"refill":"%J"}]}`,
		`{"id":"long","limits":[{"algorithm":"fixed_window","limit":5,"calendar":"%J"}]}`,
		`{"id":"long","limits":[{"algorithm":"fixed_window","limit":5,"calendar":"day","timezone":"%J"}]}`,
	}
	for _, members := range []string{
		`"name":"%J"`, `"set":"%J"`, `"labels":{"%J":"v"}`, `"labels":{"n":"%J"}`, `"labels":{"%J":1,"%J":2}`, `"priority":"%J"`, `"enabled":"%J"`,
		`"scope":"%J"`, `"scope":["per_ip","%J"]`, `"scope":"custom:%J"`, `"missing":"%J"`, `"cost":"%J"`, `"cost":{"header":"%J"}`, `"cost":{"%J":1}`,
		`"cost":{"attribute":"%J","default":"%J"}`, `"match":{"path":"%J"}`, `"match":{"paths":["/a","%J"]}`, `"match":{"methods":["%J"]}`,
		`"match":{"host":"%J"}`, `"match":{"hosts":["%J","%J"]}`, `"match":{"headers":{"%J":"v"}}`, `"match":{"headers":{"H":"%J"}}`, `"match":{"except":["%J"]}`,
		`"match":{"%J":1}`, `"match":{"path":"/{%J}/{%J}"}`, `"on_exceed":"%J"`, `"max_wait":"%J"`, `"on_store_failure":"%J"`, `"timeout":"%J"`, `"banned":"%J"`,
		`"overrides":[{"key":"%J","unlimited":true}]`, `"overrides":[{"key":"%J"},{"key":"%J"}]`, `"overrides":[{"%J":1}]`, `"scope":"per_ip","overrides":[{"key":"%J","unlimited":true}]`,
	} {
		bodies = append(bodies, rule(members))
	}
	for _, body := range bodies {
		add("POST", admin+"/api/v1/rules", body)
		add("PUT", admin+"/api/v1/rules/login", body)
		add("PATCH", admin+"/api/v1/rules/login", body)
		add("PUT", admin+"/api/v1/rules", "["+body+"]")
		add("POST", admin+"/api/v1/rules/validate", "["+body+"]")
		all = append(all, sent{where: "YAML " + body, method: "POST", path: admin + "/api/v1/rules/validate", body: "- " + body, contentType: "application/yaml"})
		all = append(all, sent{where: "YAML " + body, method: "PUT", path: admin + "/api/v1/rules", body: "rules: [" + body + "]", contentType: "application/yaml"})
	}
	for _, body := range []string{`{"key":"%J"}`, `{"%J":1}`, `{"all":"%J"}`, `"%J"`, `{"key":"a","all":true,"%J":1}`} {
		add("POST", admin+"/api/v1/rules/login/reset", body)
		add("PUT", admin+"/api/v1/rules/login/overrides/someone", body)
		add("POST", admin+"/api/v1/rules/explain", body)
	}
	return all
}
