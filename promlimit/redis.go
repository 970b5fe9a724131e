package promlimit

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A RedisNode is a server that holds a store's keys.
type RedisNode struct {
	// Name is the label node, such as the server's address. It must differ between nodes.
	Name string
	// Ask sends a command without a key and returns the strings of its reply.
	Ask func(ctx context.Context, args ...string) ([]string, error)
}

// A RedisConfig says how a [RedisCollector] asks. Nodes has no default.
type RedisConfig struct {
	// Nodes lists the servers now; none are the same as an error. It must be safe for concurrent use.
	Nodes func(context.Context) ([]RedisNode, error)
	// Interval is how often they are asked, by one INFO each. Default: 0, which is 15 seconds.
	Interval time.Duration
	// Timeout bounds each time that they are listed and asked. Default: 0, which is 2 seconds.
	Timeout time.Duration
}

// A RedisCollector reads the health of a store's own Redis or Valkey from INFO, and serves what it read last; a scrape
// asks nobody. A figure that a server does not tell is left out.
//
//	rate_limiter_redis_up{node}                          1 if it answered when it was asked last, else 0
//	rate_limiter_redis_uptime_seconds{node}              since it was started
//	rate_limiter_redis_loading{node}                     1 while it loads its data
//	rate_limiter_redis_memory_used_bytes{node}           memory used
//	rate_limiter_redis_memory_max_bytes{node}            its limit; 0 is none
//	rate_limiter_redis_expired_keys_total{node}          keys that expired
//	rate_limiter_redis_evicted_keys_total{node}          keys evicted at the memory's limit
//	rate_limiter_redis_network_bytes_total{node,direction}  received (in) and sent (out)
//	rate_limiter_redis_connected_clients{node}           connections
//	rate_limiter_redis_max_clients{node}                 their limit
//	rate_limiter_redis_keyspace_lookups_total{node,outcome}  lookups of keys: hit, miss
//	rate_limiter_redis_script_calls_total{node}          EVAL, EVALSHA
//	rate_limiter_redis_script_seconds_total{node}        time in them
//	rate_limiter_redis_connected_replicas{node}          replicas
//	rate_limiter_redis_replication_lag_bytes{node}       how far the last of them is behind
//	rate_limiter_redis_replication_lag_seconds{node}     since the last of them acknowledged
//	rate_limiter_redis_persistence_ok{node,kind}         1 if the last snapshot (rdb), or write of the append-only file (aof), succeeded
//	rate_limiter_redis_last_save_timestamp_seconds{node} time of the last snapshot
type RedisCollector struct {
	config  RedisConfig
	samples atomic.Pointer[[]redisSample]
}

// redisSample is what one node said last.
type redisSample struct {
	node string
	info map[string]string // nil: it did not answer
}

// NewRedisCollector makes a collector, which has no figures until [RedisCollector.Run] has asked. The caller registers it.
func NewRedisCollector(config RedisConfig) *RedisCollector {
	config.Interval = cmp.Or(config.Interval, 15*time.Second)
	config.Timeout = cmp.Or(config.Timeout, 2*time.Second)
	c := &RedisCollector{config: config}
	c.samples.Store(new([]redisSample))
	return c
}

// Run asks at once, then after each interval, until the context ends. It must be called once.
func (c *RedisCollector) Run(ctx context.Context) {
	ticker := time.NewTicker(c.config.Interval)
	defer ticker.Stop()
	for {
		c.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// ask asks all nodes at once.
func (c *RedisCollector) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	nodes, err := c.config.Nodes(ctx)
	if err != nil || len(nodes) == 0 { // nobody can be asked: none of those that were there answers
		silent := make([]redisSample, len(*c.samples.Load()))
		for i, sample := range *c.samples.Load() {
			silent[i].node = sample.node
		}
		c.samples.Store(&silent)
		return
	}
	samples := make([]redisSample, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		samples[i].node = node.Name
		group.Go(func() {
			if reply, err := node.Ask(ctx, "INFO", "all"); err == nil && len(reply) > 0 {
				samples[i].info = parseInfo(reply[0])
			}
		})
	}
	group.Wait()
	c.samples.Store(&samples)
}

// parseInfo takes an INFO's reply apart: lines NAME:VALUE, and titles that begin with #.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// parts takes a value such as calls=1,usec=20 apart.
func parts(value string) map[string]string {
	fields := map[string]string{}
	for field := range strings.SplitSeq(value, ",") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	return fields
}

// redisFigure is one metric, and how it is found in an INFO. Of those with a second label, value is that.
type redisFigure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value string
	of    func(info map[string]string) (float64, bool)
}

func redisDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rate_limiter_redis_"+name, help, append([]string{"node"}, labels...), nil)
}

// field finds a number by its name.
func field(name string) func(map[string]string) (float64, bool) {
	return func(info map[string]string) (float64, bool) {
		n, err := strconv.ParseFloat(info[name], 64)
		return n, err == nil
	}
}

// succeeded finds out whether all of these are ok, where a kind of persistence is in use.
func succeeded(applies func(map[string]string) bool, names ...string) func(map[string]string) (float64, bool) {
	return func(info map[string]string) (float64, bool) {
		ok := 1.0
		for _, name := range names {
			if status, told := info[name]; told && status != "ok" {
				ok = 0
			}
		}
		_, told := info[names[0]]
		return ok, told && applies(info)
	}
}

// scripts sums a figure of the commands that run scripts.
func scripts(figure string, unit float64) func(map[string]string) (float64, bool) {
	return func(info map[string]string) (sum float64, known bool) {
		for _, command := range []string{"eval", "evalsha", "eval_ro", "evalsha_ro"} {
			if n, err := strconv.ParseFloat(parts(info["cmdstat_"+command])[figure], 64); err == nil {
				sum += n
				known = true
			}
		}
		return sum * unit, known
	}
}

// lag is the largest of what of says about each replica, unless there is none.
func lag(of func(info, replica map[string]string) (float64, error)) func(map[string]string) (float64, bool) {
	return func(info map[string]string) (worst float64, known bool) {
		for i := 0; ; i++ {
			value, ok := info["slave"+strconv.Itoa(i)]
			if !ok {
				return worst, known
			}
			if n, err := of(info, parts(value)); err == nil {
				worst, known = max(worst, n), true
			}
		}
	}
}

func lagBytes(info, replica map[string]string) (float64, error) {
	sent, err := strconv.ParseFloat(info["master_repl_offset"], 64)
	if err != nil {
		return 0, err
	}
	received, err := strconv.ParseFloat(replica["offset"], 64)
	return sent - received, err
}

func lagSeconds(_, replica map[string]string) (float64, error) {
	return strconv.ParseFloat(replica["lag"], 64)
}

func always(map[string]string) bool { return true }

func appendOnly(info map[string]string) bool { return info["aof_enabled"] == "1" }

// redisUp is told of every node, the others of those that answered.
func redisUp() *prometheus.Desc {
	return redisDesc("up", "Whether the server answered when it was asked last.")
}

func redisFigures() []redisFigure {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	network := redisDesc("network_bytes_total", "Bytes that the server received and sent.", "direction")
	lookups := redisDesc("keyspace_lookups_total", "Lookups of keys by commands that read, by whether the key was there.", "outcome")
	persistence := redisDesc("persistence_ok", "Whether the last snapshot, or write of the append-only file, succeeded.", "kind")
	return []redisFigure{
		{redisDesc("uptime_seconds", "Time since the server was started."), gauge, "", field("uptime_in_seconds")},
		{redisDesc("loading", "Whether the server loads its data."), gauge, "", field("loading")},
		{redisDesc("memory_used_bytes", "Memory that the server uses."), gauge, "", field("used_memory")},
		{redisDesc("memory_max_bytes", "The limit of the server's memory; 0 is none."), gauge, "", field("maxmemory")},
		{redisDesc("expired_keys_total", "Keys that expired."), counter, "", field("expired_keys")},
		{redisDesc("evicted_keys_total", "Keys that were evicted at the memory's limit."), counter, "", field("evicted_keys")},
		{network, counter, "in", field("total_net_input_bytes")},
		{network, counter, "out", field("total_net_output_bytes")},
		{redisDesc("connected_clients", "Connections of clients."), gauge, "", field("connected_clients")},
		{redisDesc("max_clients", "The limit of the connections of clients."), gauge, "", field("maxclients")},
		{lookups, counter, "hit", field("keyspace_hits")},
		{lookups, counter, "miss", field("keyspace_misses")},
		{redisDesc("script_calls_total", "Calls of scripts."), counter, "", scripts("calls", 1)},
		{redisDesc("script_seconds_total", "Time that the server spent in scripts."), counter, "", scripts("usec", 1e-6)},
		{redisDesc("connected_replicas", "Replicas of the server."), gauge, "", field("connected_slaves")},
		{redisDesc("replication_lag_bytes", "How far the slowest replica is behind."), gauge, "", lag(lagBytes)},
		{redisDesc("replication_lag_seconds", "Time since the slowest replica acknowledged what it received."), gauge, "", lag(lagSeconds)},
		{persistence, gauge, "rdb", succeeded(always, "rdb_last_bgsave_status")},
		{persistence, gauge, "aof", succeeded(appendOnly, "aof_last_write_status", "aof_last_bgrewrite_status")},
		{redisDesc("last_save_timestamp_seconds", "When the last snapshot was made, in Unix time."), gauge, "", field("rdb_last_save_time")},
	}
}

// Describe implements [prometheus.Collector].
func (c *RedisCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- redisUp()
	for _, f := range redisFigures() {
		descs <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *RedisCollector) Collect(metrics chan<- prometheus.Metric) {
	up, figures := redisUp(), redisFigures()
	for _, sample := range *c.samples.Load() {
		answered := 0.0
		if sample.info != nil {
			answered = 1
		}
		metrics <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, answered, sample.node)
		for _, f := range figures {
			n, known := f.of(sample.info)
			if !known {
				continue
			}
			labels := []string{sample.node}
			if f.value != "" {
				labels = append(labels, f.value)
			}
			metrics <- prometheus.MustNewConstMetric(f.desc, f.kind, n, labels...)
		}
	}
}
