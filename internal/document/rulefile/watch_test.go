package rulefile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// A watched is what a source tells a test: the IDs that it has taken, or its faults.
type watched struct {
	t    *testing.T
	told chan string
}

// watch follows a source for as long as the test runs.
func watch(t *testing.T, source rulefile.Source) watched {
	t.Helper()
	w := watched{t, make(chan string, 100)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- source.Follow(ctx, func(set *rules.Set) {
			var ids []string
			for _, rule := range set.Rules() {
				ids = append(ids, rule.ID)
			}
			w.told <- strings.Join(ids, " ")
		}, func(err error) { w.told <- err.Error() })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Follow ends with %v", err)
		}
	})
	return w
}

// next waits for what the source tells next, which has to contain a text.
func (w watched) next(want string) {
	w.t.Helper()
	deadline, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	select {
	case got := <-w.told:
		if !strings.Contains(got, want) {
			w.t.Fatalf("told %q, want %q", got, want)
		}
	case <-deadline.Done():
		w.t.Fatalf("told nothing, want %q", want)
	}
}

// until waits for rules, whatever is told of the moment in which there are none.
func (w watched) until(want string) {
	w.t.Helper()
	deadline, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	for got := ""; got != want; {
		select {
		case got = <-w.told:
		case <-deadline.Done():
			w.t.Fatalf("%q is not told", want)
		}
	}
}

// notified is a source that is read only when the system reports changes.
func notified(path string) rulefile.Source {
	return rulefile.Source{Path: path, Interval: time.Hour, Quiet: 20 * time.Millisecond}
}

func TestWatchAFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "rules.yaml")
	write(t, folder, map[string]string{"rules.yaml": "- {id: a, scope: global, banned: true}"})
	w := watch(t, notified(path))
	w.next("a")
	write(t, folder, map[string]string{"rules.yaml": "- {id: a, scope: global, banned: true}\n- {id: b, scope: global, banned: true}"})
	w.next("a b")
	must.Do(t, os.WriteFile(path, []byte("- {id: c, scope: global, banned: true}"), 0o600)) // written over
	w.until("c")
}

// Whatever is wrong with the files, the rules from before stay, and it is told once.
func TestWatchKeepsWhatItHas(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "rules.yaml")
	write(t, folder, map[string]string{"rules.yaml": "- {id: a, scope: global, banned: true}"})
	w := watch(t, notified(path))
	w.next("a")
	for _, c := range [][2]string{
		{"- id: b\n  sco", "not YAML"},
		{"", "there are no rules"},
		{"- id: b\n  scop: per_ip", "rules.yaml:2:3: "},
		{"- {id: b, scope: global}", "limits is missing"},
	} {
		write(t, folder, map[string]string{"rules.yaml": c[0]})
		w.next(c[1])
		write(t, folder, map[string]string{"other.yaml": c[0]}) // news, but not of these rules
	}
	must.Do(t, os.Remove(path))
	w.next("no such file")
	write(t, folder, map[string]string{"rules.yaml": "- {id: c, scope: global, banned: true}"})
	w.next("c")
}

// A ConfigMap of several files is read as it was at one moment, however often it is replaced.
func TestReadAWholeConfigMap(t *testing.T) {
	folder := t.TempDir()
	names := []string{"1.yaml", "2.yaml", "3.yaml"}
	replace := func(version int) {
		own := fmt.Sprintf("..%d", version)
		err := os.Mkdir(filepath.Join(folder, own), 0o700)
		for i, name := range names {
			text := fmt.Appendf(nil, "- id: v%d-%d", version, i)
			err = errors.Join(err, os.WriteFile(filepath.Join(folder, own, name), text, 0o600))
		}
		err = errors.Join(err, os.Symlink(own, filepath.Join(folder, "..data_tmp")))
		if err = errors.Join(err, os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data"))); err != nil {
			t.Error(err)
		}
	}
	replace(0)
	for _, name := range names {
		must.Do(t, os.Symlink("..data/"+name, filepath.Join(folder, name)))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for version := range 200 {
			replace(version + 1)
		}
	}()
	defer func() { <-done }()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false // but for once more
		default:
		}
		list, _, err := rulefile.Read(folder)
		if err != nil {
			if !strings.Contains(err.Error(), "changed whenever it was read") || !reading {
				t.Fatal(err)
			}
			continue
		}
		of, _, _ := strings.Cut(list[0].ID, "-")
		for i, rule := range list {
			if rule.ID != fmt.Sprintf("%s-%d", of, i) || len(list) != len(names) {
				t.Fatalf("rule %d is %s and the first %s: read of two versions", i, rule.ID, list[0].ID)
			}
		}
	}
}

// A folder that takes the place of another is followed, too.
func TestWatchAFolder(t *testing.T) {
	above := t.TempDir()
	path := filepath.Join(above, "rules")
	for _, name := range []string{"rules", "next"} {
		must.Do(t, os.Mkdir(filepath.Join(above, name), 0o700))
	}
	write(t, path, map[string]string{"1.yaml": "- {id: a, scope: global, banned: true}"})
	w := watch(t, notified(path))
	w.next("a")
	write(t, path, map[string]string{"2.json": `[{"id": "b", "scope": "global", "banned": true}]`})
	w.next("a b")
	write(t, filepath.Join(above, "next"), map[string]string{"1.yaml": "- {id: c, scope: global, banned: true}"})
	must.Do(t, os.Rename(path, filepath.Join(above, "before")))
	must.Do(t, os.Rename(filepath.Join(above, "next"), path))
	w.until("c")
	write(t, path, map[string]string{"1.yaml": "- {id: d, scope: global, banned: true}"})
	w.next("d")
}

// Where no news come from, as of a file that is written by another name, the files are looked at.
func TestWatchAtIntervals(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	write(t, there, map[string]string{"rules.yaml": "- {id: a, scope: global, banned: true}"})
	path := filepath.Join(here, "rules.yaml")
	must.Do(t, os.Link(filepath.Join(there, "rules.yaml"), path))
	w := watch(t, rulefile.Source{Path: path, Interval: 10 * time.Millisecond})
	w.next("a")
	must.Do(t, os.WriteFile(filepath.Join(there, "rules.yaml"), []byte("- {id: b, scope: global, banned: true}"), 0o600))
	w.until("b")
}

func TestSourceRefuses(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"rules.yaml": "[]", "wrong.yaml": "- id: 5"})
	for want, source := range map[string]rulefile.Source{
		"Interval is 1ms; allowed: 10ms to 1h":       {Path: "rules.yaml", Interval: time.Millisecond},
		"Quiet is 1m0s; allowed: 1ms to 10s":         {Path: "rules.yaml", Quiet: time.Minute},
		"wrong.yaml:1:7: rules[0]: id is 5; allowed": {Path: "wrong.yaml"},
		"no such file": {Path: "none.yaml"},
	} {
		source.Path = filepath.Join(folder, source.Path)
		err := source.Follow(t.Context(), func(*rules.Set) { t.Errorf("%s: it is taken over", want) }, func(err error) { t.Error(err) })
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
