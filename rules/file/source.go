package file

import (
	"context"
	"log/slog"

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

// Follow makes a set of the rules whenever the files change. What is wrong with them, as [ReadSet] tells
// it, is at first returned.
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
