package rulefile

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/stint-go/stint/internal/document"
)

// A Text is a file with what is in it.
type Text struct {
	Name string
	Data []byte
	// Err says why the file could not be read. It is nil but in a [Watch] of several files.
	Err error
}

// Texts are a file, or the files of a folder, whatever is in them.
type Texts struct {
	// Path names the file or the folder.
	Path string
	// All reads every file of a folder and of those in it, whatever its name. Default: false, those
	// that [ReadSet] does.
	All bool
	// Hidden reads with All those whose names begin with a dot, too.
	Hidden bool
}

// Watch makes a watch that has take take the files over, also those that can't be read, each with its error: the others
// may do without it. A nil logger is told nothing.
func (t Texts) Watch(logger *slog.Logger, take func([]Text) error) (Watch, error) {
	s := Source{Path: t.Path, Logger: logger}
	w, err := s.watch(take)
	if err != nil {
		return Watch{}, err
	}
	w.load = func() ([]Text, error) {
		sources, err := t.Read()
		if len(sources) > 0 {
			err = nil // which is in them
		}
		return sources, err
	}
	if t.All {
		w.names = t.tree
	}
	return Watch{w}, nil
}

// A Watch takes files over when they have changed. Make it with [Texts.Watch]. One goroutine at a
// time may use it.
type Watch struct{ watch *watch }

// Read has the files taken over if they are others than the last time. The error is what that returned, or that a file
// can't be read.
func (w Watch) Read() error { return w.watch.read() }

// Follow is Read at once and whenever something changes, until ctx is done. Errors are told to refused, once for each
// state of the files.
func (w Watch) Follow(ctx context.Context, refused func(error)) { w.watch.follow(ctx, refused) }

// Read reads the files, until they are the same twice in a row: one file, or the files of a folder, or with All those
// of the folders below, too. With an error, which is document.Faults, it also returns those that could be read.
func (t Texts) Read() ([]Text, error) {
	if !t.All {
		return load(t.Path)
	}
	return settled(t.Path, func() ([]Text, error) {
		var faults document.Faults
		names, _, err := t.walk()
		if err != nil {
			faults.Add(document.Position{Source: t.Path}, "%v", cause(err))
			return nil, faults.Err()
		}
		return readFiles(names, &faults), faults.Err()
	})
}

// tree names the files that are read with All, and the folders that they may be in.
func (t Texts) tree() []string {
	names, folders, _ := t.walk() // whose error reading tells
	return append(names, folders...)
}

// walk names the files of a folder and of those in it, or the one file, and the folders. A folder in it that can't be
// read stands for its files.
func (t Texts) walk() (names, folders []string, err error) {
	root, err := filepath.EvalSymlinks(t.Path)
	if err != nil {
		return nil, nil, err
	}
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		hidden := name != root && strings.HasPrefix(entry.Name(), ".") && !t.Hidden
		switch {
		case err != nil && name == root:
			return err
		case err != nil:
			names = append(names, name)
			return fs.SkipDir
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden:
			return nil
		case entry.IsDir():
			folders = append(folders, name)
			return nil
		}
		// A link may lead to a file, whose text counts, or to a folder, which does not.
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			names = append(names, name)
		}
		return nil
	})
	return names, folders, err
}
