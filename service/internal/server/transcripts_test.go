package server_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

var rewrite = flag.Bool("rewrite", false, "write what the service answers into the transcripts")

// A transcript is a text of requests, each followed by the answer it expects, four blanks in:
//
//	# a comment
//	service                        a new service, by the settings below it as in a configuration file; without policies,
//	    api: {open: false}         rules or api those of testConfig, and open to all
//	service filled                 its rules can be edited, and are those of ruleList
//	service remote                 the Redis protocol is asked from another machine
//	service shared                 ... and the store is not this process's own
//	service file                   its rules are from a file, and nothing follows them
//	service forgotten              its rules can be edited, and are lost when the process ends
//	service observed               what observers are told is told behind each answer
//	service again                  a new service by the settings of the last one, with those below in their place
//	GET /api/v1/rate-limit/check?key=k
//	POST /api/v1/rate-limit/check {"key":"k"}
//	  X-Cost: 3                    a field of the request; peer is where it comes from, and a line such as
//	  traefik GET /login           all that this proxy sends of a request that it asks about; nginx likewise
//	  Origin: http://ADMIN         where the admin listener is; tag1 is the first entity tag or cookie that was told
//	admin PUT /api/v1/rules []     a request to the admin listener
//	> CL.THROTTLE k 1 1 1          a command of the Redis protocol; several in a row are sent at once
//	>> "PING\r\n\x00"            bytes on a connection of their own, and all answers until it ends
//	rules [{"id":"a", ...}]        these rules come into force, or none; which are added, changed and removed
//	+1.5s                          the store's clock goes on
//	store unreachable              every call of the store fails from here on: unreachable, overloaded, faulty, or that text
//	store answers                  ... no more; with on_store_failure among the settings, package failover decides
//	metrics rate_limiter_holds     the lines of the metrics that begin so and are not 0
//	    200 {"allowed":true, ...}
//	    Allow: GET | Retry-After: 1  the fields of the answer but those that all have
//	    asks 2 in 1 call           how many operations went to the store, and in how many calls if several went together:
//	                               1 of each that is decided is not said
//	    log level=WARN ...         what was logged meanwhile
//
// <x*1000> are so many x. A problem is its status and its detail. Bytes that are not printed are written as in Go, in
// quotes. -rewrite puts what the service answers in place.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text := must.Get(os.ReadFile(path))(t)
			s := &transcript{t: t, path: path, lines: strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")}
			for s.at < len(s.lines) {
				s.step()
			}
			if *rewrite {
				must.Do(t, os.WriteFile(path, []byte(strings.Join(s.out, "\n")+"\n"), 0o600))
			}
		})
	}
}

// transcript is a transcript that is being read.
type transcript struct {
	t     *testing.T
	path  string
	lines []string
	at    int
	out   []string // the transcript with the answers given

	service  *fixture
	settings []string      // of the service
	admin    *adminFixture // nil without a request to it
	redis    *talk         // nil before the first command
	remote   bool          // whether its client is on another machine
	rules    *rules.Set    // those in force, if no request edited them
	told     []string      // what observers are told
	away     bool          // whether a failure policy may decide, by a clock of its own
	logged   int           // how much of the log has been told
	tags     []string      // the entity tags and cookies, by their numbers
}

// indented takes the lines that begin so.
func (s *transcript) indented(prefix string) (lines []string) {
	for ; s.at < len(s.lines) && strings.HasPrefix(s.lines[s.at], prefix); s.at++ {
		lines = append(lines, strings.TrimPrefix(s.lines[s.at], prefix))
	}
	return lines
}

// step makes one step, and compares its answer.
func (s *transcript) step() {
	line, number := s.lines[s.at], s.at+1
	s.at++
	s.out = append(s.out, line)
	var got []string
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "" || line[0] == '#':
		return
	case word == "service":
		var settings []string
		for s.at < len(s.lines) && strings.HasPrefix(s.lines[s.at], "    ") && !strings.HasPrefix(s.lines[s.at], "    log ") {
			settings = append(settings, s.lines[s.at][4:])
			s.at++
		}
		for _, setting := range settings {
			s.out = append(s.out, "    "+setting)
		}
		if strings.HasPrefix(rest, "again") {
			settings = slices.Concat(without(s.settings, settings), settings)
		}
		s.settings = settings
		s.start(rest, strings.Join(settings, "\n"))
	case word == ">":
		said := append([]string{rest}, s.indented("> ")...)
		for _, command := range said[1:] {
			s.out = append(s.out, "> "+command)
		}
		got = s.talk(said)
	case word == ">>":
		s.redis = s.service.talk(!s.remote)
		go func() {
			_, _ = io.WriteString(s.redis, repeated.ReplaceAllStringFunc(must.Get(strconv.Unquote(rest))(s.t), repeat))
		}()
		for last := ""; last != "EOF"; got = append(got, last) {
			last = s.masked(s.redis.hear())
		}
		s.redis = nil
	case word == "metrics":
		got = s.metrics(rest)
	case word == "rules":
		got = s.swap(rest)
	case word == "store":
		err, known := map[string]error{
			"answers": nil, "unreachable": stint.ErrUnavailable, "overloaded": stint.ErrOverloaded,
			"faulty": stint.Invalid("key", "k", "another"),
		}[rest]
		if !known {
			err = errors.New(rest)
		}
		s.service.store.fail(err)
	case line[0] == '+':
		d, err := time.ParseDuration(line[1:])
		if err != nil {
			s.t.Fatalf("%s:%d: %v", s.path, number, err)
		}
		s.service.store.advance(d)
	default:
		var fields []string
		for s.at < len(s.lines) && strings.HasPrefix(s.lines[s.at], "  ") && !strings.HasPrefix(s.lines[s.at], "   ") {
			s.out = append(s.out, s.lines[s.at])
			fields = append(fields, s.lines[s.at][2:])
			s.at++
		}
		got = append(s.ask(line, fields), s.told...)
		s.told = nil
	}
	if all := s.service.log.String(); len(all) > s.logged {
		for logged := range strings.Lines(all[s.logged:]) {
			_, logged, _ = strings.Cut(strings.TrimSpace(logged), " ") // without its time
			got = append(got, "log "+s.masked(logged))
		}
		s.logged = len(all)
	}
	want := s.indented("    ")
	for _, answer := range got {
		s.out = append(s.out, "    "+answer)
	}
	if !*rewrite && !slices.Equal(got, want) {
		s.t.Errorf("%s:%d: %s\n    %s\nwant\n    %s", s.path, number, line, strings.Join(got, "\n    "), strings.Join(want, "\n    "))
	}
}

// without are the lines of settings but of those that others name.
func without(settings, others []string) (left []string) {
	named := false
	for _, line := range settings {
		if name, _, _ := strings.Cut(line, ":"); line[0] != ' ' {
			named = slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(other, name+":") })
		}
		if !named {
			left = append(left, line)
		}
	}
	return left
}

// start makes a new service by settings in YAML. Those whose clients of the Redis protocol are on another machine are
// remote; those whose rules can be edited have the rules of the tests if they are filled.
func (s *transcript) start(kind, settings string) {
	s.admin, s.redis, s.remote, s.logged, s.tags = nil, nil, strings.HasSuffix(kind, "remote"), 0, nil
	s.away = strings.Contains("\n"+settings, "\non_store_failure:")
	folder := s.t.TempDir()
	file := filepath.Join(folder, "stint.yaml")
	for name, text := range map[string]string{
		"stint.yaml":   strings.ReplaceAll(settings, "FOLDER", folder),
		"tokens":       apiToken + "\nanother-token-of-mine\n",
		"admin_tokens": "the-token-of-a-reader read ann\n" + adminToken + " write\n",
	} {
		must.Do(s.t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	loaded, err := config.Load(config.Sources{File: file})
	if err != nil {
		s.t.Fatalf("%s:%d: %v", s.path, s.at, err)
	}
	given := func(name string) bool { return strings.Contains("\n"+settings, "\n"+name+":") }
	change := func(c *server.Config) {
		own := c.Settings
		c.Settings = loaded
		c.Listen, c.AdminListen, c.Drain, c.MetricsAge = own.Listen, own.AdminListen, own.Drain, -1
		c.InProcess = !strings.HasSuffix(kind, "shared")
		if kept := c.Store.(*store); loaded.Store.MaxHolds < bounds.DefaultMaxHolds {
			kept.Store = memstore.New(memstore.Config{Now: kept.time, MaxHolds: loaded.Store.MaxHolds})
		}
		if c.RulesForgotten = kind == "forgotten"; c.RulesForgotten {
			c.RulesPlace = "somewhere"
		}
		if strings.HasSuffix(kind, "observed") {
			c.Observers = []stint.Observer{s.observe}
		}
		if !given("policies") {
			c.Policies = own.Policies
		}
		if c.API = own.API; given("api") {
			c.API = loaded.API
		} else {
			c.API.Open = true
		}
		if given("rules") {
			c.Rules = compile(s.t, loaded.Rules)
		}
		s.rules = c.Rules
		if c.Config = c.WithDefaults(); s.away {
			surviving(s.t, c.OnStoreFailure)(c)
		}
	}
	for _, line := range s.lines[s.at:] {
		if strings.HasPrefix(line, "service") {
			break
		}
		if strings.HasPrefix(line, "admin ") && kind == "file" {
			s.admin = &adminFixture{running: run(s.t, func(c *server.Config) {
				change(c)
				c.AdminListen, c.RulesPlace = "127.0.0.1:0", "the file /etc/stint/rules.yaml"
			})}
			s.service = fixtureOf(s.t, s.admin.server, s.admin.store, s.admin.log)
			s.logged = len(s.service.log.String())
			return
		} else if strings.HasPrefix(line, "admin ") {
			s.admin = newAdminFixture(s.t, rulestore.NewMemory(), change)
			s.service = fixtureOf(s.t, s.admin.server, s.admin.store, s.admin.log)
			if kind == "filled" {
				if given("admin") {
					s.admin.token = adminToken
				}
				s.admin.fill().token = ""
			}
			s.logged = len(s.service.log.String())
			return
		}
	}
	s.service = newFixture(s.t, change)
}

// swap puts rules in force.
func (s *transcript) swap(text string) []string {
	var set *rules.Set
	if text != "none" {
		list, _ := must.Two(rulefile.Parse("rules", []byte(text)))(s.t)
		set = must.Get(rules.Compile(list, rules.Options{Previous: s.rules}))(s.t)
	}
	s.rules = set
	c := s.service.server.SwapRules(set)
	return []string{fmt.Sprintf("added %v, changed %v, removed %v", c.Added, c.Changed, c.Removed)}
}

// observe notes what an observer is told.
func (s *transcript) observe(_ context.Context, e *stint.Event) {
	if e.RequestID == "" || e.At < start-stint.Instant(time.Hour/time.Microsecond) {
		s.t.Errorf("%+v has no request ID, or no time", e)
	}
	id := e.RequestID
	if len(id) >= 15 {
		id = "of its own"
	}
	s.told = append(s.told, fmt.Sprintf("told: rule %q, key %q, limited %t, allowed %t, shadow %t, degraded %t, reason %q, request %s",
		e.Rule, e.Claim.Key, e.Claim.Policy != nil, e.Decision.Allowed, e.Shadow, e.Decision.Degraded, e.Reason, id))
}

// defaults are the fields of an answer that are not told when they are so.
var defaults = map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store"}

// ask makes a request: its method, target and body, behind "admin" if the admin listener is asked.
func (s *transcript) ask(line string, fields []string) []string {
	line, toAdmin := strings.CutPrefix(repeated.ReplaceAllStringFunc(line, repeat), "admin ")
	method, rest, _ := strings.Cut(line, " ")
	target, body, _ := strings.Cut(rest, " ")
	if text, err := strconv.Unquote(target); err == nil {
		target = text
	}
	if text, err := strconv.Unquote(body); err == nil {
		body = text
	}
	asked, calls := s.service.store.ops.Load(), s.service.store.calls.Load()
	var got reply
	if toAdmin {
		for i, field := range fields {
			field = strings.ReplaceAll(field, "ADMIN", s.admin.server.AdminAddr().String())
			fields[i] = tagNames.ReplaceAllStringFunc(field, func(name string) string {
				n, _ := strconv.Atoi(name[3:])
				return s.tags[n-1]
			})
		}
		got = s.admin.ask(method, target, body, fields...)
	} else {
		r := newRequest(method, "/", body)
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(target, "?")
		for _, field := range fields {
			name, value, isField := strings.Cut(repeated.ReplaceAllStringFunc(field, repeat), ": ")
			switch proxy := strings.Fields(name); {
			case !isField && proxy[0] == "traefik":
				maps.Copy(r.Header, traefik(proxy[1], proxy[2]))
			case !isField:
				maps.Copy(r.Header, nginx(proxy[1], proxy[2]))
			case name == "peer":
				r.RemoteAddr = value
			case name == "Host":
				r.Host = value
			default:
				r.Header.Add(name, value)
			}
		}
		got = s.service.do(r)
	}
	answer := []string{strings.TrimSpace(fmt.Sprint(got.status, " ", s.masked(strings.TrimSpace(got.body))))}
	if got.header.Get("Content-Type") == apipath.ProblemType {
		answer[0] = s.problem(got)
	}
	var told []string
	for _, name := range slices.Sorted(maps.Keys(got.header)) {
		switch value := strings.Join(got.header[name], ", "); {
		case slices.Contains([]string{"X-Request-Id", "Date", "Content-Length"}, name):
		case name == "Etag", name == "Set-Cookie": // a name in place of what is another one each time
			tag, rest, _ := strings.Cut(value, ";")
			n := slices.Index(s.tags, tag)
			if n < 0 {
				n, s.tags = len(s.tags), append(s.tags, tag)
			}
			told = append(told, strings.TrimSuffix(fmt.Sprintf("%s: tag%d;%s", name, n+1, rest), ";"))
		case value == defaults[name], name == "Content-Type" && value == apipath.ProblemType:
		default:
			told = append(told, name+": "+s.masked(value))
		}
	}
	if told != nil {
		answer = append(answer, strings.Join(told, " | "))
	}
	usual := int64(0)
	if got.status == http.StatusOK || got.status == http.StatusTooManyRequests {
		usual = 1
	}
	if n := s.service.store.ops.Load() - asked; n != usual && !toAdmin && !s.away {
		asks := fmt.Sprint("asks ", n)
		if in := s.service.store.calls.Load() - calls; in == 1 && n > 1 {
			asks += " in 1 call"
		} else if in != n {
			asks += fmt.Sprintf(" in %d calls", in)
		}
		answer = append(answer, asks)
	}
	return answer
}

// problem is what a problem says: its status, its type if it has one, and its detail.
func (s *transcript) problem(got reply) string {
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	got.into(&p)
	if p.Status != got.status || p.Title != http.StatusText(got.status) {
		s.t.Errorf("problem %+v of status %d", p, got.status)
	}
	text := fmt.Sprint(p.Status, " ", p.Detail)
	if p.Type != "about:blank" {
		text += " (" + p.Type + ")"
	}
	return s.masked(text)
}

// minRepeated is how often a character stands in a row for it to be told once.
const minRepeated = 60

var (
	tagNames = regexp.MustCompile(`\btag\d+`)
	repeated = regexp.MustCompile(`<([^<>]+)\*(\d+)>`)
	times    = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)`)
	instants = regexp.MustCompile(`"(at|expiresAt)":\d{16}`)
	requests = regexp.MustCompile(`request_id=\S+`)
	ports    = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// repeat writes <x*3> out.
func repeat(short string) string {
	parts := repeated.FindStringSubmatch(short)
	n, _ := strconv.Atoi(parts[2])
	return strings.Repeat(parts[1], n)
}

// masked is a text without what differs from run to run, in quotes if it has bytes that are not printed.
func (s *transcript) masked(text string) string {
	text = requests.ReplaceAllString(text, "request_id=ID")
	text = ports.ReplaceAllString(times.ReplaceAllString(text, "TIME"), "127.0.0.1:PORT")
	for i := 0; i+minRepeated <= len(text); i++ {
		n := len(text[i:]) - len(strings.TrimLeft(text[i:], text[i:i+1]))
		if n >= minRepeated && text[i] < utf8.RuneSelf {
			text = fmt.Sprintf("%s<%c*%d>%s", text[:i], text[i], n, text[i+n:])
		}
	}
	if s.away {
		text = instants.ReplaceAllString(text, `"$1":TIME`)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r != '"' && !strconv.IsPrint(r) }) {
		text = strconv.Quote(text)
	}
	return text
}

// talk sends commands of the Redis protocol at once, and hears their answers.
func (s *transcript) talk(said []string) (answers []string) {
	if s.redis == nil {
		s.redis = s.service.talk(!s.remote)
	}
	for i, command := range said {
		if text, err := strconv.Unquote(command); err == nil {
			command = text
		}
		said[i] = repeated.ReplaceAllStringFunc(command, repeat)
	}
	go s.redis.say(said...)
	for range said {
		answers = append(answers, s.masked(s.redis.hear()))
	}
	return answers
}

// metrics are the lines of the metrics that begin so.
func (s *transcript) metrics(prefix string) (lines []string) {
	recorder := httptest.NewRecorder()
	s.service.ServeHTTP(recorder, newRequest(http.MethodGet, apipath.Metrics, ""))
	for line := range strings.Lines(recorder.Body.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, prefix) && !strings.HasSuffix(line, " 0") {
			lines = append(lines, line)
		}
	}
	return lines
}
