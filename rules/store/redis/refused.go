package redis

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/redisstore"
)

var (
	// unsent are replies to a command that the server did not execute.
	unsent = []string{"NOAUTH ", "WRONGPASS ", "NOPERM ", "LOADING ", "MASTERDOWN ", "CLUSTERDOWN ", "BUSY ", "MOVED ", "ASK ", "TRYAGAIN "}
	// unwritten are replies to put.lua's first write as well, the only one that can fail. Redis 6 puts words of its own before them.
	unwritten = []string{"OOM ", "READONLY ", "NOREPLICAS ", "MISCONF ", "The user executing the script can't "}
)

// refused reports whether a put failed by a reply that says for certain that nothing was stored.
func refused(err error) bool {
	reply, replied := redisstore.Reply(err)
	return replied && (slices.ContainsFunc(unsent, func(code string) bool { return strings.HasPrefix(reply, code) }) ||
		slices.ContainsFunc(unwritten, func(code string) bool { return strings.Contains(reply, code) }))
}
