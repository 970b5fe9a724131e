package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// Every message that docs/troubleshooting.md quotes is one of the source: what stands between its placeholders does.
func TestMessages(t *testing.T) {
	var all strings.Builder
	tree := os.DirFS(".")
	must.Do(t, fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		skipped := strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "bench/") || strings.HasSuffix(path, "_test.go")
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || skipped {
			return err
		}
		text, err := fs.ReadFile(tree, path)
		all.Write(text)
		return err
	}))
	// Texts that are put together of several literals, on one line or on several, are read as one. What stands between
	// literals is a variable, and so is a verb.
	source := regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(all.String(), "")
	source = strings.ReplaceAll(source, `\"`, `"`)
	quoted := 0
	for line := range strings.Lines(pages(t)["docs/troubleshooting.md"]) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, message := range groups("`([^`]+)`", cells[1]) {
			quoted++
			// An error of an input is made of its parameter, its value and what is allowed.
			text := regexp.MustCompile(`^(\S+) is …; allowed: `).ReplaceAllString(message, `"$1…`)
			for part := range strings.SplitSeq(text, "…") {
				if part = strings.Trim(part, " ,;:."); part != "" && !strings.Contains(source, part) {
					t.Errorf("no code says %q, of %q", part, message)
				}
			}
		}
	}
	if quoted < 40 {
		t.Errorf("only %d messages were found", quoted)
	}
}
