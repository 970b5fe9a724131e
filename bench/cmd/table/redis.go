package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/stint-go/stint/bench/internal/results"
)

const (
	redis       = "Redis"
	redisMemory = "RedisMemory"
	redisRate   = "redis_rate"
	decisions   = "decisions/s"
	crowd       = "512" // callers where there are many
)

// redisLoads are the loads whose checks every implementation must pass, in the order of
// the table.
var redisLoads = []struct{ name, title string }{
	{"hot", "one hot key"},
	{"zipf", "Zipf 1.1 over 100,000 keys"},
	{"uniform", "100,000 uniform keys"},
	{"policy", "three limits on three clients"},
	{"denied", "a flood on a denied key"},
	{"lease", "one key with leases"},
	{"saturated", "one key that always wants more"},
	{"exhausted", "many keys that want more, Zipf 1.1"},
}

func titleOf(load string) string {
	for _, l := range redisLoads {
		if l.name == load {
			return l.title
		}
	}
	return load
}

// onRedis compares with redis_rate in the same run.
func onRedis(set *results.Set) []row {
	all := []row{
		faster(set, "hot", crowd, 20, 30),
		faster(set, "zipf", crowd, 7, 10),
		faster(set, "uniform", crowd, 5, 8),
		faster(set, "policy", crowd, 6, 15),
		faster(set, "denied", crowd, 100, 200),
	}
	flood := median(set, subject, "denied", crowd, "commands/s")
	all = append(all, row{
		what: "Redis commands per second under that flood", atMost: true, must: 10, aim: none, measured: flood,
		wrong: isWrong(set, subject, "denied", crowd),
		from:  fmt.Sprintf("redis_rate %.0f", median(set, redisRate, "denied", crowd, "commands/s")),
	})
	all = append(all, row{
		what: "leases on 1,000,000 per second, one process, 512 callers", must: 5e6, aim: 10e6,
		measured: median(set, subject, "lease", crowd, decisions), unit: "/s", wrong: isWrong(set, subject, "lease", crowd),
		from: fmt.Sprintf("%.0f Redis commands per second", median(set, subject, "lease", crowd, "commands/s")),
	})
	for _, load := range []string{"hot", "zipf", "uniform"} {
		all = append(all, faster(set, load, "1", 0.9, 1))
	}
	for _, load := range []string{"hot", "zipf", "uniform"} {
		own, peer := median(set, subject, load, "64", "p99-sec"), median(set, redisRate, load, "64", "p99-sec")
		all = append(all, row{
			what: "x redis_rate's p99: " + titleOf(load) + ", 64 callers", atMost: true, must: 0.5, aim: 1.0 / 3,
			measured: own / peer, unit: "x", wrong: isWrong(set, subject, load, "64"),
			from: fmt.Sprintf("%.2f ms, redis_rate %.2f ms", own*1e3, peer*1e3),
		})
	}
	return append(all, onRedisSize(set)...)
}

// faster is by how much stint decides more per second than redis_rate.
func faster(set *results.Set, load, callers string, must, aim float64) row {
	own, peer := median(set, subject, load, callers, decisions), median(set, redisRate, load, callers, decisions)
	who := callers + " callers"
	if callers == "1" {
		who = "one caller alone"
	}
	return row{
		what: "x redis_rate: " + titleOf(load) + ", " + who, must: must, aim: aim, measured: own / peer, unit: "x",
		from:  fmt.Sprintf("%.0f/s, redis_rate %.0f/s", own, peer),
		wrong: isWrong(set, subject, load, callers),
	}
}

func onRedisSize(set *results.Set) []row {
	bytes := func(impl, generations string) float64 {
		return results.Median(set.Values(redisMemory, "B/client", results.Labels{"impl": impl, "generations": generations}))
	}
	peer := fmt.Sprintf("redis_rate %.0f B", bytes(redisRate, "1"))
	return []row{
		{
			what: "Redis bytes per client, token bucket, within a generation", atMost: true, must: 100, aim: 80,
			measured: bytes(subject, "1"), unit: " B", from: peer,
		},
		{
			what: "Redis bytes per client, token bucket, across a turn", atMost: true, must: 200, aim: none,
			measured: bytes(subject, "2"), unit: " B", from: peer,
		},
		{
			what: "Redis bytes per entry of a sliding log of 1,000, worst window", atMost: true, must: 12, aim: 6,
			measured: results.Max(set.Values(redisMemory, "B/entry", results.Labels{"impl": subject, "entries": "1000"})), unit: " B",
		},
	}
}

func median(set *results.Set, impl, load, callers, unit string) float64 {
	return results.Median(set.Values(redis, unit, results.Labels{"impl": impl, "load": load, "callers": callers}))
}

// isWrong reports whether any round found something admitted wrongly.
func isWrong(set *results.Set, impl, load, callers string) bool {
	return results.Max(set.Values(redis, "wrong", results.Labels{"impl": impl, "load": load, "callers": callers})) > 0
}

// everyLimiter prints what all implementations reached under every load, and by which
// check what they admitted was right.
func everyLimiter(w io.Writer, set *results.Set) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\nload\tcallers\tlimiter\tdecisions/s\tx redis_rate\tp50 ms\tp99 ms\tRedis commands/s\terrors\tothers\tcheck\t")
	callers := set.Each(redis, "callers")
	slices.SortFunc(callers, func(a, b string) int { return number(a) - number(b) })
	for _, load := range redisLoads {
		for _, n := range callers {
			for _, impl := range implsOf(set) {
				of := func(unit string) float64 { return median(set, impl, load.name, n, unit) }
				rate := of(decisions)
				if !(rate > 0) {
					continue // not measured
				}
				verdict := reached
				if isWrong(set, impl, load.name, n) {
					verdict = wrong
				}
				errors := results.Max(set.Values(redis, "errors", results.Labels{"impl": impl, "load": load.name, "callers": n}))
				ratio := row{unit: "x"}.value(rate / median(set, redisRate, load.name, n, decisions))
				fmt.Fprintf(out, "%s\t%s\t%s\t%.0f\t%s\t%.3f\t%.3f\t%.0f\t%.0f\t%.0f%%\t%s\t%s\n", load.name, n, impl, rate, ratio,
					of("p50-sec")*1e3, of("p99-sec")*1e3, of("commands/s"), errors, of("others-%"), checkOf(set, impl, load.name), verdict)
			}
		}
	}
	return out.Flush()
}

// implsOf lists the implementations measured, stint and redis_rate first.
func implsOf(set *results.Set) []string {
	impls := set.Each(redis, "impl")
	rank := func(impl string) int {
		if i := slices.Index([]string{subject, redisRate}, impl); i >= 0 {
			return i
		}
		return 2
	}
	slices.SortStableFunc(impls, func(a, b string) int { return rank(a) - rank(b) })
	return impls
}

// checkOf is the check that the measurements carry.
func checkOf(set *results.Set, impl, load string) string {
	var found []string
	for _, check := range set.Each(redis, "check") {
		if len(set.Values(redis, decisions, results.Labels{"impl": impl, "load": load, "check": check})) > 0 {
			found = append(found, check)
		}
	}
	return strings.Join(found, ", ")
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
