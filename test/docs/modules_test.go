package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// library are the folders of the modules that a program may import, except the root: those of go.work, without
// the program stint and what is for those who work on it.
func library(t *testing.T) (folders []string) {
	t.Helper()
	for _, folder := range groups(`(?m)^\t\./(\S+)$`, read(t, "go.work")["go.work"]) {
		if !slices.Contains([]string{"bench", "examples", "service", "test"}, folder) {
			folders = append(folders, folder)
		}
	}
	if len(folders) < 8 {
		t.Fatalf("go.work has the modules %q", folders)
	}
	return folders
}

// The command by which a program takes stint from a clone replaces every module of it.
func TestReplacements(t *testing.T) {
	command := regexp.MustCompile("(?m)^.*go mod edit$").FindString(pages(t)["docs/start.md"])
	if command == "" {
		t.Fatal("docs/start.md has no command that ends with go mod edit")
	}
	clone := must.Get(os.Getwd())(t)
	beside := t.TempDir()
	must.Do(t, os.Symlink(clone, filepath.Join(beside, "stint")))
	program := filepath.Join(beside, "program")
	must.Do(t, os.Mkdir(program, 0o700))
	shell := exec.CommandContext(t.Context(), "sh", "-ec", "go mod init example.com/program\n"+command)
	shell.Dir = program
	shell.Env = append(os.Environ(), "GOWORK=")
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mod := must.Get(os.ReadFile(filepath.Join(program, "go.mod")))(t)
	for _, folder := range append(library(t), "") {
		module := strings.TrimSuffix("github.com/stint-go/stint/"+folder, "/")
		if !regexp.MustCompile(`(?m)(^replace |^\t)` + regexp.QuoteMeta(module) + ` => `).Match(mod) {
			t.Errorf("%s is not replaced:\n%s", module, mod)
		}
	}
}

// A page for Go programmers that lists an import says so if it is a module of its own, since it has its own go get.
func TestModulesOfTheirOwn(t *testing.T) {
	listed := 0
	for name, page := range read(t, "docs/start.md", "docs/observe.md", "docs/middleware.md") {
		for line := range strings.Lines(page) {
			for _, folder := range library(t) {
				named := strings.Contains(line, "stint/"+folder+"`") || strings.Contains(line, "`"+folder+"`")
				if !named || !strings.HasPrefix(line, "|") {
					continue
				}
				listed++
				if !strings.Contains(line, "module of its own") {
					t.Errorf("%s lists %s, and does not say that it is a module of its own", name, folder)
				}
			}
		}
	}
	if listed < 6 {
		t.Errorf("only %d modules are listed", listed)
	}
}

// The table of imports says how many modules of others a program compiles with each, and has in its graph.
func TestModulesCounted(t *testing.T) {
	clone := must.Get(os.Getwd())(t)
	replaced := "\tgithub.com/stint-go/stint => " + clone + "\n"
	for _, folder := range library(t) {
		replaced += "\tgithub.com/stint-go/stint/" + folder + " => " + filepath.Join(clone, folder) + "\n"
	}
	rows := regexp.MustCompile("(?m)^\\| `(github.com/stint-go/stint[^`]*)` \\|.*\\| (\\d+, \\d+) \\|$").FindAllStringSubmatch(pages(t)["docs/start.md"], -1)
	if len(rows) < 8 {
		t.Fatalf("only %d imports are counted", len(rows))
	}
	for _, row := range rows {
		program := t.TempDir()
		for name, text := range map[string]string{
			"go.mod":  "module example.com/program\n\ngo 1.26.0\n\nreplace (\n" + replaced + ")\n",
			"main.go": "package main\n\nimport _ \"" + row[1] + "\"\n\nfunc main() {}\n",
		} {
			must.Do(t, os.WriteFile(filepath.Join(program, name), []byte(text), 0o600))
		}
		count := func(arguments ...string) int {
			list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-mod=mod"}, arguments...)...)
			list.Dir = program
			list.Env = append(os.Environ(), "GOWORK=off")
			out, err := list.Output()
			if err != nil {
				t.Fatalf("go list %q: %v", arguments, err)
			}
			modules := map[string]bool{}
			for name := range strings.FieldsSeq(string(out)) {
				if name != "example.com/program" && !strings.HasPrefix(name, "github.com/stint-go/stint") {
					modules[name] = true
				}
			}
			return len(modules)
		}
		got := fmt.Sprintf("%d, %d", count("-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."), count("-m", "-f", "{{.Path}}", "all"))
		if got != row[2] {
			t.Errorf("%s: the page counts %s; go list %s", row[1], row[2], got)
		}
	}
}
