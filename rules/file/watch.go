package file

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// A Source is the rules of a file or a folder, which may be written over, replaced, or swapped by a link as
// Kubernetes does.
type Source struct {
	// Path names the file or the folder.
	Path string
	// StrictSlash tells /users from /users/, as in [rules.Options]. Default: false.
	StrictSlash bool
	// IPv6Prefix is by how many bits IPv6 clients are counted, as in [rules.Options]. Default: 0, which is 64.
	IPv6Prefix int
	// Interval is how often the files are read even when the system reports no change,
	// as on network drives: 10ms to 1h. Default: 0, which is 30s.
	Interval time.Duration
	// Quiet is how long nothing may change before the files are read, so that no half-written
	// file is read: 1ms to 10s. Default: 0, which is 100ms. If something changes
	// all the time, they are read after ten times as long.
	Quiet time.Duration
	// Logger is told of rules taken over, and of folders that can't be watched. Default: nil, no log.
	Logger *slog.Logger
}

// Follow makes a set of the rules whenever the files change, until ctx is done. The first time it returns their
// faults, as [ReadSet] does. After that refused is called with the faults, once for each
// text, and the rules that were taken last stay. They also stay while files are missing.
func (s Source) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
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
	if err := prefix.Join(faults...); err != nil {
		return err
	}
	w := &watch{Source: s, take: take}
	if err := w.read(); err != nil {
		return err
	}
	notes, err := fsnotify.NewWatcher()
	if err != nil {
		s.Logger.Warn("the system reports no changes of files; they are read at intervals", "path", s.Path, "err", err)
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
	return nil
}

// A watch is a source that is followed.
type watch struct {
	Source
	take func(*rules.Set)
	set  *rules.Set        // in force
	seen [sha256.Size]byte // digest of the texts or the fault that were read last
}

// read applies the rules if the files have another text than the last time.
func (w *watch) read() error {
	sources, err := load(w.Path)
	digest := sha256.New()
	for _, s := range sources {
		_, _ = fmt.Fprintf(digest, "%q %d\n", s.name, len(s.data)) // a hash takes all
		_, _ = digest.Write(s.data)
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
	set, list, err := parse(sources).set(rules.Options{Previous: w.set, StrictSlash: w.StrictSlash, IPv6Prefix: w.IPv6Prefix})
	if err != nil {
		return err
	}
	w.set = set
	w.take(set)
	w.Logger.Debug("rules taken over", "path", w.Path, "rules", len(list))
	return nil
}

// listen watches the path, and the folder that it is in, where files and links
// are replaced. It is called again as the path itself may be replaced.
func (w *watch) listen(notes *fsnotify.Watcher) {
	places := []string{filepath.Dir(w.Path)}
	if info, err := os.Stat(w.Path); err == nil && info.IsDir() {
		places = append(places, w.Path)
	}
	for _, place := range places {
		if err := notes.Add(place); err != nil {
			w.Logger.Debug("a folder can't be watched; it is read at intervals", "path", place, "err", err)
		}
	}
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
