package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it; nothing is kept safe by it
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint/redisstore/internal/queue"
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

// Servers are those that hold the store's keys now, as far as they are known.
func (s *Store) Servers(ctx context.Context) []Server {
	servers, err := s.conn.Servers(ctx)
	if err != nil {
		return nil
	}
	return servers
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

// settings are those that a pattern of CONFIG GET names, as far as it is allowed.
func (s Server) settings(ctx context.Context, pattern string) map[string]string {
	set, err := s.Fields(ctx, "CONFIG", "GET", pattern)
	if err != nil {
		return nil
	}
	return set
}

// Advise returns what is unwise about the servers' configuration, in sentences for a log, as far as INFO
// and CONFIG GET are allowed.
func (s *Store) Advise(ctx context.Context) (advice []string) {
	say := func(text string) {
		if !slices.Contains(advice, text) {
			advice = append(advice, text)
		}
	}
	for _, server := range s.Servers(ctx) {
		// A server that evicts drops all clients of a partition with one key. The hashes expire, so the policies
		// named volatile drop them before others' keys that do not expire, or expire later.
		if info, err := server.Info(ctx, "memory"); err == nil {
			if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" {
				say(fmt.Sprintf("the server's maxmemory-policy is %s: at its memory limit it drops the state of many "+
					"clients at once, "+
					"and these may use their whole limits again; use noeviction, in a Redis that nothing else shares", policy))
			}
		}
		if server.settings(ctx, "lazyfree-lazy-expire")["lazyfree-lazy-expire"] == "no" {
			say("the server's lazyfree-lazy-expire is no: when a large key expires it frees it at once and answers nobody " +
				"meanwhile; set it to yes")
		}
		if set := server.settings(ctx, "cluster-*"); set["cluster-enabled"] == "yes" &&
			set["cluster-require-full-coverage"] == "yes" {
			say("the cluster's cluster-require-full-coverage is yes: when one primary is gone, and until a replica has " +
				"taken over, the others decide nothing for their clients either; set it to no on every node")
		}
	}
	return advice
}

// Reply returns what a server replied in a [Conn]'s error. It is false where no reply came: then
// the command may have been executed.
func Reply(err error) (reply string, ok bool) { return queue.Reply(err) }
