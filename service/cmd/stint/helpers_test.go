package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// fetch sends a request, with fields such as "Name: value", and returns the status and the body of the answer.
func fetch(t testing.TB, method, url, body string, fields ...string) (status int, text string) {
	t.Helper()
	status, text, _ = exchange(t, method, url, body, fields...)
	return status, text
}

// exchange is fetch, with the fields of the answer.
func exchange(t testing.TB, method, url, body string, fields ...string) (status int, text string, header http.Header) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		request.Header.Set(name, value)
	}
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	response := must.Get(client.Do(request))(t)
	defer func() { _ = response.Body.Close() }()
	read := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(read), response.Header
}

// get asks a service.
func get(t testing.TB, url string) (status int, body string) {
	t.Helper()
	return fetch(t, http.MethodGet, url, "")
}

// awaitLog waits until a log has a text.
func awaitLog(t testing.TB, log *lines, text string) {
	t.Helper()
	eventually(t, "the log says "+text, func() bool { return strings.Contains(log.String(), text) })
}

// put writes a file, in a folder that is made, beside it, and renames it, as editors do.
func put(t testing.TB, path, text string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path+".new", []byte(text), 0o600))
	must.Do(t, os.Rename(path+".new", path))
}

// writeFile writes a file of the test's own.
func writeFile(t testing.TB, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	put(t, path, text)
	return path
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	return string(text)
}

// says runs a command line, which has to exit with a code and to say something: on the standard output if it is an
// answer, else among the errors.
func says(t testing.TB, env map[string]string, code int, want string, args ...string) (said string) {
	t.Helper()
	got, stdout, stderr := do(t, env, args...)
	of := stderr
	if code == exitOK || code == exitDenied {
		of = stdout
	}
	if got != code || !strings.Contains(of, want) {
		t.Errorf("stint %s exits with %d, want %d and %q:\n%s%s", strings.Join(args, " "), got, code, want, stdout, stderr)
	}
	return stdout + stderr
}

// A command line of a transcript, an arrow, an exit code and a text; a word of a command line; a variable before it.
var (
	transcribed = regexp.MustCompile(`^(.*?) +(=|~)> (\d+) ?(.*)$`)
	word        = regexp.MustCompile(`(?:'[^']*'|[^\s'])+`)
	assigned    = regexp.MustCompile(`^([A-Z_]+)=(.*)$`)
)

// A step of a transcript is a command line, and what it says.
type step struct {
	text       string // of the transcript
	env        map[string]string
	args       []string
	code       string
	want       string
	eventually bool
	marked     map[string][]string // lines below the command line, by their marks
}

// transcript runs the command lines of a file in testdata, with values for $NAME in them. A line such as
//
//	STINT_TIMEOUT=1m check k --permits 0 => 1 stint: 400 Bad Request: permits
//
// says with what one exits and what it says, on either output; a text that begins with "stint:" begins the errors. A
// fault says nothing on the standard output, and nothing ever says hunter2. With ~> the line is run until it does so.
// Lines below $NAME:, indented by a tab, are a file of that name. Below a command line there may be lines with
//
//	& a text that it says, too
//	! a text that it does not say
//	| a line of its standard output, white space aside: all of them, in order; … stands for the rest of one, or of all
func transcript(t *testing.T, name string, env map[string]string, values ...string) {
	t.Helper()
	for i := 0; i < len(values); i += 2 {
		values[i] = "$" + values[i]
	}
	var steps []*step
	for line := range strings.Lines(readFile(t, filepath.Join("testdata", name))) {
		line = strings.TrimSuffix(line, "\n")
		if text, indented := strings.CutPrefix(line, "\t"); indented {
			path := values[len(values)-1]
			put(t, path, readFile(t, path)+text+"\n")
			continue
		}
		if file, begins := strings.CutSuffix(line, ":"); begins && line[0] == '$' {
			values = append(values, file, writeFile(t, ""))
		}
		line = strings.NewReplacer(values...).Replace(line)
		if mark, text, _ := strings.Cut(line, " "); mark == "&" || mark == "!" || mark == "|" {
			last := steps[len(steps)-1]
			last.text += "\n" + line
			last.marked[mark] = append(last.marked[mark], strings.ReplaceAll(text, `\n`, "\n"))
		} else if parts := transcribed.FindStringSubmatch(line); parts != nil { // neither empty nor a comment
			steps = append(steps, newStep(env, parts))
		}
	}
	for _, s := range steps {
		if s.eventually {
			eventually(t, s.text, func() bool { return s.run(t) == "" })
		} else if bad := s.run(t); bad != "" {
			t.Errorf("%s: want\n%s\n%s", name, s.text, bad)
		}
	}
}

func newStep(env map[string]string, parts []string) *step {
	s := &step{
		text: parts[0], env: maps.Clone(env), args: word.FindAllString(parts[1], -1), code: parts[3],
		want: strings.ReplaceAll(parts[4], `\n`, "\n"), eventually: parts[2] == "~", marked: map[string][]string{},
	}
	for i := range s.args {
		s.args[i] = strings.ReplaceAll(s.args[i], "'", "")
	}
	for ; assigned.MatchString(s.args[0]); s.args = s.args[1:] {
		if s.env == nil {
			s.env = map[string]string{}
		}
		pair := assigned.FindStringSubmatch(s.args[0])
		s.env[pair[1]] = pair[2]
	}
	return s
}

// run returns what is wrong with what a command line does.
func (s *step) run(t *testing.T) (bad string) {
	t.Helper()
	code, stdout, stderr := do(t, s.env, s.args...)
	said := stdout + stderr
	good := fmt.Sprint(code) == s.code && strings.Contains(said, s.want) && !strings.Contains(said, "hunter2")
	if strings.HasPrefix(s.want, "stint:") {
		good = good && strings.HasPrefix(stderr, s.want)
	}
	for _, text := range s.marked["&"] {
		good = good && strings.Contains(said, text)
	}
	for _, text := range s.marked["!"] {
		good = good && !strings.Contains(said, text)
	}
	fault := code == exitFailed || code == exitUsage || code == exitUnreachable
	if lines := s.marked["|"]; lines != nil {
		good = good && hasLines(stdout, lines) && (fault || stderr == "")
	} else if fault {
		good = good && stdout == ""
	}
	if good {
		return ""
	}
	return fmt.Sprintf("it exits with %d:\n%s%s", code, stdout, stderr)
}

// hasLines compares an output with lines of a transcript.
func hasLines(output string, want []string) bool {
	got := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	for i, line := range want {
		if line == "…" {
			return i <= len(got)
		}
		if i == len(got) {
			return false
		}
		text := strings.Join(strings.Fields(got[i]), " ")
		if begin, open := strings.CutSuffix(line, "…"); text != line && (!open || !strings.HasPrefix(text, begin)) {
			return false
		}
	}
	return len(got) == len(want)
}
