package redisstore

import (
	"context"
	"fmt"
	"strings"
)

// Advise reads how the server is configured and returns what is unwise about it, in
// sentences for a log; none when all is well, or when the server does not tell.
//
// A server that evicts keys at its memory limit drops a whole partition's clients with
// one key, and they start anew. With noeviction it refuses writes instead, and with
// volatile-ttl the first to go is what expires first.
func (s *Store) Advise(ctx context.Context) []string {
	info, err := s.conn.Do(ctx, "INFO", "memory")
	if err != nil {
		return nil
	}
	policy, limited := "", false
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "maxmemory_policy":
			policy = value
		case "maxmemory":
			limited = value != "0"
		}
	}
	if !limited || policy == "" || policy == "noeviction" || policy == "volatile-ttl" {
		return nil
	}
	return []string{fmt.Sprintf("the server's maxmemory-policy is %s: at its memory limit it may drop a partition, "+
		"whose clients then start anew; use noeviction or volatile-ttl", policy)}
}
