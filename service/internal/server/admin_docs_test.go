package server_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// words takes a command apart as a shell does that knows single quotes.
func words(command string) []string {
	var all []string
	for _, word := range regexp.MustCompile(`(?:'[^']*'|[^\s'])+`).FindAllString(command, -1) {
		all = append(all, strings.ReplaceAll(word, "'", ""))
	}
	return all
}

// curl does what a command of the documentation does, and returns what it prints.
func (d *adminFixture) curl(command string) string {
	d.t.Helper()
	method, url, body, head := http.MethodGet, "", "", false
	var fields []string
	for args := words(command)[1:]; len(args) > 0; args = args[1:] {
		argument := func() string { args = args[1:]; return args[0] }
		switch args[0] {
		case "-i":
			head = true
		case "-X":
			method = argument()
		case "-d":
			body = argument()
		case "-H":
			fields = append(fields, argument())
		default:
			url = args[0]
		}
	}
	got := d.ask(method, strings.TrimPrefix(url, "localhost:8079"), body, fields...)
	if !head {
		return got.body
	}
	lines := []string{fmt.Sprintf("HTTP/1.1 %d %s", got.status, http.StatusText(got.status))}
	for name := range got.header {
		lines = append(lines, name+": "+got.header.Get(name))
	}
	slices.Sort(lines)
	return strings.Join(append(lines, got.body), "\n")
}

// The commands of docs/administration.md print what it says, where … stands for anything.
func TestAdministrationDocs(t *testing.T) {
	text := must.Get(os.ReadFile("../../../docs/administration.md"))(t)
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for example := range strings.SplitSeq(block[1], "\n\n") {
			command, output, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(example), "\\\n", " "), "\n")
			command, isCommand := strings.CutPrefix(command, "$ ")
			if !isCommand {
				t.Fatalf("no command: %s", example)
			}
			commands++
			printed := strings.Split(d.curl(command), "\n")
			for line := range strings.SplitSeq(output, "\n") {
				pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$")
				if !slices.ContainsFunc(printed, pattern.MatchString) {
					t.Errorf("%s\nprints\n%s\nwhich lacks\n%s", command, strings.Join(printed, "\n"), line)
				}
			}
		}
	}
	if commands < 15 {
		t.Errorf("only %d commands were found", commands)
	}
}
