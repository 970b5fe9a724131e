package redis

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/redisstore"
)

var (
	// unsent are replies to a command that the server did not execute.
	unsent = []string{"NOAUTH ", "WRONGPASS ", "NOPERM ", "LOADING ", "MASTERDOWN ", "CLUSTERDOWN ", "BUSY ", "MOVED ", "ASK ", "TRYAGAIN "}
	// unwritten are replies to commit.lua's first write as well, since nothing is refused for these
	// reasons after one. Redis 6 puts words of its own before them.
	unwritten = []string{"OOM ", "READONLY ", "NOREPLICAS ", "MISCONF "}
)

// refused reports whether a commit failed by a reply that says for certain that nothing was made. A
// right that is missing in the middle of commit.lua, which Redis 6 may notice there only, begins otherwise
// than with NOPERM.
func refused(err error) bool {
	reply, replied := redisstore.Reply(err)
	return replied && (slices.ContainsFunc(unsent, func(code string) bool { return strings.HasPrefix(reply, code) }) ||
		slices.ContainsFunc(unwritten, func(code string) bool { return strings.Contains(reply, code) }))
}
