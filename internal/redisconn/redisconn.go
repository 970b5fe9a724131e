// Package redisconn is what a store asks of a connection to Redis. Packages redisstore/rueidis and redisstore/goredis
// make connections; a program that uses the library needs no name of it.
package redisconn

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it; nothing is kept safe by it
	"encoding/hex"
	"errors"
	"strings"
)

// A Conn is a connection to the servers, safe for concurrent use. Packages rueidis and goredis make one.
type Conn interface {
	// Ready waits for the attempt to connect that is under way, unless there is a connection.
	Ready(ctx context.Context) error
	// Eval runs a script, never twice, and returns its reply, a string. It loads a script that the
	// server does not know. All keys hash to one slot if Cluster is true. It keeps neither keys nor args.
	Eval(ctx context.Context, script *Script, keys, args []string) (string, error)
	// Do sends a command and returns its reply, a string, or "" for nil. A key is the second argument.
	Do(ctx context.Context, args ...string) (string, error)
	// Subscribe calls ready once it has subscribed to a channel, and message for each message, one
	// after another. It returns when the context ends or the subscription is lost.
	Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error
	// Cluster reports whether the keys of one call must hash to one slot.
	Cluster() bool
	// Servers are those that hold keys: the one server, or the primaries of a cluster.
	Servers(ctx context.Context) ([]Server, error)
	// Reads is how often something was read of the connection; 0 if it can't tell. It is asked for each call.
	Reads() uint64
	// Behind reports whether this process has not written what it was given, or not read what has arrived, which is not
	// held against the server; false if it can't tell. It is asked only of a call that may be late.
	Behind() bool
	// ScriptLoads counts the scripts that Eval sent whole, since the server did not know them.
	ScriptLoads() uint64
	Close()
}

// A Script is a Lua script for a [Conn] to run.
type Script struct {
	Source string
	Digest string // SHA-1 in hexadecimal, by which EVALSHA names it
}

// NewScript is the script of a source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return &Script{Source: source, Digest: hex.EncodeToString(sum[:])}
}

// A Server is one of the servers that hold a store's keys.
type Server struct {
	// Name tells it from the others, and stays: the address of a cluster's node, or "primary".
	Name string
	// Ask sends a command without a key. Of a map it returns names before values.
	Ask func(ctx context.Context, args ...string) ([]string, error)
}

// Info asks for sections of INFO, the standard ones if none are named, and returns their fields by name.
func (s Server) Info(ctx context.Context, sections ...string) (map[string]string, error) {
	reply, err := s.Ask(ctx, append([]string{"INFO"}, sections...)...)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for _, text := range reply {
		for line := range strings.Lines(text) {
			if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
				fields[name] = value
			}
		}
	}
	return fields, nil
}

// Fields asks for a map, such as CONFIG GET's or SENTINEL MASTER's, and returns its fields by name.
func (s Server) Fields(ctx context.Context, args ...string) (map[string]string, error) {
	pairs, err := s.Ask(ctx, args...)
	fields := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		fields[pairs[i]] = pairs[i+1]
	}
	return fields, err
}

// Reply returns what a server replied in a connection's error. It is false where no reply came: then
// the command may have been executed.
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
