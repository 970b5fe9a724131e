package queue

import (
	"errors"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// refusals are how replies begin that tell of a server that decides nothing at present.
var refusals = []string{
	"READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "OOM", "MISCONF", "NOREPLICAS", "BUSY", "NOAUTH",
	"NOPERM", "WRONGPASS",
}

// isRefusal reports whether a reply is a refusal of the server's, not of one command. Redis 6 wraps
// the errors of a script: "Error running script (call to f_…): @user_script:1: -OOM command not allowed …".
func isRefusal(reply string) bool {
	return slices.ContainsFunc(refusals, func(word string) bool {
		return strings.HasPrefix(reply, word+" ") || strings.Contains(reply, ": -"+word+" ")
	})
}

// cause is what made the store unavailable.
func cause(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && errors.Is(err, stint.ErrUnavailable) {
		all := joined.Unwrap()
		return all[len(all)-1]
	}
	return err
}
