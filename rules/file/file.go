// Package file reads rules as people write them, in files and folders of YAML and JSON.
//
//	set, err := file.ReadSet("/etc/stint/rules", rules.Options{})
//
// A document is a list of rules, or a mapping with such a list under the name rules. Reading is strict: an unknown
// name, a wrong type, a value out of range and a rule that makes no sense are faults, told all at once in one error,
// each with its line and column. A [Source] follows a path, and keeps the rules that it has while what is there
// can't be used.
package file

import (
	"context"
	"log/slog"
	"time"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
)

// ReadSet reads the rules of a file, or of all files of a folder in the order of their names, and makes a set of them.
// In a folder, files count whose names end in .yaml, .yml or .json and do not start with a dot; folders in it are left
// out. An ID may be there only once in all files. The error has all faults at once; [stint.ErrInvalid] is among them.
func ReadSet(path string, options rules.Options) (*rules.Set, error) {
	return rulefile.ReadSet(path, options)
}

// ParseSet makes a set of the rules of one document. A document whose name ends in .json is JSON, every other one is
// YAML; an empty one is not taken for an empty list, since it may be half of a file. The error is as ReadSet's.
func ParseSet(name string, data []byte, options rules.Options) (*rules.Set, error) {
	set, _, err := rulefile.ParseSet(name, data, options)
	return set, err
}

// A Source is the rules of a file or a folder, which may be written over, replaced, or swapped by a link as
// Kubernetes does. Links may lead to other folders, and may be swapped there.
type Source struct {
	// Path names the file or the folder.
	Path string
	// StrictSlash tells /users from /users/, as in [rules.Options]. Default: false.
	StrictSlash bool
	// IPv6Prefix is by how many bits IPv6 clients are counted, as in [rules.Options]. Default: 0, which is 64.
	IPv6Prefix int
	// Interval is how often the files are read even when the system reports no change, as on network drives: 10ms to
	// 1h. Default: 0, which is 30s.
	Interval time.Duration
	// Quiet is how long nothing may change before the files are read, so that no half-written file is read: 1ms to
	// 10s. Default: 0, which is 100ms. If something changes all the time, they are read after ten times as long.
	Quiet time.Duration
	// Logger is told of rules taken over, and of folders that can't be watched. Default: nil, no log.
	Logger *slog.Logger
}

// Follow makes a set of the rules whenever the files change, until ctx is done. The first time it returns their faults,
// as [ReadSet] does. After that refused is called with the faults, once for each text, and the rules that were taken
// last stay. They also stay while files are missing.
func (s Source) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
	return rulefile.Source(s).Follow(ctx, take, refused)
}
