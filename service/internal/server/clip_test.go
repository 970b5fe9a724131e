package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
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
		for _, s := range templates(t, public, admin) {
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

// templates are the requests of testdata/names/templates.txt.
func templates(t *testing.T, public, admin string) (all []sent) {
	t.Helper()
	var targets []string
	filled := false // whether the targets have been sent something
	for line := range strings.Lines(string(must.Get(os.ReadFile("testdata/names/templates.txt"))(t)) + "\n") {
		line = strings.TrimSuffix(line, "\n")
		text, isText := strings.CutPrefix(line, "    ")
		switch {
		case line == "" || line[0] == '#':
			continue
		case !isText && filled:
			targets, filled = nil, false
		}
		if !isText && strings.Contains(line, "@") {
			targets = append(targets, line)
			continue
		} else if filled = true; !isText {
			targets = []string{line}
		}
		for _, target := range targets {
			where := strings.Replace(target, "@", text, 1)
			s := sent{where: where, path: public}
			if rest, isYAML := strings.CutPrefix(where, "yaml "); isYAML {
				where, s.path, s.contentType = rest, admin, "application/yaml"
			} else if rest, isAdmin := strings.CutPrefix(where, "admin "); isAdmin {
				where, s.path = rest, admin
			}
			s.method, where, _ = strings.Cut(where, " ")
			path, body, _ := strings.Cut(where, " ")
			s.path, s.body = s.path+path, body
			all = append(all, s)
		}
	}
	return all
}
