package rulefile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/stint-go/stint/internal/must"
)

// Folders are watched as long as links lead there, and no longer.
func TestListenForgets(t *testing.T) {
	root := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	notes := must.Get(fsnotify.NewWatcher())(t)
	defer func() { _ = notes.Close() }()
	path := filepath.Join(root, "rules.yaml")
	w := must.Get((&Source{Path: path}).watch(nil))(t)
	for i := range 20 {
		folder := filepath.Join(root, fmt.Sprint(i))
		must.Do(t, os.Mkdir(folder, 0o700))
		_ = os.Remove(path)
		must.Do(t, os.Symlink(filepath.Join(folder, "rules.yaml"), path))
		w.listen(notes)
		watched := notes.WatchList()
		slices.Sort(watched)
		if want := []string{root, folder}; !slices.Equal(watched, want) {
			t.Errorf("%q is watched, want %q", watched, want)
		}
	}
	// A link to itself leads nowhere.
	_ = os.Remove(path)
	must.Do(t, os.Symlink("rules.yaml", path))
	if places := w.places(); !slices.Equal(places, []string{root}) {
		t.Errorf("%q is watched", places)
	}
}
