package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The first denial of README.md comes by the commands that it shows, and looks as it shows.
func TestReadme(t *testing.T) {
	_, console, _ := strings.Cut(readFile(t, "../../../README.md"), "```console\n")
	console, _, _ = strings.Cut(console, "```")
	var commands, want strings.Builder
	for line := range strings.Lines(console) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands.WriteString(command)
		} else {
			want.WriteString(line)
		}
	}
	url, _ := start(t, "--store", "memory://")
	script := strings.ReplaceAll(commands.String(), "http://127.0.0.1:8080", url)
	got, err := exec.CommandContext(t.Context(), "bash", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	// A machine that takes a second between the requests has less to wait.
	plain := func(text string) string {
		text = strings.ReplaceAll(text, "\r", "")
		return regexp.MustCompile(`Retry-After: [1-9]\d?\n`).ReplaceAllString(text, "Retry-After: N\n")
	}
	if plain(string(got)) != plain(want.String()) {
		t.Errorf("README.md shows\n%s\nand the service answers\n%s", want.String(), got)
	}
}
