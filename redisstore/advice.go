package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/stint-go/stint/internal/redisconn"
)

// Servers are those that hold the store's keys now, as far as they are known.
func (s *Store) Servers(ctx context.Context) []redisconn.Server {
	servers, err := s.conn.Servers(ctx)
	if err != nil {
		return nil
	}
	return servers
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
		if settings(ctx, server, "lazyfree-lazy-expire")["lazyfree-lazy-expire"] == "no" {
			say("the server's lazyfree-lazy-expire is no: when a large key expires it frees it at once and answers nobody " +
				"meanwhile; set it to yes")
		}
		if set := settings(ctx, server, "cluster-*"); set["cluster-enabled"] == "yes" &&
			set["cluster-require-full-coverage"] == "yes" {
			say("the cluster's cluster-require-full-coverage is yes: when one primary is gone, and until a replica has " +
				"taken over, the others decide nothing for their clients either; set it to no on every node")
		}
	}
	return advice
}

// settings are those that a pattern of CONFIG GET names, as far as it is allowed.
func settings(ctx context.Context, s redisconn.Server, pattern string) map[string]string {
	set, err := s.Fields(ctx, "CONFIG", "GET", pattern)
	if err != nil {
		return nil
	}
	return set
}
