package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// TestSources: the dashboard that is embedded was built of the sources that are here, as those of a release are.
func TestSources(t *testing.T) {
	text, err := os.ReadFile("dist/SOURCES")
	if err != nil {
		if h, err := New(); err != nil || h.Built() {
			t.Errorf("a dashboard of unknown sources is embedded: %v; run make web", err)
		}
		return
	}
	const from, web = "service/web/", "../../../web"
	var of, want []string
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want = append(want, strings.TrimPrefix(name, from)+" "+sum)
	}
	must.Do(t, filepath.WalkDir(web, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "node_modules":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		text, err := os.ReadFile(name) //nolint:gosec // of this repository
		sum := sha256.Sum256(text)
		of = append(of, path.Clean(strings.TrimPrefix(filepath.ToSlash(name), web+"/"))+" "+hex.EncodeToString(sum[:]))
		return err
	}))
	known := map[string]bool{}
	for _, line := range want {
		known[line] = true
	}
	for _, line := range of {
		if !known[line] {
			t.Errorf("the embedded dashboard was not built of %s as it is; run make web", line)
		}
	}
	if len(of) != len(want) {
		t.Errorf("it was built of %d files, and there are %d", len(want), len(of))
	}
}
