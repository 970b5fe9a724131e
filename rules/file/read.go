package file

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// Read reads the rules of a file, or of all files of a folder in the order of their names,
// and where each rule begins. In a folder, files count whose names end in .yaml, .yml or
// .json and do not start with a dot; folders in it are left out. An ID may be there only
// once in all files. The error is [document.Faults].
func Read(path string) ([]rules.Rule, []document.Position, error) {
	sources, err := load(path)
	if err != nil {
		return nil, nil, err
	}
	return parse(sources).list()
}

// A source is a file that was read.
type source struct {
	name string
	data []byte
}

// mostReads is how often files are read that change meanwhile.
const mostReads = 10

// load reads the files that a path stands for, as they were at one moment: one that is replaced, or a link that
// is swapped, after some were read and before others shows in a second reading.
func load(path string) ([]source, error) {
	return settled(path, func() ([]source, error) { return readAll(path) })
}

// settled reads until it finds the same twice in a row.
func settled(path string, read func() ([]source, error)) ([]source, error) {
	sources, err := read()
	for range mostReads {
		before, said := sources, fmt.Sprint(err)
		sources, err = read()
		if fmt.Sprint(err) == said && slices.EqualFunc(sources, before, source.equal) {
			return sources, err
		}
	}
	var faults document.Faults
	faults.Add(document.Position{Source: path}, "%v", stint.Invalid("what is there",
		document.Verbatim("changed whenever it was read"), "files that stay as they are while they are read"))
	return nil, faults.Err()
}

func (s source) equal(o source) bool { return s.name == o.name && bytes.Equal(s.data, o.data) }

// readAll reads each file once.
func readAll(path string) ([]source, error) {
	var faults document.Faults
	names, err := list(path)
	if err != nil {
		faults.Add(document.Position{Source: path}, "%v", err)
	}
	sources := make([]source, 0, len(names))
	for _, name := range names {
		data, err := Bytes(name, MaxBytes)
		if err != nil {
			faults.Add(document.Position{Source: name}, "%v", err)
		}
		sources = append(sources, source{name, data})
	}
	return sources, faults.Err()
}

// list names the files that a path stands for. The error does not repeat the path.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, cause(err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, cause(err)
	}
	var names []string
	for _, entry := range entries { // in order of their names
		name := filepath.Join(path, entry.Name())
		extensions := []string{".yaml", ".yml", ".json"}
		if strings.HasPrefix(entry.Name(), ".") || !slices.Contains(extensions, strings.ToLower(filepath.Ext(name))) {
			continue
		}
		if info, err := os.Stat(name); err != nil || !info.IsDir() { // a link that leads nowhere is a fault
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, stint.Invalid("the folder", document.Verbatim("without files of rules"), "one or more files *.yaml, *.yml or *.json")
	}
	return names, nil
}

// cause is what an error of the file system says beside the name.
func cause(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// Bytes reads a regular file of at most so many bytes. The error does not repeat the
// name.
func Bytes(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > most) {
		return nil, stint.Invalid("the file", document.Verbatim(fmt.Sprintf("%v of %d bytes", info.Mode(), info.Size())), fmt.Sprintf("a regular file of at most %d bytes", most))
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name) //nolint:gosec // the operator names the file
	}
	return data, prefix.Join(cause(err))
}
