package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// library are the folders of the modules that a program may import, except the root: those of go.work, without
// the program stint and what is for those who work on it.
func library(t *testing.T) (folders []string) {
	t.Helper()
	work, err := os.ReadFile("go.work")
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range regexp.MustCompile(`(?m)^\t\./(\S+)$`).FindAllStringSubmatch(string(work), -1) {
		switch use[1] {
		case "bench", "examples", "service", "test":
		default:
			folders = append(folders, use[1])
		}
	}
	if len(folders) < 8 {
		t.Fatalf("go.work has the modules %q", folders)
	}
	return folders
}

// The command by which a program takes stint from a clone replaces every module of it.
func TestReplacements(t *testing.T) {
	page, err := os.ReadFile("docs/start.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("(?m)^.*go mod edit$").FindString(string(page))
	if command == "" {
		t.Fatal("docs/start.md has no command that ends with go mod edit")
	}
	clone, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	beside := t.TempDir()
	if err := os.Symlink(clone, filepath.Join(beside, "stint")); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(beside, "program")
	if err := os.Mkdir(program, 0o700); err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-ec", "go mod init example.com/program\n"+command)
	shell.Dir = program
	shell.Env = append(os.Environ(), "GOWORK=")
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mod, err := os.ReadFile(filepath.Join(program, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
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
	for _, name := range []string{"docs/start.md", "docs/observe.md", "docs/middleware.md"} {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(page)) {
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
