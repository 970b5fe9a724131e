package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
)

// BenchmarkRedis edits one of many rules of about 200 bytes, and reports the time until the edit returned, until it was
// in force in another manager, the longest script call and how large a revision is.
func BenchmarkRedis(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		if n > 10_000 && testing.Short() {
			break
		}
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			s := testredis.Start(b, testredis.Config("slowlog-log-slower-than", "0"), testredis.Config("slowlog-max-len", "10000"))
			at := rueidis.Config{URL: s.URL()}
			list := make([]rules.Rule, n)
			for i := range list {
				list[i] = rule(fmt.Sprintf("rule-%06d", i), int64(i+1))
				list[i].Scope, list[i].Missing = []string{rules.PerUser}, rules.MissingIP
				list[i].Match = rules.Match{Methods: []string{"GET"}, Paths: []string{fmt.Sprintf("/api/v1/service-%d/items/{id}", i)}}
				list[i].Labels = map[string]string{"team": fmt.Sprintf("team-%d", i%50)}
			}
			writer, follower := manage(b, open(b, at, ""), 0), manage(b, open(b, at, ""), 0)
			put(b, writer, list...)
			ctx, stop := context.WithCancel(context.Background())
			taken, ended := make(chan int64, 100), make(chan error, 1)
			go func() {
				ended <- follower.Follow(ctx, func(set *rules.Set) {
					r, _ := set.Rule("rule-000007")
					taken <- r.Limits[0].Capacity
				}, func(err error) { b.Error(err) })
			}()
			<-taken
			do(b, s, "SLOWLOG", "RESET")
			var edits, elsewhere time.Duration
			changed := list[7]
			for i := int64(0); b.Loop(); i++ {
				changed.Limits = []stint.Limit{stint.FixedWindow(1_000_000+i, time.Minute)}
				begun := time.Now()
				put(b, writer, changed)
				edits += time.Since(begun)
				for <-taken != 1_000_000+i {
				}
				elsewhere += time.Since(begun)
			}
			b.ReportMetric(float64(edits.Milliseconds())/float64(b.N), "ms/edit")
			b.ReportMetric(float64(elsewhere.Milliseconds())/float64(b.N), "ms/elsewhere")
			b.ReportMetric(longest(b, s), "ms/longest-call")
			b.ReportMetric(float64(do(b, s, "HSTRLEN", key, "1").(int64)), "bytes/revision")
			stop()
			if err := <-ended; err != nil {
				b.Error(err)
			}
		})
	}
}

// longest is the longest script call since a server's log of slow ones was emptied, in
// milliseconds: for so long it did nothing else.
func longest(b *testing.B, s *testredis.Server) float64 {
	b.Helper()
	most := int64(0)
	for _, entry := range do(b, s, "SLOWLOG", "GET", "-1").([]any) {
		if fields := entry.([]any); strings.HasPrefix(fmt.Sprint(fields[3]), "[EVAL") {
			most = max(most, fields[2].(int64))
		}
	}
	return float64(most) / 1000
}
