package rulefile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// A Source is the rules of a file or a folder, with the ranges and defaults of the public Source of rules/file.
type Source struct {
	Path        string
	StrictSlash bool
	IPv6Prefix  int
	Interval    time.Duration
	Quiet       time.Duration
	Logger      *slog.Logger
}

// Follow makes a set of the rules whenever the files change, until ctx is done. The first time it returns their
// faults, as [ReadSet] does. After that refused is called with the faults, once for each
// text, and the rules that were taken last stay. They also stay while files are missing.
func (s Source) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
	var current *rules.Set
	w, err := s.watch(func(texts []Text) error {
		set, list, err := parse(texts).set(nil, rules.Options{
			Previous: current, StrictSlash: s.StrictSlash, IPv6Prefix: s.IPv6Prefix,
		})
		if err != nil {
			return err
		}
		current = set
		take(set)
		s.Logger.Debug("rules taken over", "path", s.Path, "rules", len(list))
		return nil
	})
	if err == nil {
		err = w.read()
	}
	if err != nil {
		return err
	}
	w.follow(ctx, refused)
	return nil
}

// Follow calls read, and again whenever the text of the file or the folder of a path is another,
// until ctx is done. Its errors, and those of files that can't be read, are told to refused, once
// for each text. A nil logger is told nothing.
func Follow(ctx context.Context, path string, logger *slog.Logger, read func() error, refused func(error)) {
	s := Source{Path: path, Logger: logger}
	w, err := s.watch(func([]Text) error { return read() })
	if err != nil {
		refused(err)
		return
	}
	w.follow(ctx, refused)
}

// watch fills in what is left out, and makes a watch of the source.
func (s *Source) watch(take func([]Text) error) (*watch, error) {
	if s.Interval == 0 {
		s.Interval = 30 * time.Second
	}
	if s.Quiet == 0 {
		s.Quiet = 100 * time.Millisecond
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	var faults []error
	if s.Interval < 10*time.Millisecond || s.Interval > time.Hour {
		faults = append(faults, stint.Invalid("Interval", s.Interval, "10ms to 1h"))
	}
	if s.Quiet < time.Millisecond || s.Quiet > 10*time.Second {
		faults = append(faults, stint.Invalid("Quiet", s.Quiet, "1ms to 10s"))
	}
	w := &watch{Source: s, take: take}
	w.load = func() ([]Text, error) { return load(s.Path) }
	w.names = func() []string { return entries(s.Path) }
	return w, prefix.Join(faults...)
}

// follow reads whenever something changes, until ctx is done.
func (w *watch) follow(ctx context.Context, refused func(error)) {
	notes, err := fsnotify.NewWatcher()
	if err != nil {
		w.Logger.Warn("the system reports no changes of files; they are read at intervals", "path", w.Path, "err", err)
		notes = &fsnotify.Watcher{} // which reports nothing
	} else {
		defer func() { _ = notes.Close() }()
	}
	for ctx.Err() == nil {
		if err == nil {
			w.listen(notes)
		}
		// This also finds what changed before the watcher listened.
		if err := w.read(); err != nil {
			refused(err)
		}
		w.wait(ctx, notes)
	}
}

// A watch is a source that is followed.
type watch struct {
	*Source
	take func([]Text) error
	load func() ([]Text, error)
	// names are the files that are read, and the folders below the path that have some
	names func() []string
	// digest of the texts or the fault that were read last
	seen [sha256.Size]byte
}

// read takes the texts over if they are others than the last time.
func (w *watch) read() error {
	texts, err := w.load()
	digest := sha256.New()
	for _, s := range texts {
		_, _ = fmt.Fprintf(digest, "%q %d %v\n", s.Name, len(s.Data), s.Err) // a hash takes all
		_, _ = digest.Write(s.Data)
	}
	_, _ = fmt.Fprint(digest, err)
	seen := [sha256.Size]byte(digest.Sum(nil))
	if seen == w.seen {
		return nil
	}
	w.seen = seen
	if err != nil {
		return err
	}
	return w.take(texts)
}

// listen watches the folders in which something may change what is read, and no others. It is called again after each
// change, as links and folders are replaced, and looks again itself, since they may be replaced meanwhile.
func (w *watch) listen(notes *fsnotify.Watcher) {
	var places []string
	for range mostReads {
		before := places
		if places = w.places(); slices.Equal(places, before) {
			break
		}
		for _, place := range places {
			if err := notes.Add(place); err != nil {
				w.Logger.Debug("a folder can't be watched; it is read at intervals", "path", place, "err", err)
			}
		}
	}
	for _, place := range notes.WatchList() {
		if !slices.Contains(places, place) {
			_ = notes.Remove(place) // or it is gone
		}
	}
}

// places are the folders in which something may change what is read: that in which the path is, and those on the way
// to it and to each file, over links.
func (w *watch) places() []string {
	places := append(way(w.Path), filepath.Dir(w.Path))
	for _, name := range w.names() {
		places = append(places, way(name)...)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// entries are the files of a folder, or nothing.
func entries(path string) []string {
	names, _ := list(path) // whose error reading tells
	return names
}

// mostLinks is how many links lead to a file at most, as in package filepath.
const mostLinks = 255

// way are the folders in which something may change what a name leads to: those of the links on the way there, and the
// last one. That is the folder itself, the folder of the file, or where the next part of the name is missing.
func way(name string) (folders []string) {
	root := func(path string) string { return filepath.VolumeName(path) + string(filepath.Separator) }
	parts := func(path string) []string {
		return strings.Split(filepath.ToSlash(path[len(filepath.VolumeName(path)):]), "/")
	}
	at, rest := ".", parts(name)
	if filepath.IsAbs(name) {
		at = root(name)
	}
	for links := 0; len(rest) > 0; {
		part := rest[0]
		if rest = rest[1:]; part == "" || part == "." {
			continue
		}
		next := filepath.Join(at, part)
		info, err := os.Lstat(next)
		if err == nil && info.IsDir() {
			at = next
			continue
		}
		folders = append(folders, at)
		if err != nil || info.Mode()&os.ModeSymlink == 0 || links == mostLinks {
			return folders
		}
		target, err := os.Readlink(next)
		if err != nil {
			return folders
		}
		if links++; filepath.IsAbs(target) {
			at = root(target)
		}
		rest = append(parts(target), rest...)
	}
	return append(folders, at)
}

// wait returns when the files changed and are quiet since, when it is time for a look, or
// when ctx is done.
func (w *watch) wait(ctx context.Context, notes *fsnotify.Watcher) {
	look, cancel := context.WithTimeout(ctx, w.Interval)
	defer cancel()
	if !changed(look, notes) {
		return
	}
	most, cancel := context.WithTimeout(ctx, 10*w.Quiet)
	defer cancel()
	for {
		quiet, cancel := context.WithTimeout(most, w.Quiet)
		more := changed(quiet, notes)
		cancel()
		if !more {
			return
		}
	}
}

// changed waits for a change, and reports whether there was one before ctx was done.
func changed(ctx context.Context, notes *fsnotify.Watcher) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case event := <-notes.Events:
			if event.Op != fsnotify.Chmod { // which reading a file may cause
				return true
			}
		case err := <-notes.Errors: // such as too many changes at once
			return err != nil
		}
	}
}
