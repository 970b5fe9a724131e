package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// An Inspector is a [Conn] that leads to its servers one by one. [Store.Advise] needs it to
// read their settings, and a store to notice evictions. The connections of packages rueidis
// and goredis are Inspectors.
type Inspector interface {
	// Servers are those that hold keys: the one server, or the primaries of a cluster.
	Servers(ctx context.Context) ([]Server, error)
}

// A Server is one of the servers that hold a store's keys.
type Server interface {
	// Ask sends a command without a key and returns the strings of its reply, names before
	// values.
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

// infoOf is the value of a field of INFO, "" if there is none.
func infoOf(info []string, field string) string {
	for _, text := range info {
		for line := range strings.Lines(text) {
			if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == field {
				return value
			}
		}
	}
	return ""
}

// Advise reads how the servers are configured and returns what is unwise about it, in
// sentences for a log; none when all is well, or when the servers do not tell. It asks
// each primary of a cluster, and needs the rights to INFO and to CONFIG GET; what a
// server refuses to tell is passed over. It changes no setting.
//
// A server that evicts keys at its memory limit drops a whole partition's clients with
// one key, and they start anew. The hashes expire, so the policies named volatile drop
// them before the keys of others that do not expire or that expire later. Only with
// noeviction is state never lost: writes are refused instead.
//
// A server whose lazyfree-lazy-expire is no frees a large key that expires at once, and
// does nothing else meanwhile.
func (s *Store) Advise(ctx context.Context) (advice []string) {
	say := func(text string) {
		if !slices.Contains(advice, text) {
			advice = append(advice, text)
		}
	}
	for _, server := range s.servers(ctx) {
		if info, err := server.Ask(ctx, "INFO", "memory"); err == nil {
			if policy := infoOf(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
				say(fmt.Sprintf("the server's maxmemory-policy is %s: at its memory limit it drops the state of many clients at once, "+
					"who may then use all of their limits again; use noeviction, in a Redis that nothing else shares", policy))
			}
		}
		if setting, err := server.Ask(ctx, "CONFIG", "GET", "lazyfree-lazy-expire"); err == nil && len(setting) == 2 && setting[1] == "no" {
			say("the server's lazyfree-lazy-expire is no: when a large key expires it frees it at once and answers nobody meanwhile; set it to yes")
		}
	}
	return advice
}
