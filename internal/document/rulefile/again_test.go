package rulefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
)

// A file that was refused, or gone, and is as it was again is taken once more.
func TestSourceTakesAgain(t *testing.T) {
	folder := t.TempDir()
	const sound = "- {id: a, scope: global, banned: true}\n"
	write(t, folder, map[string]string{"rules.yaml": sound})
	w := watch(t, rulefile.Source{Path: filepath.Join(folder, "rules.yaml")})
	w.next("a")
	write(t, folder, map[string]string{"rules.yaml": "- {id: a, scope: moon}\n"})
	w.next("moon")
	write(t, folder, map[string]string{"rules.yaml": sound})
	w.next("a")
	must.Do(t, os.Remove(filepath.Join(folder, "rules.yaml")))
	w.next("no such file")
	write(t, folder, map[string]string{"rules.yaml": sound})
	w.next("a")
}
