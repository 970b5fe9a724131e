package main

import (
	"fmt"
	"io"
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

// A command line of a transcript, an arrow, an exit code and a text; and a word of a command line.
var (
	transcribed = regexp.MustCompile(`^(.*?) +(=|~)> (\d+) ?(.*)$`)
	word        = regexp.MustCompile(`(?:'[^']*'|[^\s'])+`)
)

// transcript runs the command lines of a file in testdata, with values for $NAME in them. A line such as
//
//	check k --permits 0 => 1 stint: 400 Bad Request: permits
//
// says with what one exits and what it says, on either output; a text that begins with "stint:" begins the errors. A
// fault says nothing on the standard output. With ~> the line is run until it exits and says so. Lines below $NAME:,
// indented by a tab, are a file of that name.
func transcript(t *testing.T, name string, env map[string]string, values ...string) {
	t.Helper()
	for i := 0; i < len(values); i += 2 {
		values[i] = "$" + values[i]
	}
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
		parts := transcribed.FindStringSubmatch(strings.NewReplacer(values...).Replace(line))
		if parts == nil {
			continue // empty, or a comment
		}
		args := word.FindAllString(parts[1], -1)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "'", "")
		}
		want := strings.ReplaceAll(parts[4], `\n`, "\n")
		run := func() (bad string) {
			code, stdout, stderr := do(t, env, args...)
			fault := code == exitFailed || code == exitUsage || code == exitUnreachable
			if fmt.Sprint(code) != parts[3] || !strings.Contains(stdout+stderr, want) || fault && stdout != "" ||
				strings.HasPrefix(want, "stint:") && !strings.HasPrefix(stderr, want) {
				return fmt.Sprintf("%s: stint %s exits with %d:\n%s%s", name, parts[1], code, stdout, stderr)
			}
			return ""
		}
		if parts[2] == "~" {
			eventually(t, line, func() bool { return run() == "" })
		} else if bad := run(); bad != "" {
			t.Errorf("%s\nwant %s %s", bad, parts[3], parts[4])
		}
	}
}
