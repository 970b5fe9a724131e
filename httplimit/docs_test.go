package httplimit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The snippets of docs/middleware.md stand in compiled examples. Only the
// handling of errors differs, and the clock, which stands still so that every run prints the same.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/middleware.md")
	if err != nil {
		t.Fatal(err)
	}
	var examples strings.Builder
	for _, pattern := range []string{"example*_test.go", "../grpclimit/example*_test.go", "*/example_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no example in %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			examples.Write(text)
		}
	}
	handling := regexp.MustCompile(`(?m)^\s*if err != nil \{\n\s*fmt\.Println\(err\)\n\s*return\n\s*\}\n`)
	compiled := unindented(handling.ReplaceAllString(examples.String(), ""))
	compiled = strings.ReplaceAll(compiled, "memstore.Config{Now: still}", "memstore.Config{}")
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, snippet := range snippets {
		if !strings.Contains(compiled, unindented(snippet[1])) {
			t.Errorf("no example has\n%s", snippet[1])
		}
	}
	if len(snippets) == 0 {
		t.Error("the page has no snippet")
	}
}

// unindented is a text whose lines have lost the space around them.
func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n") + "\n"
}
