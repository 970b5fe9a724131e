package measure_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
	"github.com/stint-go/stint/internal/testredis"
)

var rounds = flag.Int("rounds", 2, "make so many `requests` of each kind, and count the files that all of them ran through")

const root = "../.."

// TestMeasure counts the files whose counters of coverage rise in each of several warm requests, so that what happens to
// run in the background is left out.
func TestMeasure(t *testing.T) {
	redis := testredis.Start(t)
	stint := build(t, "service/cmd/stint")
	for _, row := range []struct {
		what string
		of   func(t *testing.T) (do func(), programs []*program)
	}{
		{"a take of the library on Redis", func(t *testing.T) (func(), []*program) {
			take := start(t, build(t, "test/measure/testdata/take"), redis.URL())
			return take.take, []*program{take}
		}},
		{"a check by REST on Redis", func(t *testing.T) (func(), []*program) {
			service := start(t, stint, serve(redis)...)
			return func() {
				send(t, http.MethodGet, service.http+"/api/v1/rate-limit/check?key=ann&algorithm=FIXED_WINDOW", "")
			}, []*program{service}
		}},
		{"a rule's PUT until another process has it in force", func(t *testing.T) (func(), []*program) {
			first, second := start(t, stint, serve(redis)...), start(t, stint, serve(redis)...)
			limit := 1000
			return func() {
				limit++
				put(t, first, second, limit)
			}, []*program{first, second}
		}},
	} {
		t.Run(row.what, func(t *testing.T) {
			do, programs := row.of(t)
			for range 50 {
				do()
			}
			var files []string
			for round := range *rounds {
				touched := during(t, do, programs)
				if round == 0 {
					files = touched
				}
				files = slices.DeleteFunc(files, func(file string) bool { return !slices.Contains(touched, file) })
			}
			types := 0
			for _, file := range files {
				types += typesIn(t, file)
			}
			if len(files) == 0 {
				t.Fatal("no file is run through")
			}
			fmt.Printf("%-52s %3d files %4d types\n", row.what, len(files), types)
			t.Log("\n  " + strings.Join(files, "\n  "))
		})
	}
}

func serve(redis *testredis.Server) []string {
	return []string{
		"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--store", redis.URL(), "--rules-from", redis.URL(),
	}
}

// build builds a program that counts, and returns its path.
func build(t *testing.T, dir string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "program")
	must.Do(t, testprogram.Build(root, "-o", binary, "-cover", "-covermode", "atomic", "-tags", "measure",
		"-coverpkg", "github.com/stint-go/stint/...", "./"+dir))
	return binary
}

// A program is one that counts, and runs.
type program struct {
	t      *testing.T
	dir    string // of what it counts
	counts int
	*testprogram.Process
	http, admin string // URLs, if it is the service
	in          io.Writer
	out         *bufio.Scanner
}

func start(t *testing.T, binary string, args ...string) *program {
	t.Helper()
	p := &program{t: t, dir: t.TempDir()}
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Env = append(os.Environ(), "MEASURE="+p.dir, "GOCOVERDIR="+t.TempDir())
	p.in = must.Get(command.StdinPipe())(t)
	p.out = bufio.NewScanner(must.Get(command.StdoutPipe())(t))
	var listeners, at []string
	if args[0] == "serve" {
		listeners = testprogram.Listeners("http", "admin")
	}
	if p.Process, at = testprogram.Start(t, command, listeners...); at != nil {
		p.http, p.admin = "http://"+at[0], "http://"+at[1]
	}
	return p
}

// take has the program take a permit.
func (p *program) take() {
	_, err := p.in.Write([]byte("\n"))
	if err != nil || !p.out.Scan() || p.out.Text() != "true" {
		p.t.Fatal(err, p.out.Text())
	}
}

// signal sends a signal and waits until a folder is there that tells what came of it.
func (p *program) signal(s syscall.Signal, folder string) string {
	path := filepath.Join(p.dir, folder)
	must.Do(p.t, p.Signal(s))
	eventually(p.t, folder, func() bool { _, err := os.Stat(path); return err == nil })
	return path
}

// eventually waits for something that will come.
var eventually = testprogram.Until

// during are the files whose counters rise in any of the programs.
func during(t *testing.T, do func(), programs []*program) (files []string) {
	t.Helper()
	for _, p := range programs {
		p.counts++
		p.signal(syscall.SIGUSR1, strconv.Itoa(p.counts)+".cleared")
	}
	do()
	for _, p := range programs {
		counted := p.signal(syscall.SIGUSR2, strconv.Itoa(p.counts))
		profile := filepath.Join(counted, "profile")
		out, err := exec.CommandContext(t.Context(), "go", "tool", "covdata", "textfmt", "-i", counted, "-o", profile).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		text := must.Get(os.ReadFile(profile))(t)
		for line := range strings.Lines(string(text)) {
			path, counts, _ := strings.Cut(line, ":")
			file, ours := strings.CutPrefix(path, "github.com/stint-go/stint/")
			if ours && !strings.HasSuffix(counts, " 0\n") && !strings.HasPrefix(file, "test/") && filepath.Base(file) != "measure.go" {
				files = append(files, file)
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// typesIn counts the types that a file declares.
func typesIn(t *testing.T, file string) (n int) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		if _, is := node.(*ast.TypeSpec); is {
			n++
		}
		return true
	})
	return n
}

// put edits a rule by one process, and waits until it is in force in another.
func put(t *testing.T, first, second *program, limit int) {
	t.Helper()
	body := fmt.Sprintf(`{"scope":"global","limits":[{"algorithm":"fixed_window","limit":%d,"window":"1h"}]}`, limit)
	if status, text := send(t, http.MethodPut, first.admin+"/api/v1/rules/all", body); status != http.StatusOK && status != http.StatusCreated {
		t.Fatal(status, text)
	}
	eventually(t, "the rule is in force", func() bool {
		_, text := send(t, http.MethodGet, second.admin+"/api/v1/rules/all", "")
		return strings.Contains(text, strconv.Itoa(limit))
	})
}

// send makes a request, and returns its status and its answer.
func send(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body)))(t)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer func() { _ = response.Body.Close() }()
	answer := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(answer)
}
