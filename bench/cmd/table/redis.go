package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stint-go/stint/bench/internal/results"
)

// loads are those of BenchmarkRedis whose checks every implementation must pass, in the order
// of the table.
var loads = []struct{ name, title string }{
	{"hot", "one hot key"},
	{"zipf", "Zipf 1.1 over 100,000 keys"},
	{"uniform", "100,000 uniform keys"},
	{"policy", "three limits on three clients"},
	{"denied", "a flood on a denied key"},
	{"lease", "one key with leases"},
	{"saturated", "one key that always wants more"},
	{"exhausted", "many keys that want more, Zipf 1.1"},
}

// pair is a row that compares stint with a peer in the same cells. The unit is one of decisions, of
// which more is better, or p99-sec, of which less is.
func pair(set *results.Set, peer, title, name, unit string, must, aim float64) row {
	own, other := set.Median(name+"/impl=stint", unit), set.Median(name+"/impl="+peer, unit)
	r := row{
		what: "x " + peer + ": " + title, must: must, aim: aim, measured: own / other, unit: "x",
		wrong: set.Max(name+"/impl=stint", "wrong") > 0,
		from:  fmt.Sprintf("%.0f/s, %s %.0f/s", own, peer, other),
	}
	if r.atMost = unit == "p99-sec"; r.atMost {
		r.what = "x " + peer + "'s p99: " + title
		r.from = fmt.Sprintf("%.2f ms, %s %.2f ms", own*1e3, peer, other*1e3)
	}
	return r
}

// onRedis compares with redis_rate in the same run.
func onRedis(set *results.Set) (all []row) {
	title := map[string]string{}
	for _, l := range loads {
		title[l.name] = l.title
	}
	crowd := func(load string) string { return "Redis/callers=512/load=" + load }
	for _, b := range []struct {
		load      string
		must, aim float64
	}{{"hot", 20, 30}, {"zipf", 7, 10}, {"uniform", 5, 8}, {"policy", 6, 15}, {"denied", 100, 200}} {
		all = append(all, pair(set, "redis_rate", title[b.load]+", 512 callers", crowd(b.load), "decisions/s", b.must, b.aim))
	}
	for _, load := range []string{"hot", "zipf", "uniform", "denied"} {
		all = append(all, pair(set, "rueidislimiter", title[load]+", 512 callers", crowd(load), "decisions/s", none, none))
	}
	denied, lease := crowd("denied")+"/impl=stint", crowd("lease")+"/impl=stint"
	all = append(all, row{
		what: "Redis commands per second under that flood", atMost: true, must: 10, aim: none,
		measured: set.Median(denied, "commands/s"), wrong: set.Max(denied, "wrong") > 0,
		from: fmt.Sprintf("redis_rate %.0f", set.Median(crowd("denied")+"/impl=redis_rate", "commands/s")),
	}, row{
		what: "leases on 1,000,000 per second, one process, 512 callers", must: 5e6, aim: 10e6,
		measured: set.Median(lease, "decisions/s"), unit: "/s", wrong: set.Max(lease, "wrong") > 0,
		from: fmt.Sprintf("%.0f Redis commands per second", set.Median(lease, "commands/s")),
	})
	for _, load := range []string{"hot", "zipf", "uniform"} {
		name := "Redis/callers=1/load=" + load
		all = append(all, pair(set, "redis_rate", title[load]+", one caller alone", name, "decisions/s", 0.9, 1))
	}
	for _, load := range []string{"hot", "zipf", "uniform"} {
		name := "Redis/callers=64/load=" + load
		all = append(all, pair(set, "redis_rate", title[load]+", 64 callers", name, "p99-sec", 0.5, 1.0/3))
	}
	peer := fmt.Sprintf("redis_rate %.0f B", set.Median("RedisMemory/impl=redis_rate", "B/client"))
	return append(all, row{
		what: "Redis bytes per client, token bucket, within a generation", atMost: true, must: 100, aim: 80,
		measured: set.Median("RedisMemory/impl=stint/generations=1", "B/client"), unit: " B", from: peer,
	}, row{
		what: "Redis bytes per client, token bucket, across a turn", atMost: true, must: 200, aim: none,
		measured: set.Median("RedisMemory/impl=stint/generations=2", "B/client"), unit: " B", from: peer,
	}, row{
		what: "Redis bytes per entry of a sliding log of 1,000, worst window", atMost: true, must: 12, aim: 6,
		measured: set.Max("RedisMemory/impl=stint/entries=1000", "B/entry"), unit: " B",
	})
}

// onClusters is what a decision costs Redis as primaries are added. All of them share one
// processor, so decisions per second of their CPU time are what tells.
func onClusters(set *results.Set) (all []row) {
	const unit = "decisions/cpu-s"
	of := func(primaries, impl string) float64 {
		return set.Median("RedisCluster/load=uniform/callers=64/primaries="+primaries+"/impl="+impl, unit)
	}
	for _, n := range []string{"2", "3"} {
		all = append(all, row{
			what:     "Redis CPU per decision, " + n + " primaries, of that with 1",
			atMost:   true,
			must:     1.25,
			aim:      none,
			measured: of("1", "stint") / of(n, "stint"),
			unit:     "x",
			wrong:    set.Max("RedisCluster/impl=stint", "wrong") > 0,
			from: fmt.Sprintf(
				"%.0f per CPU second, with 1 %.0f; redis_rate %.0f, %.0f", of(n, "stint"), of("1", "stint"), of(n, "redis_rate"),
				of("1", "redis_rate"),
			),
		})
	}
	for _, n := range []string{"1 primary", "2 primaries", "3 primaries"} {
		name := "RedisCluster/load=uniform/callers=64/primaries=" + n[:1]
		all = append(all, pair(set, "redis_rate", "per second of Redis's CPU, "+n+", 64 callers", name, unit, 1, none))
	}
	return all
}

// behindNetworks is what is left of the ratios when a round trip takes longer.
func behindNetworks(set *results.Set) (all []row) {
	for _, delay := range []string{"1ms", "5ms", "50ms"} {
		for _, callers := range []string{"64", "512"} {
			name := "RedisNetwork/load=uniform/delay=" + delay + "/callers=" + callers
			title := strings.TrimSuffix(delay, "ms") + " ms of network delay, " + callers + " callers"
			all = append(all,
				pair(set, "redis_rate", title, name, "decisions/s", 0.9, 1),
				pair(set, "redis_rate", title, name, "p99-sec", 1.1, 1))
		}
	}
	return all
}

// everyLimiter prints what all implementations reached in the cells of a benchmark, at
// each place if it has several, how long the processors of the Redis servers worked for a decision, and
// by which check what they admitted was right.
func everyLimiter(w io.Writer, set *results.Set, benchmark, place string) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nload\tcallers\tlimiter\tdecisions/s\tx redis_rate\tRedis us\tp50 ms\tp99 ms\t"+
		"Redis commands/s\terrors\tothers\tcheck\t")
	numerically := func(a, b string) int { return number(a) - number(b) }
	places := slices.SortedFunc(slices.Values(set.Each(benchmark, place)), numerically)
	if place == "" {
		places = []string{""}
	}
	impls := set.Each(benchmark, "impl")
	slices.SortStableFunc(impls, func(a, b string) int { return rank(a) - rank(b) })
	for _, at := range places {
		for _, load := range loads {
			for _, n := range slices.SortedFunc(slices.Values(set.Each(benchmark, "callers")), numerically) {
				for _, impl := range impls {
					name, title := benchmark+"/load="+load.name+"/callers="+n, load.name
					if place != "" {
						name, title = name+"/"+place+"="+at, title+", "+place+"="+at
					}
					printCell(out, set, name, title, n, impl)
				}
			}
		}
	}
	return out.Flush()
}

// printCell prints one line: what a limiter reached under a load with so many callers, if it was
// measured.
func printCell(out io.Writer, set *results.Set, name, title, callers, impl string) {
	own := name + "/impl=" + impl
	of := func(unit string) float64 { return set.Median(own, unit) }
	rate := of("decisions/s")
	if !(rate > 0) {
		return // not measured
	}
	verdict := reached
	if set.Max(own, "wrong") > 0 {
		verdict = wrong
	}
	var checks []string
	benchmark, _, _ := strings.Cut(name, "/")
	for _, check := range set.Each(benchmark, "check") {
		if len(set.Values(own+"/check="+check, "wrong")) > 0 {
			checks = append(checks, check)
		}
	}
	ratio := row{unit: "x"}.value(rate / set.Median(name+"/impl=redis_rate", "decisions/s"))
	fmt.Fprintf(
		out, "%s\t%s\t%s\t%.0f\t%s\t%.3g\t%.3f\t%.3f\t%.0f\t%.0f\t%.0f%%\t%s\t%s\n", title, callers, impl, rate, ratio,
		1e6/of("decisions/cpu-s"), of("p50-sec")*1e3, of("p99-sec")*1e3, of("commands/s"), set.Max(own, "errors"),
		of("others-%"), strings.Join(checks, ", "), verdict,
	)
}

// rank orders limiters: stint, then its closest peers, then all others alike.
func rank(impl string) int {
	if i := slices.Index([]string{"stint", "redis_rate", "rueidislimiter"}, impl); i >= 0 {
		return i
	}
	return 3
}

// number is a text's number for sorting: 512, or a duration such as 5ms in nanoseconds; 0 for others.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		d, _ := time.ParseDuration(text) // 0 if it is none
		n = int(d)
	}
	return n
}
