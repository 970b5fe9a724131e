package file_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

// A watched is what Watch tells a test: the IDs that it applied, or what it logged as an
// error.
type watched struct {
	t    *testing.T
	told chan string
}

// watch follows a path for as long as the test runs.
func watch(t *testing.T, path string, options file.Options) watched {
	t.Helper()
	w := watched{t, make(chan string, 100)}
	ctx, stop := context.WithCancel(t.Context())
	options.Apply = func(list []rules.Rule, positions []document.Position) error {
		var ids []string
		for _, rule := range list {
			ids = append(ids, rule.ID)
		}
		if len(positions) != len(list) {
			t.Errorf("%d places of %d rules", len(positions), len(list))
		}
		if strings.Join(ids, " ") == "refused" {
			return errors.New("not those")
		}
		w.told <- strings.Join(ids, " ")
		return nil
	}
	options.Logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelError}))
	ended := make(chan error, 1)
	go func() { ended <- file.Watch(ctx, path, options) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Watch ends with %v", err)
		}
	})
	return w
}

// Write takes a line of the log.
func (w watched) Write(line []byte) (int, error) {
	w.told <- string(line)
	return len(line), nil
}

// next waits for what Watch tells next, which has to contain a text.
func (w watched) next(want string) {
	w.t.Helper()
	deadline, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
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
	deadline, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	for got := ""; got != want; {
		select {
		case got = <-w.told:
		case <-deadline.Done():
			w.t.Fatalf("%q is not told", want)
		}
	}
}

// Looks at intervals do not help: these tests live on news.
var news = file.Options{Interval: time.Hour, Quiet: 20 * time.Millisecond}

func TestWatchAFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "rules.yaml")
	write(t, folder, map[string]string{"rules.yaml": "- id: a"})
	w := watch(t, path, news)
	w.next("a")
	write(t, folder, map[string]string{"rules.yaml": "- id: a\n- id: b"})
	w.next("a b")
	if err := os.WriteFile(path, []byte("- id: c"), 0o600); err != nil { // written over
		t.Fatal(err)
	}
	w.until("c")
}

// Whatever is wrong with the files, the rules from before stay, and it is told once.
func TestWatchKeepsWhatItHas(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "rules.yaml")
	write(t, folder, map[string]string{"rules.yaml": "- id: a"})
	w := watch(t, path, news)
	w.next("a")
	for _, c := range [][2]string{
		{"- id: b\n  sco", "not YAML"},
		{"", "there are no rules"},
		{"- id: b\n  scop: per_ip", "rules.yaml:2:3: "},
		{"- id: refused", "not those"},
	} {
		write(t, folder, map[string]string{"rules.yaml": c[0]})
		w.next(c[1])
		write(t, folder, map[string]string{"other.yaml": c[0]}) // news, but not of these rules
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.next("no such file")
	write(t, folder, map[string]string{"rules.yaml": "- id: c"})
	w.next("c")
}

// Kubernetes mounts a ConfigMap as links to files in a folder that is itself behind a link,
// ..data, which is replaced in one step.
func TestWatchAConfigMap(t *testing.T) {
	for _, path := range []string{"", "rules.yaml"} {
		folder := t.TempDir()
		mount := func(version, text string) {
			t.Helper()
			if err := os.Mkdir(filepath.Join(folder, version), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(folder, version), map[string]string{"rules.yaml": text})
			if err := os.Symlink(version, filepath.Join(folder, "..data_tmp")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")); err != nil {
				t.Fatal(err)
			}
		}
		mount("..1", "- id: a")
		if err := os.Symlink("..data/rules.yaml", filepath.Join(folder, "rules.yaml")); err != nil {
			t.Fatal(err)
		}
		w := watch(t, filepath.Join(folder, path), news)
		w.next("a")
		mount("..2", "- id: b")
		w.next("b")
		if err := os.RemoveAll(filepath.Join(folder, "..1")); err != nil {
			t.Fatal(err)
		}
		mount("..3", "- id: c")
		w.next("c")
	}
}

// A ConfigMap of several files is read as it was at one moment, however often it is replaced.
func TestReadAWholeConfigMap(t *testing.T) {
	folder := t.TempDir()
	names := []string{"1.yaml", "2.yaml", "3.yaml"}
	replace := func(version int) {
		own := fmt.Sprintf("..%d", version)
		if err := os.Mkdir(filepath.Join(folder, own), 0o700); err != nil {
			t.Error(err)
		}
		for i, name := range names {
			if err := os.WriteFile(filepath.Join(folder, own, name), fmt.Appendf(nil, "- id: v%d-%d", version, i), 0o600); err != nil {
				t.Error(err)
			}
		}
		if err := os.Symlink(own, filepath.Join(folder, "..data_tmp")); err != nil {
			t.Error(err)
		}
		if err := os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")); err != nil {
			t.Error(err)
		}
	}
	replace(0)
	for _, name := range names {
		if err := os.Symlink("..data/"+name, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
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
		list, _, err := file.Read(folder)
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
		if err := os.Mkdir(filepath.Join(above, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, path, map[string]string{"1.yaml": "- id: a"})
	w := watch(t, path, news)
	w.next("a")
	write(t, path, map[string]string{"2.json": `[{"id": "b"}]`})
	w.next("a b")
	write(t, filepath.Join(above, "next"), map[string]string{"1.yaml": "- id: c"})
	if err := os.Rename(path, filepath.Join(above, "before")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(above, "next"), path); err != nil {
		t.Fatal(err)
	}
	w.until("c")
	write(t, path, map[string]string{"1.yaml": "- id: d"})
	w.next("d")
}

// Where no news come from, as behind a link to elsewhere, the files are looked at.
func TestWatchAtIntervals(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	write(t, there, map[string]string{"rules.yaml": "- id: a"})
	path := filepath.Join(here, "rules.yaml")
	if err := os.Symlink(filepath.Join(there, "rules.yaml"), path); err != nil {
		t.Fatal(err)
	}
	w := watch(t, path, file.Options{Interval: 10 * time.Millisecond})
	w.next("a")
	write(t, there, map[string]string{"new.yaml": "- id: b"})
	if err := os.Rename(filepath.Join(there, "new.yaml"), filepath.Join(there, "rules.yaml")); err != nil {
		t.Fatal(err)
	}
	w.next("b")
}

func TestWatchRefuses(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"rules.yaml": "- id: a", "wrong.yaml": "- id: 5", "refused.yaml": "- id: refused"})
	refuse := func([]rules.Rule, []document.Position) error { return errors.New("not those") }
	for want, c := range map[string]struct {
		name    string
		options file.Options
	}{
		"Apply is \"nil\"; allowed: a function":      {"rules.yaml", file.Options{}},
		"Interval is 1ms; allowed: 10ms to 1h":       {"rules.yaml", file.Options{Apply: refuse, Interval: time.Millisecond}},
		"Quiet is 1m0s; allowed: 1ms to 10s":         {"rules.yaml", file.Options{Apply: refuse, Quiet: time.Minute}},
		"wrong.yaml:1:7: rules[0]: id is 5; allowed": {"wrong.yaml", file.Options{Apply: refuse}},
		"no such file": {"none.yaml", file.Options{Apply: refuse}},
		"not those":    {"refused.yaml", file.Options{Apply: refuse}},
	} {
		err := file.Watch(t.Context(), filepath.Join(folder, c.name), c.options)
		if err == nil || !strings.Contains(err.Error(), want) || want != "not those" && !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
