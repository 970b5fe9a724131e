package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

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

// Advise returns what is unwise about the servers' configuration, in sentences for a log. It needs the
// rights to INFO and CONFIG GET; what a server does not tell is passed over.
func (s *Store) Advise(ctx context.Context) (advice []string) {
	say := func(text string) {
		if !slices.Contains(advice, text) {
			advice = append(advice, text)
		}
	}
	for _, server := range s.servers(ctx) {
		// A server that evicts drops all clients of a partition with one key. The hashes expire, so the policies
		// named volatile drop them before others' keys that do not expire, or expire later.
		if info, err := server(ctx, "INFO", "memory"); err == nil {
			if policy := infoOf(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
				say(fmt.Sprintf("the server's maxmemory-policy is %s: at its memory limit it drops the state of many clients at once, "+
					"who may then use all of their limits again; use noeviction, in a Redis that nothing else shares", policy))
			}
		}
		if setting, err := server(ctx, "CONFIG", "GET", "lazyfree-lazy-expire"); err == nil && len(setting) == 2 && setting[1] == "no" {
			say("the server's lazyfree-lazy-expire is no: when a large key expires it frees it at once and answers nobody meanwhile; set it to yes")
		}
	}
	return advice
}
