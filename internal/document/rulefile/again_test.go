package rulefile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// A file that was refused, or gone, and is as it was again is taken once more.
func TestSourceTakesAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	put := func(text string) {
		t.Helper()
		must.Do(t, os.WriteFile(path+".new", []byte(text), 0o600))
		must.Do(t, os.Rename(path+".new", path))
	}
	const sound = "- {id: a, scope: global, banned: true}\n"
	put(sound)
	heard := make(chan string, 10)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- rulefile.Source{Path: path}.Follow(ctx, func(set *rules.Set) { heard <- fmt.Sprint("taken: ", set.Len()) }, func(error) { heard <- "refused" })
	}()
	expect := func(what, want string) {
		t.Helper()
		late, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		case <-late.Done():
			t.Fatalf("%s: nothing, want %s", what, want)
		}
	}
	expect("at first", "taken: 1")
	put("- {id: a, scope: moon}\n")
	expect("faulty", "refused")
	put(sound)
	expect("put back", "taken: 1")
	must.Do(t, os.Remove(path))
	expect("gone", "refused")
	put(sound)
	expect("there again", "taken: 1")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
