package redis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

// versionOf puts rules in the place of those that are there.
func versionOf(number int64, list []rules.Rule) *registry.Version {
	v := &registry.Version{Head: headOf(number)}
	for i := range list {
		v.Changes = append(v.Changes, registry.Change{ID: list[i].ID, After: &list[i]})
	}
	return v
}

// headOf is the head of a version of versionOf, that of none for 0.
func headOf(number int64) registry.Head { return registry.Head{Number: number, At: number} }

// longest reports the longest script call since a server's log of slow ones was emptied, in
// milliseconds: for so long it did nothing else.
func longest(b *testing.B, s *testredis.Server) {
	b.Helper()
	most := int64(0)
	for _, entry := range do(b, s, "SLOWLOG", "GET", "-1").([]any) {
		if fields := entry.([]any); strings.HasPrefix(fmt.Sprint(fields[3]), "[EVAL") {
			most = max(most, fields[2].(int64))
		}
	}
	b.ReportMetric(float64(most)/1000, "ms/longest-call")
}

// BenchmarkRedis commits and loads all rules at once.
func BenchmarkRedis(b *testing.B) {
	for _, size := range []struct{ rules, bytes int }{{10_000, 100}, {64, 100_000}} {
		list := make([]rules.Rule, size.rules)
		for i := range list {
			list[i] = rule(fmt.Sprintf("rule-%d", i), 1)
			list[i].Labels = map[string]string{"text": strings.Repeat("x", size.bytes)}
		}
		name := fmt.Sprintf("rules=%d/label=%d", size.rules, size.bytes)
		s := testredis.Start(b, testredis.Config("slowlog-log-slower-than", "0"), testredis.Config("slowlog-max-len", "10000"))
		backend := open(b, rueidis.Connection{URL: s.URL()}, "")
		number := int64(0)
		b.Run("op=commit/"+name, func(b *testing.B) {
			do(b, s, "SLOWLOG", "RESET")
			for b.Loop() {
				number++
				if err := backend.Commit(b.Context(), headOf(number-1), versionOf(number, list)); err != nil {
					b.Fatal(err)
				}
			}
			longest(b, s)
		})
		b.Run("op=load/"+name, func(b *testing.B) {
			do(b, s, "SLOWLOG", "RESET")
			for b.Loop() {
				if loaded, err := backend.Load(b.Context()); err != nil || len(loaded.Rules) != len(list) {
					b.Fatal(err)
				}
			}
			longest(b, s)
		})
	}
}
