// Package redishealth reads the health of a store's own Redis or Valkey for metrics.
package redishealth

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/sleep"
)

// A Node is a server that holds a store's keys.
type Node struct {
	// Name is the label node, such as the server's address. It must differ between nodes.
	Name string
	// Ask sends a command without a key and returns the strings of its reply.
	Ask func(ctx context.Context, args ...string) ([]string, error)
}

// A Config says how a [Collector] asks. Nodes has no default.
type Config struct {
	// Nodes lists the servers now; none are the same as an error. It must be safe for concurrent use.
	Nodes func(context.Context) ([]Node, error)
	// Interval is how often they are asked, by one INFO each. Default: 0, which is 15 seconds.
	//
	// Each time costs every server one INFO all, well below a millisecond; a shorter interval shows
	// shorter peaks of memory and lag.
	Interval time.Duration
}

// A Collector reads the health of a store's own Redis or Valkey from INFO, and serves what it
// read last; a scrape asks nobody. A figure that a server does not tell is left out.
// docs/reference/metrics.md lists them. The figures may be as old as the interval; a scrape that is
// late or doubled costs the servers nothing. A node that did not answer has up 0 and no figures,
// rather than its last ones.
type Collector struct {
	config Config
	// of every node; the figures are of those that answered
	up      *prometheus.Desc
	figures []figure
	samples atomic.Pointer[[]sample]
}

// timeout bounds each time that the servers are listed and asked.
const timeout = 2 * time.Second

// sample is what one node said last.
type sample struct {
	node string
	info map[string]string // nil: it did not answer
}

// New makes a collector, which has no figures until [Collector.Run] has asked. The caller registers
// it.
func New(config Config) *Collector {
	config.Interval = cmp.Or(config.Interval, 15*time.Second)
	c := &Collector{
		config:  config,
		up:      desc("rate_limiter_redis_up", "Whether the server answered when it was asked last."),
		figures: allFigures(),
	}
	c.samples.Store(new([]sample))
	return c
}

// Run asks at once, then after each interval, until the context ends. It must be called once.
func (c *Collector) Run(ctx context.Context) {
	c.ask(ctx)
	sleep.Every(ctx, c.config.Interval, func() { c.ask(ctx) })
}

// ask asks all nodes at once. All are asked at once, within timeout in total, so that one that
// hangs does not delay the others beyond it.
func (c *Collector) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	nodes, err := c.config.Nodes(ctx)
	if err != nil || len(nodes) == 0 { // nobody can be asked: none of those that were there answers
		silent := make([]sample, len(*c.samples.Load()))
		for i, sample := range *c.samples.Load() {
			silent[i].node = sample.node
		}
		c.samples.Store(&silent)
		return
	}
	samples := make([]sample, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		samples[i].node = node.Name
		group.Go(func() {
			if reply, err := node.Ask(ctx, "INFO", "all"); err == nil && len(reply) > 0 {
				samples[i].info = pairs(reply[0], "\n", ":")
			}
		})
	}
	group.Wait()
	c.samples.Store(&samples)
}

// pairs takes apart an INFO's reply of lines NAME:VALUE, or a value such as calls=1,usec=20.
func pairs(text, between, within string) map[string]string {
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, between) {
		name, value, _ := strings.Cut(strings.TrimSpace(field), within)
		fields[name] = value
	}
	return fields
}

// figure is one metric, and how it is found in an INFO. value is the second label's; ""
// without one.
type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value string
	of    func(info map[string]string) (float64, bool)
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"node"}, labels...), nil)
}

// field finds a number by its name.
func field(name string) func(map[string]string) (float64, bool) {
	return func(info map[string]string) (float64, bool) {
		n, err := strconv.ParseFloat(info[name], 64)
		return n, err == nil
	}
}

// succeeded finds out whether all of these are ok, if a kind of persistence is in use. INFO tells
// aof_last_... also with the append-only file switched off, where it means nothing.
func succeeded(names ...string) func(map[string]string) (float64, bool) {
	return func(info map[string]string) (float64, bool) {
		if strings.HasPrefix(names[0], "aof_") && info["aof_enabled"] != "1" {
			return 0, false
		}
		ok := 1.0
		for _, name := range names {
			if status, told := info[name]; told && status != "ok" {
				ok = 0
			}
		}
		return ok, info[names[0]] != ""
	}
}

// scripts sums a figure of the commands that run scripts.
func scripts(figure string, unit float64) func(map[string]string) (float64, bool) {
	return func(info map[string]string) (sum float64, known bool) {
		for _, command := range []string{"eval", "evalsha", "eval_ro", "evalsha_ro"} {
			if n, ok := field(figure)(pairs(info["cmdstat_"+command], ",", "=")); ok {
				sum, known = sum+n*unit, true
			}
		}
		return sum, known
	}
}

// lag is the largest figure of the replicas; if the server tells its own as from, how far that is
// ahead.
func lag(figure, from string) func(map[string]string) (float64, bool) {
	return func(info map[string]string) (worst float64, known bool) {
		for i := 0; info["slave"+strconv.Itoa(i)] != ""; i++ {
			n, ok := field(figure)(pairs(info["slave"+strconv.Itoa(i)], ",", "="))
			if sent, told := field(from)(info); from != "" {
				n, ok = sent-n, ok && told
			}
			if ok {
				worst, known = max(worst, n), true
			}
		}
		return worst, known
	}
}

// allFigures lists the figures with the fields of INFO that they are read from. Units are those
// of Prometheus: bytes and seconds.
func allFigures() []figure {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	network := desc("rate_limiter_redis_network_bytes_total", "Bytes that the server received and sent.", "direction")
	lookups := desc("rate_limiter_redis_keyspace_lookups_total",
		"Lookups of keys by commands that read, by whether the key was there.", "outcome")
	persistence := desc("rate_limiter_redis_persistence_ok",
		"Whether the last snapshot, or write of the append-only file, succeeded.", "kind")
	told := func(kind prometheus.ValueType, name, help, from string) figure {
		return figure{desc(name, help), kind, "", field(from)}
	}
	return []figure{
		told(gauge, "rate_limiter_redis_uptime_seconds", "Time since the server was started.", "uptime_in_seconds"),
		told(gauge, "rate_limiter_redis_loading", "Whether the server loads its data.", "loading"),
		told(gauge, "rate_limiter_redis_memory_used_bytes", "Memory that the server uses.", "used_memory"),
		told(gauge, "rate_limiter_redis_memory_max_bytes", "The limit of the server's memory; 0 is none.", "maxmemory"),
		told(counter, "rate_limiter_redis_expired_keys_total", "Keys that expired.", "expired_keys"),
		told(counter, "rate_limiter_redis_evicted_keys_total",
			"Keys that were evicted at the memory's limit.", "evicted_keys"),
		{network, counter, "in", field("total_net_input_bytes")},
		{network, counter, "out", field("total_net_output_bytes")},
		told(gauge, "rate_limiter_redis_connected_clients", "Connections of clients.", "connected_clients"),
		told(gauge, "rate_limiter_redis_max_clients", "The limit of the connections of clients.", "maxclients"),
		{lookups, counter, "hit", field("keyspace_hits")},
		{lookups, counter, "miss", field("keyspace_misses")},
		{desc("rate_limiter_redis_script_calls_total", "Calls of scripts."), counter, "", scripts("calls", 1)},
		{
			desc("rate_limiter_redis_script_seconds_total", "Time that the server spent in scripts."), counter, "",
			scripts("usec", 1e-6),
		},
		told(gauge, "rate_limiter_redis_connected_replicas", "Replicas of the server.", "connected_slaves"),
		{
			desc("rate_limiter_redis_replication_lag_bytes", "How far the slowest replica is behind."), gauge, "",
			lag("offset", "master_repl_offset"),
		},
		{desc("rate_limiter_redis_replication_lag_seconds",
			"Time since the slowest replica acknowledged what it received."), gauge, "", lag("lag", "")},
		{persistence, gauge, "rdb", succeeded("rdb_last_bgsave_status")},
		{persistence, gauge, "aof", succeeded("aof_last_write_status", "aof_last_bgrewrite_status")},
		told(gauge, "rate_limiter_redis_last_save_timestamp_seconds", "When the last snapshot was made, in Unix time.",
			"rdb_last_save_time"),
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.up
	for _, f := range c.figures {
		descs <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, sample := range *c.samples.Load() {
		answered := 0.0
		if sample.info != nil {
			answered = 1
		}
		metrics <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, answered, sample.node)
		for _, f := range c.figures {
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

// Memory sums the memory of a store's servers. With one server that has no limit the sum has
// none: that server could take everything.
type Memory struct {
	Used    int64 // bytes
	Max     int64 // bytes; 0: a server has no limit
	Evicted int64 // keys
}

// Memory sums what the servers that answered said last; the zero value if none did.
func (c *Collector) Memory() (sum Memory) {
	bounded := true
	for _, sample := range *c.samples.Load() {
		if sample.info == nil {
			continue
		}
		number := func(name string) int64 {
			n, _ := strconv.ParseInt(sample.info[name], 10, 64) // 0 if the server does not tell
			return n
		}
		most := number("maxmemory")
		bounded = bounded && most > 0
		sum.Used, sum.Max, sum.Evicted = sum.Used+number("used_memory"), sum.Max+most, sum.Evicted+number("evicted_keys")
	}
	if !bounded {
		sum.Max = 0
	}
	return sum
}
