package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// A Conn is the store's connection to its servers. Packages rueidis and goredis make one.
// Its methods are safe for concurrent use.
type Conn interface {
	// Ready returns nil when a command can be sent immediately. Otherwise it waits for the
	// attempt to connect that is under way, and returns why that failed, or the context's error.
	Ready(ctx context.Context) error
	// Eval runs a script and returns its reply, a string. It must not run it again when it may
	// have run already, and must load it when the server does not know it. All keys hash
	// to one slot if Cluster is true. It keeps neither keys nor args.
	Eval(ctx context.Context, script *Script, keys, args []string) (string, error)
	// Do sends a command and returns its reply, a string, or "" for nil. If it has a key, that is
	// the second argument.
	Do(ctx context.Context, args ...string) (string, error)
	// Subscribe subscribes to a channel, calls ready once that is done, and message for each
	// message, one after another. It returns when the context ends or the subscription is
	// lost, and does not renew it.
	Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error
	// Cluster reports whether the keys of one call must hash to one slot.
	Cluster() bool
	Close()
}

// A Script is a Lua script for a [Conn] to run.
type Script struct {
	Source string
	Digest string // SHA-1 in hexadecimal, by which EVALSHA names it
}

// An Inspector is a [Conn] that can ask its servers one by one, as [Store.Advise] and the
// noticing of evictions need. The connections of packages rueidis and goredis are Inspectors.
type Inspector interface {
	// Servers are those that hold keys: the one server, or the primaries of a cluster.
	Servers(ctx context.Context) ([]Server, error)
}

// A Server is one of the servers that hold a store's keys.
type Server interface {
	// Ask sends a command without a key and returns the strings of its reply, names before values.
	Ask(ctx context.Context, args ...string) ([]string, error)
}

// servers are those that can be asked, none if the connection does not tell.
func (s *Store) servers(ctx context.Context) []Server {
	inspector, ok := s.conn.(Inspector)
	if !ok {
		return nil
	}
	servers, err := inspector.Servers(ctx)
	if err != nil {
		return nil
	}
	return servers
}

// Reply returns what a server replied in an error of a [Conn], without a leading "ERR ", such as
// "OOM command not allowed when used memory > 'maxmemory'.". It is false where no reply
// came: then nobody knows whether the command was executed.
func Reply(err error) (reply string, ok bool) {
	// As rueidis has them.
	if failure, replied := errors.AsType[interface {
		error
		IsNil() bool
	}](err); replied {
		return failure.Error(), !failure.IsNil()
	}
	// As go-redis marks them, in whatever wraps them.
	if failure, replied := errors.AsType[interface {
		error
		RedisError()
	}](err); replied {
		return strings.TrimPrefix(failure.Error(), "ERR "), true
	}
	return "", false
}

// refusals are how replies begin that tell of a server that decides nothing at present.
var refusals = []string{
	"READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "OOM", "MISCONF", "NOREPLICAS", "BUSY", "NOAUTH", "NOPERM", "WRONGPASS",
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
