package redis

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
	"github.com/stint-go/stint/internal/testredis"
)

// What is measured; the defaults are for a quick look.
var (
	callers = flag.String("callers", "1,12", "comma-separated `numbers` of goroutines that ask")
	keys    = flag.Int("keys", 1000, "`number` of clients where there are many")
	delays  = flag.String("delays", "1ms", "comma-separated `times` of whole milliseconds that the network adds to a round trip")
	clients = flag.Int("clients", 1000, "`number` of clients whose memory is measured")
	strict  = flag.Bool("strict", false, "fail when something is admitted wrongly")
)

// relayMode as the first argument makes the program a relay, of the second argument to the third, with a delay.
const relayMode = "relay"

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == relayMode {
		relay(os.Args[2], os.Args[3], os.Args[4])
		return
	}
	os.Exit(m.Run())
}

// relay stands for a slow network, until the program is ended: it keeps what goes to the server for so many milliseconds. A
// process of its own, so that it takes no turns of the callers.
func relay(listen, to, delay string) {
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(api, "network", listen, to)
	if err := proxy.Start(); err != nil {
		panic(err)
	}
	latency := fmt.Sprintf(`{"type": "latency", "stream": "upstream", "attributes": {"latency": %s}}`, delay)
	if _, err := proxy.Toxics.AddToxicJson(bytes.NewBufferString(latency)); err != nil {
		panic(err)
	}
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	<-ended.Done()
}

// A deployment is running servers.
type deployment struct {
	addrs   []string // where limiters connect to
	cluster bool
	nodes   []*testredis.Server

	cpus  []int // what is measured on; none if that is not known
	redis []int // the servers' process ids
	all   []int // and those of the relay and of this process
}

// deploy makes a deployment of servers, which get one processor, and this process another, where there are two.
func deploy(b *testing.B, cluster bool, nodes ...*testredis.Server) *deployment {
	b.Helper()
	d := deployed(b, cluster, nodes...)
	if cpus := proc.CPUs(); len(cpus) > 1 || pinned != nil {
		if pinned == nil {
			pinned = cpus[:2]
		}
		d.cpus = pinned
		for _, pid := range d.redis {
			proc.Pin(b, pid, pinned[0])
		}
		proc.Pin(b, os.Getpid(), pinned[1])
	}
	return d
}

// pinned are the processors of Redis and of this process, once they are kept there.
var pinned []int

func deployed(tb testing.TB, cluster bool, nodes ...*testredis.Server) *deployment {
	tb.Helper()
	d := &deployment{cluster: cluster, nodes: nodes, all: []int{os.Getpid()}}
	for _, node := range nodes {
		info := must.Get(node.Info("server"))(tb)
		pid, _ := strconv.Atoi(info["process_id"])
		d.addrs, d.redis, d.all = append(d.addrs, node.Addr()), append(d.redis, pid), append(d.all, pid)
	}
	return d
}

// behind puts a relay before the server.
func (d *deployment) behind(tb testing.TB, delay string) *deployment {
	tb.Helper()
	addr := testport.Address(tb)
	pid := proc.Start(tb, addr, nil, os.Args[0], relayMode, addr, d.addrs[0], strings.TrimSuffix(delay, "ms"))
	if d.cpus != nil {
		proc.Pin(tb, pid, d.cpus...) // neither is only the relay's
	}
	d.addrs, d.all = []string{addr}, append(d.all, pid)
	return d
}

func (d *deployment) flush(tb testing.TB) {
	tb.Helper()
	for _, node := range d.nodes {
		must.Get(node.Do("FLUSHALL"))(tb)
	}
}

// commands is how many commands the servers have carried out, those of scripts among
// them.
func (d *deployment) commands() int64 { return int64(d.info("stats", "total_commands_processed")) }

// cpuTime is for how long the servers have had a processor, which the system tells in steps of 10 ms, and they to the
// microsecond.
func (d *deployment) cpuTime() time.Duration {
	seconds := d.info("cpu", "used_cpu_user") + d.info("cpu", "used_cpu_sys")
	return time.Duration(seconds * float64(time.Second))
}

// info adds up a number of INFO over all servers.
func (d *deployment) info(section, field string) (sum float64) {
	for _, node := range d.nodes {
		fields, _ := node.Info(section) // nothing of a server that ended, which the callers notice
		n, _ := strconv.ParseFloat(fields[field], 64)
		sum += n
	}
	return sum
}

// BenchmarkRedis is one decision by one server.
func BenchmarkRedis(b *testing.B) { race(b, deploy(b, false, testredis.Start(b))) }

// BenchmarkRedisCluster is one decision by clusters, all on one processor.
func BenchmarkRedisCluster(b *testing.B) {
	for _, primaries := range []int{1, 2, 3} {
		b.Run(fmt.Sprintf("primaries=%d", primaries), func(b *testing.B) {
			race(b, deploy(b, true, testredis.StartCluster(b, primaries).Nodes...), "uniform")
		})
	}
}

// BenchmarkRedisNetwork is one decision by a server behind a slow network.
func BenchmarkRedisNetwork(b *testing.B) {
	for delay := range strings.SplitSeq(*delays, ",") {
		b.Run("delay="+delay, func(b *testing.B) {
			race(b, deploy(b, false, testredis.Start(b)).behind(b, delay), "uniform")
		})
	}
}

// race has every load, or one, put on every implementation, by every number of callers.
func race(b *testing.B, d *deployment, only ...string) {
	var numbers []int
	for text := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			b.Fatalf("callers is %q; allowed: comma-separated numbers from 1", *callers)
		}
		numbers = append(numbers, n)
	}
	for _, l := range loads() {
		if len(only) > 0 && !slices.Contains(only, l.name) {
			continue
		}
		b.Run("load="+l.name, func(b *testing.B) {
			drawn := map[int]*traffic{}
			for _, c := range contenders() {
				if !l.has(c) {
					continue
				}
				b.Run("impl="+c.Name, func(b *testing.B) {
					var s *session
					for _, n := range numbers {
						b.Run(fmt.Sprintf("callers=%d/check=%s", n, l.check.name(c)), func(b *testing.B) {
							if drawn[n] == nil {
								drawn[n] = newTraffic(&l, *keys, n)
							}
							if s != nil && l.fresh {
								s.close(b)
								s = nil
							}
							if s == nil {
								s = newSession(b, d, &l, c, drawn[n].names, slices.Max(numbers))
							}
							benchmark(b, s, drawn[n])
						})
					}
					if s != nil {
						s.close(b)
					}
				})
			}
		})
	}
}

// benchmark measures b.N decisions.
func benchmark(b *testing.B, s *session, t *traffic) {
	b.StopTimer() // the checks behind a slow network take longer than benchtime, and there would be no second run
	b.ResetTimer()
	m := s.measure(b.Context(), t, b.N, func(ask func()) {
		b.StartTimer()
		ask()
		b.StopTimer()
	})
	seconds := m.elapsed.Seconds()
	b.ReportMetric(seconds*1e9/float64(b.N), "ns/op") // without the checks
	b.ReportMetric(float64(b.N)/seconds, "decisions/s")
	b.ReportMetric(float64(m.latency.ValueAtQuantile(50))/1e9, "p50-sec")
	b.ReportMetric(float64(m.latency.ValueAtQuantile(99))/1e9, "p99-sec")
	b.ReportMetric(float64(m.failed), "errors")
	b.ReportMetric(float64(m.commands)/seconds, "commands/s")
	b.ReportMetric(m.others, "others-%")
	b.ReportMetric(float64(len(m.faults)), "wrong")
	if m.cpu > 0 {
		b.ReportMetric(float64(b.N)/m.cpu.Seconds(), "decisions/cpu-s")
	}
	for _, fault := range m.faults[:min(3, len(m.faults))] {
		if *strict {
			b.Error(fault)
		} else {
			fmt.Fprintf(os.Stderr, "WRONG: %s: %s\n", b.Name(), fault)
		}
	}
}
