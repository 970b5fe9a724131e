package rulefile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fsnotify/fsnotify"
)

// Folders are watched as long as links lead there, and no longer.
func TestListenForgets(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	notes, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = notes.Close() }()
	path := filepath.Join(root, "rules.yaml")
	w, err := (&Source{Path: path}).watch(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		folder := filepath.Join(root, fmt.Sprint(i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(path)
		if err := os.Symlink(filepath.Join(folder, "rules.yaml"), path); err != nil {
			t.Fatal(err)
		}
		w.listen(notes)
		watched := notes.WatchList()
		slices.Sort(watched)
		if want := []string{root, folder}; !slices.Equal(watched, want) {
			t.Errorf("%q is watched, want %q", watched, want)
		}
	}
	// A link to itself leads nowhere.
	_ = os.Remove(path)
	if err := os.Symlink("rules.yaml", path); err != nil {
		t.Fatal(err)
	}
	if places := w.places(); !slices.Equal(places, []string{root}) {
		t.Errorf("%q is watched", places)
	}
}
