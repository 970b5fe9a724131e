package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Each command has a man page, and completions know each command and flag.
func TestManPagesAndCompletions(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "man")
	if code, _, stderr := do(t, nil, "man", folder); code != exitOK {
		t.Fatalf("%d, %s", code, stderr)
	}
	for name, want := range map[string]string{
		"stint.1":               `stint\-check(1)`,
		"stint-serve.1":         `\fB\-\-store\fR \fIURL\fR`,
		"stint-rules-explain.1": `\fB\-\-method\fR`,
	} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s says\n%s\n%v; want %s in it", name, text, err, want)
		}
	}
	if pages, err := filepath.Glob(filepath.Join(folder, "stint-man*")); err != nil || len(pages) > 0 {
		t.Errorf("pages of what is hidden: %v, %v", pages, err)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		says(t, nil, exitOK, "stint", "completion", shell)
	}
	if _, words, _ := do(t, nil, "__complete", "ru"); !strings.HasPrefix(words, "rules\t") {
		t.Errorf("ru is completed to %q", words)
	}
}

// help.txt says of each command what it does, and of each flag what it means.
func TestHelpIsComplete(t *testing.T) {
	var look func(command *cobra.Command)
	look = func(command *cobra.Command) {
		if command.Short == "" {
			t.Errorf("nothing is said of %s", command.CommandPath())
		}
		command.Flags().VisitAll(func(flag *pflag.Flag) {
			if flag.Usage == "" {
				t.Errorf("nothing is said of %s --%s", command.CommandPath(), flag.Name)
			}
		})
		for _, below := range command.Commands() {
			look(below)
		}
	}
	look(rootCommand(process{Env: environment(nil)}, new(bool)))
}
