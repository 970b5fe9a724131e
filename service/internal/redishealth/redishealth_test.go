package redishealth_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/redishealth"
)

// infoOf makes a node of a running server.
func infoOf(s *testredis.Server) redishealth.Node {
	return redishealth.Node{Name: s.Addr(), Ask: func(_ context.Context, args ...string) ([]string, error) {
		var words []any
		for _, arg := range args {
			words = append(words, arg)
		}
		reply, err := s.Do(words...)
		if err != nil {
			return nil, err
		}
		return []string{fmt.Sprint(reply)}, nil
	}}
}

// askOnce lets a collector ask once, and returns what it serves, by series.
func askOnce(t *testing.T, c *redishealth.Collector) map[string]float64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() { c.Run(ctx); close(asked) }()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	series := map[string]float64{}
	for deadline := time.Now().Add(5 * time.Minute); len(series) == 0 && time.Now().Before(deadline); {
		families := must.Get(registry.Gather())(t)
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				labels := []string{family.GetName()}
				for _, label := range metric.GetLabel() {
					if label.GetName() != "node" {
						labels = append(labels, label.GetValue())
					}
				}
				series[strings.TrimPrefix(strings.Join(labels, " "), "rate_limiter_redis_")] = max(metric.GetGauge().GetValue(), metric.GetCounter().GetValue())
			}
		}
	}
	cancel()
	<-asked
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	return series
}

func TestCollector(t *testing.T) {
	primary := testredis.Start(t, testredis.Config("maxmemory", "100mb"), testredis.Config("appendonly", "yes"))
	testredis.Start(t, testredis.Config("replicaof", "127.0.0.1", strings.Split(primary.Addr(), ":")[1]))
	do := func(args ...any) {
		t.Helper()
		must.Get(primary.Do(args...))(t)
	}
	do("SET", "here", "1", "PX", "1")
	do("EVAL", "local i = 0; while i < 100000 do i = i + 1 end return 1", "0")
	do("GET", "nowhere")
	do("SET", "there", "1")
	do("GET", "there")
	do("WAIT", "1", "10000")
	series := askOnce(t, redishealth.New(redishealth.Config{Nodes: func(context.Context) ([]redishealth.Node, error) {
		return []redishealth.Node{infoOf(primary)}, nil
	}}))
	for name, allowed := range map[string][2]float64{
		"up": {1, 1}, "loading": {0, 0}, "memory_used_bytes": {1, 100 << 20}, "memory_max_bytes": {100 << 20, 100 << 20},
		"uptime_seconds": {0, 600}, "evicted_keys_total": {0, 0}, "expired_keys_total": {0, 1},
		"network_bytes_total in": {1, 1e9}, "network_bytes_total out": {1, 1e9}, "connected_clients": {1, 100}, "max_clients": {100, 1e6},
		"keyspace_lookups_total hit": {1, 1}, "keyspace_lookups_total miss": {1, 1},
		"script_calls_total": {1, 1}, "script_seconds_total": {1e-5, 5}, "connected_replicas": {1, 1},
		"replication_lag_bytes": {0, 1000}, "replication_lag_seconds": {0, 10},
		"persistence_ok rdb": {1, 1}, "persistence_ok aof": {1, 1}, "last_save_timestamp_seconds": {1.6e9, 1e10},
	} {
		got, known := series[name]
		if !known || got < allowed[0] || got > allowed[1] {
			t.Errorf("%s is %v (known: %v), want %v to %v", name, got, known, allowed[0], allowed[1])
		}
		delete(series, name)
	}
	if len(series) > 0 {
		t.Errorf("series that the test does not know: %v", slices.Sorted(maps.Keys(series)))
	}
}

// TestCollectorFailures: what a server says of its failures, and what it does not say.
func TestCollectorFailures(t *testing.T) {
	info := "# Persistence\r\nloading:1\r\nrdb_last_bgsave_status:err\r\naof_enabled:1\r\naof_last_write_status:ok\r\naof_last_bgrewrite_status:err\r\n" +
		"# Replication\r\nmaster_repl_offset:5000\r\nslave0:ip=1,port=1,state=online,offset=4990,lag=0\r\nslave1:ip=2,port=1,state=online,offset=1000,lag=7\r\n" +
		"# Commandstats\r\ncmdstat_evalsha:calls=3,usec=1500000,usec_per_call=1\r\ncmdstat_eval:calls=1,usec=500000,usec_per_call=1\r\n"
	series := askOnce(t, redishealth.New(redishealth.Config{Nodes: func(context.Context) ([]redishealth.Node, error) {
		return []redishealth.Node{{Name: "a", Ask: func(context.Context, ...string) ([]string, error) { return []string{info}, nil }}}, nil
	}}))
	want := map[string]float64{
		"up": 1, "loading": 1, "persistence_ok rdb": 0, "persistence_ok aof": 0, "replication_lag_bytes": 4000, "replication_lag_seconds": 7,
		"script_calls_total": 4, "script_seconds_total": 2,
	}
	if !maps.Equal(series, want) {
		t.Errorf("series %v, want %v", series, want)
	}
}

// TestCollectorAsksOnItsTimer: once at the start and once in each interval, however often it is scraped; what does not
// answer is down, with no figures of before, and so are all when they can't be listed.
func TestCollectorAsksOnItsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var fault, listing atomic.Bool
		c := redishealth.New(redishealth.Config{
			Interval: time.Minute,
			Nodes: func(context.Context) ([]redishealth.Node, error) {
				if listing.Load() {
					return nil, errors.New("no node is known")
				}
				return []redishealth.Node{
					{Name: "a", Ask: func(context.Context, ...string) ([]string, error) {
						asked.Add(1)
						return []string{"used_memory:7"}, nil
					}},
					{Name: "b", Ask: func(ctx context.Context, _ ...string) ([]string, error) {
						if fault.Load() {
							<-ctx.Done() // it hangs
							return nil, ctx.Err()
						}
						return []string{"used_memory:8"}, nil
					}},
				}, nil
			},
		})
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c)
		if n := testutil.CollectAndCount(c); n != 0 {
			t.Errorf("%d series before it asked, want none", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { c.Run(ctx); close(ended) }()
		expect := func(questions int64, want string) {
			t.Helper()
			synctest.Wait()
			if n := asked.Load(); n != questions {
				t.Errorf("a was asked %d times, want %d", n, questions)
			}
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		}
		const up = "# HELP rate_limiter_redis_up Whether the server answered when it was asked last.\n# TYPE rate_limiter_redis_up gauge\n"
		const memory = "# HELP rate_limiter_redis_memory_used_bytes Memory that the server uses.\n# TYPE rate_limiter_redis_memory_used_bytes gauge\n" +
			"rate_limiter_redis_memory_used_bytes{node=\"a\"} 7\n"
		both := memory + "rate_limiter_redis_memory_used_bytes{node=\"b\"} 8\n" + up + "rate_limiter_redis_up{node=\"a\"} 1\nrate_limiter_redis_up{node=\"b\"} 1\n"
		expect(1, both)
		<-time.After(59 * time.Second)
		expect(1, both)
		fault.Store(true)
		<-time.After(4 * time.Second) // the interval, and the timeout of b
		expect(2, memory+up+"rate_limiter_redis_up{node=\"a\"} 1\nrate_limiter_redis_up{node=\"b\"} 0\n")
		listing.Store(true)
		<-time.After(time.Minute)
		expect(2, up+"rate_limiter_redis_up{node=\"a\"} 0\nrate_limiter_redis_up{node=\"b\"} 0\n")
		cancel()
		<-ended
	})
}
