package docs_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
)

// programs is the folder with the service, which is built when a test first needs it.
var programs string

var stintProgram = sync.OnceValues(func() (string, error) {
	var err error
	if programs, err = os.MkdirTemp("", "docs"); err != nil {
		return "", err
	}
	file := filepath.Join(programs, "stint")
	return file, testprogram.Build(".", "-o", file, "./service/cmd/stint")
})

// A service is a `stint serve` of a page.
type service struct {
	api, admin string // HOST:PORT
	folder     string // of its configuration, stint.yaml
	program    string
}

// serve starts the service with a configuration, beside which there are files, until the test ends.
func serve(t *testing.T, configuration string, files map[string]string, more ...string) *service {
	t.Helper()
	s := &service{folder: t.TempDir(), program: must.Get(stintProgram())(t)}
	for name, text := range files {
		s.write(t, name, text)
	}
	s.write(t, "stint.yaml", configuration)
	command := exec.CommandContext(context.WithoutCancel(t.Context()), s.program, append([]string{
		"serve", "--config", "stint.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
	}, more...)...)
	command.Dir = s.folder
	_, at := testprogram.Start(t, command, testprogram.Listeners("http", "admin")...)
	s.api, s.admin = at[0], at[1]
	return s
}

// write replaces a file beside the configuration in one step.
func (s *service) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(s.folder, name)
	must.Do(t, errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)))
}

// shell runs a command as a reader does in the folder of the configuration, at the service's own ports, and returns what it
// prints.
func (s *service) shell(t *testing.T, command string) string {
	t.Helper()
	command = regexp.MustCompile(`(127\.0\.0\.1|localhost):8080`).ReplaceAllString(command, s.api)
	command = regexp.MustCompile(`(127\.0\.0\.1|localhost):8079`).ReplaceAllString(command, s.admin)
	shell := exec.CommandContext(t.Context(), "bash", "-c", command)
	shell.Dir = s.folder
	shell.Env = append(os.Environ(), "PATH="+filepath.Dir(s.program)+":"+os.Getenv("PATH"), "STINT_ADMIN=http://"+s.admin)
	out, err := shell.Output() // curl reports its progress on standard error
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.ReplaceAll(string(out), "\r", ""))
}

// blocks are the blocks of code of a page in a language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	return groups("(?s)```"+language+"\n(.*?)```", read(t, page)[page])
}

// expect runs a command, and reports lines that it does not print.
func (s *service) expect(t *testing.T, command, want string) {
	t.Helper()
	expectLines(t, command, s.shell(t, command), want)
}

// session runs the commands of a page's console blocks, and expects that they print what the page says: line for line, where …
// stands for anything. A command begins with "$ " and ends before its output; an empty line ends the output. It returns
// how many commands there were.
func (s *service) session(t *testing.T, consoles ...string) (commands int) {
	t.Helper()
	for _, console := range consoles {
		for example := range strings.SplitSeq(console, "\n\n") {
			command, output, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(example), "\\\n", " "), "\n")
			command, isCommand := strings.CutPrefix(command, "$ ")
			if !isCommand {
				t.Fatalf("no command: %s", example)
			}
			commands++
			s.expect(t, command, output)
		}
	}
	return commands
}

// expectLines reports lines that a command does not print in this order; others may stand between them.
func expectLines(t *testing.T, command, printed, want string) {
	t.Helper()
	lines := strings.Split(printed, "\n")
	for line := range strings.SplitSeq(want, "\n") {
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*") + "$")
		at := slices.IndexFunc(lines, func(l string) bool { return pattern.MatchString(strings.TrimSpace(l)) })
		if at < 0 {
			t.Errorf("%s\nprints\n%s\nwhich lacks\n%s", command, printed, line)
			return
		}
		lines = lines[at+1:]
	}
}

// `make run` prints where the service listens, whatever it was told: the request and the token that it prints work.
func TestMakeRunSaysWhere(t *testing.T) {
	file := must.Get(stintProgram())(t)
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "scripts/run", file, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout := must.Get(command.StdoutPipe())(t)
	must.Do(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_, _ = io.Copy(io.Discard, stdout)
		_ = command.Wait()
	})
	said := map[string]string{}
	for lines := bufio.NewScanner(stdout); said["Token:"] == "" && lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 1 {
			said[fields[0]] = strings.Trim(fields[len(fields)-1], "'")
		}
	}
	for what, url := range map[string]string{"the request": said["curl"], "the dashboard": said["Dashboard:"], "the token": said["Dashboard:"] + "api/v1/rules"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatalf("%s: %v; it prints %v", what, err, said)
		}
		r.Header.Set("Authorization", "Bearer "+said["Token:"])
		answer := must.Get(http.DefaultClient.Do(r))(t)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s, %s: %s", what, url, answer.Status)
		}
	}
}
