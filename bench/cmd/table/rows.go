package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stint-go/stint/bench/internal/results"
)

const (
	take      = "Take"
	memory    = "Memory"
	service   = "Service"
	openLoop  = "OpenLoop"
	handlers  = "Middleware"
	seconds   = "sec/op"
	subject   = "stint"
	yardstick = "floor"
)

var none = math.NaN()

// parts are the rows that can be asked for, by name.
var parts = map[string]func(*results.Set) []row{
	"take":       speed,
	"memory":     size,
	"service":    served,
	"middleware": behind,
	"redis":      onRedis,
	"all": func(set *results.Set) []row {
		return slices.Concat(speed(set), size(set), served(set), behind(set), onRedis(set))
	},
}

// speed compares the time of a decision with the fastest peer's and the floor's.
func speed(set *results.Set) []row {
	loads := []struct {
		keys, title            string
		serial, two, overFloor float64 // the bounds
		aim                    float64
	}{
		{"uniform_1M", "1,000,000 keys, uniform", 1.7, 1.7, 1.5, 2},
		{"zipf_1M", "1,000,000 keys, Zipf 1.1", 1.7, 1.7, 1.5, 2},
		{"hot", "one hot key", 1.5, 1.2, 2.5, none},
	}
	var fromPeers, fromFloor []row
	for _, load := range loads {
		for _, path := range []string{"admitted", "denied"} {
			for _, cores := range []struct {
				cpu, title string
				must       float64
			}{{"1", "serial", load.serial}, {"2", "two cores", load.two}} {
				labels := results.Labels{"keys": load.keys, "path": path, "cpu": cores.cpu}
				title := fmt.Sprintf("%s, %s, %s", load.title, path, cores.title)
				own := duration(set, subject, labels)
				peer, name := fastestPeer(set, labels)
				floor := duration(set, yardstick, labels)
				fromPeers = append(fromPeers, row{
					what: "x fastest peer: " + title, must: cores.must, aim: load.aim,
					measured: peer / own, unit: "x",
					from: fmt.Sprintf("%s, %s %s", nanos(own), name, nanos(peer)),
				})
				fromFloor = append(fromFloor, row{
					what: "x floor: " + title, atMost: true, must: load.overFloor, aim: none,
					measured: own / floor, unit: "x",
					from: fmt.Sprintf("%s, floor %s", nanos(own), nanos(floor)),
				})
			}
		}
	}
	return append(fromPeers, fromFloor...)
}

// duration is the median time of a decision in seconds; NaN when it was not
// measured.
func duration(set *results.Set, impl string, labels results.Labels) float64 {
	return results.Median(set.Values(take, seconds, with(labels, "impl", impl)))
}

func fastestPeer(set *results.Set, labels results.Labels) (fastest float64, name string) {
	fastest, name = none, "no peer"
	for _, impl := range set.Each(take, "impl") {
		if impl == subject || impl == yardstick {
			continue
		}
		if d := duration(set, impl, labels); !math.IsNaN(d) && !(d >= fastest) {
			fastest, name = d, impl
		}
	}
	return fastest, name
}

// size is the memory per key and the allocations of a decision.
func size(set *results.Set) []row {
	million := results.Labels{"impl": subject, "keys": "1000000"}
	var all []row
	for _, alg := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter"} {
		worst := results.Max(set.Values(memory, "B/key", with(million, "alg", alg)))
		all = append(all, row{
			what: "heap per key at 1,000,000: " + alg + ", worst order", atMost: true, must: 48, aim: none,
			measured: worst, unit: " B", from: others(set),
		})
	}
	return append(all, row{
		what: "allocations per decision, worst case", atMost: true, must: 0, aim: none,
		measured: results.Max(set.Values(take, "allocs/op", results.Labels{"impl": subject})),
		from:     sweep(set),
	})
}

// others tells the bytes per key of everybody else.
func others(set *results.Set) string {
	var parts []string
	for _, impl := range set.Each(memory, "impl") {
		if impl != subject {
			v := results.Max(set.Values(memory, "B/key", results.Labels{"impl": impl}))
			parts = append(parts, fmt.Sprintf("%s %.0f", impl, v))
		}
	}
	return strings.Join(parts, ", ")
}

// sweep tells the largest memory per key at any number of keys around a million.
func sweep(set *results.Set) string {
	worst, at := none, ""
	for _, keys := range set.Each(memory, "keys") {
		v := results.Max(set.Values(memory, "B/key", results.Labels{"impl": subject, "alg": "token_bucket", "keys": keys}))
		if !math.IsNaN(v) && !(v <= worst) {
			worst, at = v, keys
		}
	}
	if at == "" {
		return ""
	}
	return fmt.Sprintf("(heap per key at its worst: %.1f B with %s keys)", worst, at)
}

// behind is what handlers reach with the middleware before them.
func behind(set *results.Set) []row {
	var all []row
	for _, handler := range []string{"small", "page"} {
		rate := func(impl string) float64 {
			return results.Median(set.Values(handlers, "req/s", results.Labels{"impl": impl, "handler": handler}))
		}
		bare := rate("bare")
		share := func(impl string) float64 { return 100 * rate(impl) / bare }
		all = append(all, row{
			what: "middleware, one rule on memory, share of the handler's own requests: " + handler, must: 90, aim: none,
			measured: share("rule"), unit: "%",
			from: fmt.Sprintf("%.0f/s, bare %.0f/s; without fields %.1f %%, five constant fields alone %.1f %%",
				rate("rule"), bare, share("rule-silent"), share("fields")),
		})
	}
	return all
}

// served is what the running service reaches.
func served(set *results.Set) []row {
	var all []row
	for _, path := range []string{"admitted", "denied"} {
		rate := func(impl string) float64 {
			return results.Median(set.Values(service, "req/s", results.Labels{"impl": impl, "path": path}))
		}
		own, bare := rate(subject), rate("bare")
		all = append(all, row{
			what: "service on memory, share of a bare handler's requests: " + path, must: 85, aim: none,
			measured: 100 * own / bare, unit: "%", from: fmt.Sprintf("%.0f/s, bare %.0f/s", own, bare),
		})
	}
	for _, processes := range []string{"1", "4"} {
		of := func(unit string) []float64 {
			return set.Values(openLoop, unit, results.Labels{"processes": processes})
		}
		millis := func(unit string) float64 { return 1000 * results.Median(of(unit)) }
		title := processes + " process on Redis, open loop: "
		if processes != "1" {
			title = processes + " processes on Redis, open loop: "
		}
		all = append(all,
			row{
				what: title + "p99", atMost: true, must: 10, aim: none, measured: millis("p99-sec"), unit: " ms",
				from: fmt.Sprintf("%.0f/s, p50 %.2f ms, p99.9 %.2f ms, sent late by %.2f ms (p99)",
					results.Median(of("req/s")), millis("p50-sec"), millis("p999-sec"), millis("lag-p99-sec")),
			},
			row{what: title + "errors", atMost: true, must: 0, aim: none, measured: results.Max(of("errors"))},
			row{what: title + "permits admitted too many or too few", atMost: true, must: 0, aim: none, measured: results.Max(of("inexact"))})
	}
	return all
}

func with(labels results.Labels, label, value string) results.Labels {
	extended := results.Labels{label: value}
	for l, v := range labels {
		extended[l] = v
	}
	return extended
}

func nanos(s float64) string {
	if math.IsNaN(s) {
		return "-"
	}
	return fmt.Sprintf("%.0f ns", s*1e9)
}
