package simulate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/service/internal/simulate"
)

// A madeUp log is of testdata/logs.txt: its format, by name or as it is described, and its lines.
type madeUp struct{ format, lines string }

// madeUpLogs have the same four requests each, of three clients, in as many formats.
func madeUpLogs(t testing.TB) (logs []madeUp) {
	t.Helper()
	text := must.Get(os.ReadFile("testdata/logs.txt"))(t)
	for section := range strings.SplitSeq(strings.TrimPrefix(string(text), "== "), "\n== ") {
		format, lines, _ := strings.Cut(section, "\n")
		logs = append(logs, madeUp{format, strings.TrimSpace(lines) + "\n"})
	}
	return logs
}

// wantRequests reports events that are not those of the made-up logs. What a format lacks is not asked for.
func wantRequests(t *testing.T, what string, events []simulate.Event) {
	t.Helper()
	clients := []string{"192.0.2.1", "192.0.2.2", "192.0.2.1", "198.51.100.7"}
	if len(events) != len(clients) {
		t.Errorf("%s: %d requests", what, len(events))
		return
	}
	for i := range events {
		ev, q := &events[i], &events[i].Request
		user, host := q.User == "" || q.User == "ann", slices.Contains([]string{"", "www.example.com", "www.example.com:443", "www.example.com:80"}, q.Host)
		if ev.Time != stint.Instant(1_791_637_200+i)*1_000_000 || q.Address != clients[i] || q.Path != fmt.Sprint("/a/", i) ||
			q.Method != "" && q.Method != "GET" || ev.Status != 0 && ev.Status != 200 || !user || !host {
			t.Errorf("%s: request %d is %+v", what, i, ev)
		}
	}
}

// TestMadeUpLogs reads each log by its format, and finds the format of those that have a name.
func TestMadeUpLogs(t *testing.T) {
	seen := map[string]bool{}
	for _, log := range madeUpLogs(t) {
		named := !strings.Contains(log.format, ":")
		seen[log.format] = true
		for _, format := range []string{log.format, ""} {
			if format == "" && !named {
				continue
			}
			events, input := read(t, simulate.ReaderOptions{Format: format}, log.lines, log.lines)
			if len(events) != 8 || input.Format != log.format || input.Wrapped != "" || input.Malformed > 0 || len(input.Clients) != 3 ||
				input.Forwarded > 0 != slices.Contains([]string{"envoy", "istio", "envoy-gateway"}, log.format) {
				t.Errorf("%.60s by %.60q: %+v", log.format, format, input)
				continue
			}
			wantRequests(t, log.format, events[4:])
		}
	}
	for _, name := range simulate.Formats() {
		if !seen[name] && name != "iis" && name != "cloudfront" { // which are w3c
			t.Errorf("no log is of the format %s", name)
		}
	}
}

// wrapped are what stands around a line, by its name.
var wrapped = map[string]func(line string, i int) string{
	"cri": func(line string, i int) string {
		half := len(line) / 2
		if i%2 == 0 {
			return "2026-10-10T13:00:00.123456789Z stdout F " + line
		}
		return "2026-10-10T13:00:00.123456789+02:00 stdout P " + line[:half] + "\n2026-10-10T13:00:00.2Z stdout F " + line[half:]
	},
	"docker": func(line string, _ int) string {
		text, _ := json.Marshal(map[string]string{"log": line + "\n", "stream": "stdout", "time": "2026-10-10T13:00:00.1Z"})
		return string(text)
	},
	"compose": func(line string, _ int) string { return "nginx-1  | " + line },
	"kubectl": func(line string, _ int) string { return "[pod/web-7d4b9/nginx] " + line },
	"syslog": func(line string, i int) string {
		return []string{
			"Oct  9 13:00:00 web1 nginx: ", "<190>Oct 10 13:00:00 web1 nginx[17]: ", "2026-10-10T13:00:00.1+00:00 web1 nginx: ", "Oct 10 13:00:00 nginx: ",
		}[i%4] + line
	},
	"syslog 5424": func(line string, i int) string {
		return "<165>1 2026-10-10T13:00:00.003Z web1 nginx 17 ID47 " + []string{"-", `[a b="c"][d e="f"]`}[i%2] + " " + line
	},
	"timestamps":          func(line string, _ int) string { return "2026-10-10T13:00:00.123456789Z " + line },
	"compose, timestamps": func(line string, _ int) string { return "nginx-1  | 2026-10-10T13:00:00.1Z " + line },
	"kubectl, docker": func(line string, i int) string {
		text, _ := json.Marshal(map[string]any{"message": line, "kubernetes": map[string]any{"pod": i}})
		return "[pod/web-7d4b9/nginx] " + string(text)
	},
}

// TestWrapped reads the same lines behind all that is known to stand around a line.
func TestWrapped(t *testing.T) {
	for _, log := range madeUpLogs(t) {
		for name, wrap := range wrapped {
			var text strings.Builder
			i := 0
			for line := range strings.Lines(log.lines) {
				text.WriteString(wrap(strings.TrimSuffix(line, "\n"), i) + "\n")
				i++
			}
			options := simulate.ReaderOptions{}
			if strings.Contains(log.format, ":") {
				options.Format = log.format
			}
			what := log.format + " behind " + name
			events, input := read(t, options, text.String())
			if name, _, _ = strings.Cut(name, " 5424"); input.Format != log.format || input.Wrapped != name || input.Malformed > 0 {
				t.Errorf("%s: %+v", what, input)
			}
			wantRequests(t, what, events)
		}
	}
}

// TestRefused: nothing is read of what is no log, or of a log of which too little is known, and the error says why.
func TestRefused(t *testing.T) {
	const line = `192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"` + "\n"
	for _, row := range testtable.Rows[struct{ Format, Text, Want string }](t, "testdata/refused.txt") {
		text := strings.NewReplacer("$LINE", line, "$BZIPPED", bzipped[:20]).Replace(row.Text)
		if got := refused(t, simulate.ReaderOptions{Format: row.Format}, text); !strings.Contains(got, row.Want) {
			t.Errorf("%q by %q: %s; want %q", text, row.Format, got, row.Want)
		}
	}
	// A limit of the command line counts addresses.
	if got := refused(t, simulate.ReaderOptions{Address: true}, "time,klient\n1,a\n"); !strings.Contains(got, "no client; looked for ip, ") ||
		!strings.Contains(got, "found time, klient") {
		t.Error(got)
	}
}

// TestRequestLines: what clients send counts as a request whatever it is, and the first that can't be read is told.
func TestRequestLines(t *testing.T) {
	var text strings.Builder
	for _, request := range []string{
		"GET /x", "GET /a b HTTP/1.1", `\x16\x03\x01`, "-", "", "CONNECT example.com:443 HTTP/1.1", "OPTIONS * HTTP/1.1", `GET /\"\u0041\/ HTTP/1.1`,
	} {
		fmt.Fprintf(&text, "192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] \"%s\" 200 5 \"-\" \"curl\"\n", request)
	}
	events, input := read(t, simulate.ReaderOptions{}, "\ufeff"+text.String())
	var got []string
	for i := range events {
		q := &events[i].Request
		got = append(got, q.Method+" "+q.Host+q.Path)
	}
	want := []string{"GET /x", "GET /a b", " /", " /", " /", "CONNECT example.com:443/", "OPTIONS *", `GET /"A/`}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if input.Malformed != 0 || input.Garbled != 1 || input.FirstGarbled != `line 3: "\\x16\\x03\\x01"` {
		t.Errorf("%+v", input)
	}
}

// TestHops: a list of hops is walked as the service walks it, wherever it stands in the line.
func TestHops(t *testing.T) {
	const rest = ` - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"`
	proxies := clientip.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.5/32")}}
	own := proxies
	own.Headers = []string{"X-Real-Ip"}
	configs := map[string]clientip.Config{"none": {}, "proxies": proxies, "own": own, "whole": {IPv6Prefix: 128}}
	for _, row := range testtable.Rows[struct {
		Config, Want string
		Unbelieved   int
		Format, Line string
	}](t, "testdata/hops.txt") {
		line := strings.ReplaceAll(row.Line, "$REST", rest)
		events, input := read(t, simulate.ReaderOptions{Format: row.Format, ClientIP: configs[row.Config]}, line)
		if len(events) != 1 || events[0].Request.Address != row.Want || input.Forwarded != int64(row.Unbelieved) {
			t.Errorf("%s with %s: %+v %+v; want %s", line, row.Config, events, input, row.Want)
		}
	}
}

// TestBzip2 reads a line that bzip2 has packed, which package compress/bzip2 can't.
func TestBzip2(t *testing.T) {
	if events, input := read(t, simulate.ReaderOptions{}, bzipped); len(events) != 1 || input.Format != "common" {
		t.Errorf("%d requests of %+v", len(events), input)
	}
}

const bzipped = "\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\x95\x03\x46\xed\x00\x00\x13\x5f\x80\x40\x10\x50\x0b\xfb\x30" +
	"\x02\xc0\xc4\x0a\x08\x00\x04\x00\x20\x00\x54\x50\x68\x00\x1a\x19\x02\x28\xf4\xda\x51\xb4\xd4\xd3\x4d" +
	"\x3d\x4d\x0d\xbb\xfb\x57\x6c\x36\xdc\x20\xa1\x15\x48\xc4\xb1\xfc\xb4\xb0\x35\xd6\xc6\x85\x3f\xa2\xf0" +
	"\x1d\x66\xac\x87\x78\xa0\x10\x02\x18\x4b\x44\xa3\x03\xef\xbe\x2e\xe4\x8a\x70\xa1\x21\x2a\x06\x8d\xda"

// TestUnread: a caller may end the reading at the first line that is left out.
func TestUnread(t *testing.T) {
	stop := errors.New("stop")
	r := must.Get(simulate.NewReader(simulate.ReaderOptions{Unread: func(line int64, text string, fault error) error {
		return fmt.Errorf("%w at %d %s: %w", stop, line, text, fault)
	}}))(t)
	const line = `192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	read := 0
	err := r.Read(strings.NewReader(line+line+"oops\n"+line), func(*simulate.Event) error { read++; return nil })
	if !errors.Is(err, stop) || !strings.Contains(err.Error(), `stop at 3 oops: no " " behind $remote_addr`) || read != 2 {
		t.Errorf("%d read, %v", read, err)
	}
}

// TestLongLog: the first 1,000 lines tell the format, and all others are read in it.
func TestLongLog(t *testing.T) {
	var text strings.Builder
	for i := range 3000 {
		if i%4 == 3 {
			text.WriteString("192.0.2.9 oops\n")
		} else {
			text.WriteString(combinedLine(1_790_000_000+int64(i), fmt.Sprint("10.0.0.", i%100), "/") + "\n")
		}
	}
	events, input := read(t, simulate.ReaderOptions{}, text.String())
	if len(events) != 2250 || input.Malformed != 750 || input.Lines != 3000 || input.Requests != 2250 || !strings.HasPrefix(input.FirstMalformed, "line 4: ") ||
		!slices.Equal(input.Clients, []string{"10.0.0.0", "10.0.0.1", "10.0.0.2"}) {
		t.Errorf("%d of %+v", len(events), input)
	}
	for i := range events {
		if want := int64(i/3*4 + i%3 + 1); events[i].Line != want {
			t.Fatalf("request %d is of line %d, want %d", i, events[i].Line, want)
		}
	}
}

// TestTableOfFormats: testdata/formats.txt says of each format whether it is found without --format, and what is said of a
// line that is cut in half, and what is said of a log that is refused.
func TestTableOfFormats(t *testing.T) {
	table := must.Get(os.ReadFile("testdata/formats.txt"))(t)
	code := func(text string) string {
		if text = strings.TrimPrefix(text, "stint: "); len(text) > 160 {
			text = text[:160] + " …"
		}
		return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
	}
	rows, seen := 0, map[string]bool{}
	for _, log := range madeUpLogs(t) {
		if seen[log.format] {
			continue
		}
		seen[log.format] = true
		found := "by `--format`"
		if named := !strings.Contains(log.format, ":"); named {
			_, input := read(t, simulate.ReaderOptions{}, log.lines)
			found = "by its lines"
			if input.Format != log.format {
				found = "as " + code(input.Format)
			}
		}
		lines := strings.Split(strings.TrimSuffix(log.lines, "\n"), "\n")
		last := lines[len(lines)-1]
		events, input := read(t, simulate.ReaderOptions{Format: log.format}, log.lines+last[:len(last)/2]+"\n")
		if len(events) != 4 || input.Malformed != 1 {
			t.Errorf("%s: %d requests of %+v", log.format, len(events), input)
			continue
		}
		fault := strings.TrimSuffix(input.FirstMalformed, fmt.Sprintf(": %q", last[:min(len(last)/2, 200)]))
		_, fault, _ = strings.Cut(fault, ": ")
		row := fmt.Sprintf("| %s | %s | 4 of 4 | %s |\n", code(log.format), found, code(fault))
		if rows++; !strings.Contains(string(table), row) {
			t.Errorf("the table lacks\n%s", row)
		}
	}
	const line = `192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"` + "\n"
	for what, text := range map[string]string{
		"nothing, or blank lines": "\n\n", "no line that is a request": "garbage\n", "requests in less than half of the lines": line + "a\nb\n",
		"JSON without a client": `{"time":"2026-10-10T13:00:00Z","who":"192.0.2.1"}`, "JSON without a time": `{"at":1,"ip":"192.0.2.1"}`,
		"a file of xz": "\xfd7zXZ\x00\x00\x04", "a file of lz4": "\x04\x22\x4d\x18\x64", "a file of zip": "PK\x03\x04\x14", "a file of bzip2 that is cut": bzipped[:20],
		"CSV whose names are unknown": "when,who\n1,a\n", "W3C without `#Fields`": "2026-10-10 13:00:00 192.0.2.1\n",
	} {
		format := map[string]string{
			"W3C without `#Fields`": "w3c", "CSV whose names are unknown": "csv", "JSON without a client": "json", "JSON without a time": "json",
		}[what]
		if row := fmt.Sprintf("| %s | %s |\n", what, code(refused(t, simulate.ReaderOptions{Format: format}, text))); !strings.Contains(string(table), row) {
			t.Errorf("the table lacks\n%s", row)
		}
	}
	if rows < 25 || strings.Count(string(table), "| 4 of 4 |") != rows {
		t.Errorf("%d formats; the table has %d", rows, strings.Count(string(table), "| 4 of 4 |"))
	}
}
