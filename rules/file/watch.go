package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
)

// A Source is the rules of a file or a folder, which are followed as [Watch] says.
type Source struct {
	// Path names the file or the folder.
	Path string
	// StrictSlash tells /users from /users/, as in [rules.Options]. Default: false.
	StrictSlash bool
	// IPv6Prefix is by how many bits IPv6 clients are counted, as in [rules.Options]. Default: 0, which is 64.
	IPv6Prefix int
	// Logger is told of rules taken over, and where no news of files come. Default: nil, no log.
	Logger *slog.Logger
}

// Follow makes a set of the rules whenever the files change. The first time it returns their
// faults, as [ReadSet] does.
func (s Source) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
	var set *rules.Set // in force
	w, err := newWatch(s.Path, Options{Refused: refused, Logger: s.Logger}, func(sources []source) (int, error) {
		next, list, err := setOf(sources, rules.Options{Previous: set, StrictSlash: s.StrictSlash, IPv6Prefix: s.IPv6Prefix})
		if err != nil {
			return 0, err
		}
		set = next
		take(set)
		return len(list), nil
	})
	if err != nil {
		return err
	}
	return w.follow(ctx)
}

// Options say how [Watch] follows a path.
type Options struct {
	// Apply takes rules over, with the place of each. It is called in Watch's goroutine with
	// what is there at first, and then with every other text of the files. With its error the
	// rules from before stay. It has no default.
	Apply func(list []rules.Rule, positions []document.Position) error
	// Refused is told, in the same goroutine, of each text that was not taken over after the
	// first. Default: nil, it is logged.
	Refused func(err error)
	// Interval is how often the files are looked at even when the system tells of no change,
	// as on network drives: 10ms to 1h. Default: 0, which is 30s.
	Interval time.Duration
	// Quiet is how long nothing may change before the files are read, so that nobody's half
	// is taken for the whole: 1ms to 10s. Default: 0, which is 100ms. Where something changes
	// all the time, they are read after ten times as long.
	Quiet time.Duration
	// Logger is told of rules taken over, and where no news of files come. Default: nil, no log.
	Logger *slog.Logger
}

// Watch follows the rules of a file or a folder until ctx is done, and then returns nil.
// The first time, what is wrong with them is returned; after that it is told, once for each
// text, and the rules that were applied last stay. So does what is there while files are
// missing. Files may be written over, replaced, or swapped by a link as Kubernetes does.
func Watch(ctx context.Context, path string, options Options) error {
	var missing error
	if options.Apply == nil {
		missing = stint.Invalid("Apply", "nil", "a function")
	}
	w, err := newWatch(path, options, func(sources []source) (int, error) {
		list, positions, err := parseAll(sources)
		if err != nil {
			return 0, err
		}
		return len(list), options.Apply(list, positions)
	})
	if err := errors.Join(missing, err); err != nil {
		return err
	}
	return w.follow(ctx)
}

// follow takes over what is there until ctx is done.
func (w *watch) follow(ctx context.Context) error {
	if err := w.read(); err != nil {
		return err
	}
	notes, err := fsnotify.NewWatcher()
	if err != nil {
		w.Logger.Warn("no news of files; looking at them at intervals", "path", w.path, "err", err)
		notes = &fsnotify.Watcher{} // which tells nothing
	} else {
		defer func() { _ = notes.Close() }()
	}
	for ctx.Err() == nil {
		if err == nil {
			w.listen(notes)
		}
		// What changed before anybody listened shows in this look.
		if err := w.read(); err != nil {
			w.Refused(err)
		}
		w.wait(ctx, notes)
	}
	return nil
}

// watch is one path that is followed.
type watch struct {
	Options
	path string
	take func(sources []source) (n int, err error) // n is how many rules they have
	seen [sha256.Size]byte                         // digest of the texts or the fault that were read last
}

// newWatch checks the options and fills the defaults in.
func newWatch(path string, options Options, take func([]source) (int, error)) (*watch, error) {
	if options.Interval == 0 {
		options.Interval = 30 * time.Second
	}
	if options.Quiet == 0 {
		options.Quiet = 100 * time.Millisecond
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Refused == nil {
		options.Refused = func(err error) {
			options.Logger.Error("rules are not taken over; those from before stay", "path", path, "err", err)
		}
	}
	var faults []error
	if options.Interval < 10*time.Millisecond || options.Interval > time.Hour {
		faults = append(faults, stint.Invalid("Interval", options.Interval, "10ms to 1h"))
	}
	if options.Quiet < time.Millisecond || options.Quiet > 10*time.Second {
		faults = append(faults, stint.Invalid("Quiet", options.Quiet, "1ms to 10s"))
	}
	return &watch{Options: options, path: path, take: take}, errors.Join(faults...)
}

// read applies the rules if the files have another text than the last time.
func (w *watch) read() error {
	sources, err := load(w.path)
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
	n, err := w.take(sources)
	if err != nil {
		return err
	}
	w.Logger.Debug("rules taken over", "path", w.path, "rules", n)
	return nil
}

// listen asks for news of the path, and of the folder that it is in: there, files and links
// are replaced. What was replaced itself is asked for again.
func (w *watch) listen(notes *fsnotify.Watcher) {
	places := []string{filepath.Dir(w.path)}
	if info, err := os.Stat(w.path); err == nil && info.IsDir() {
		places = append(places, w.path)
	}
	for _, place := range places {
		if err := notes.Add(place); err != nil {
			w.Logger.Debug("no news of a folder; it is looked at at intervals", "path", place, "err", err)
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

// changed waits for news, and reports whether there were any before ctx was done.
func changed(ctx context.Context, notes *fsnotify.Watcher) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case event := <-notes.Events:
			if event.Op != fsnotify.Chmod { // which reading a file may cause
				return true
			}
		case err := <-notes.Errors: // such as too much news at once
			return err != nil
		}
	}
}
