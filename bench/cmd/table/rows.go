package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stint-go/stint/bench/internal/results"
)

// none is a bound that a row does not have, and a measurement that was not made. It compares as
// false with everything: !(x >= none) holds for each x.
var none = math.NaN()

// parts are the rows that can be asked for, by name.
var parts = map[string]func(*results.Set) []row{
	"take":       speed,
	"memory":     size,
	"service":    served,
	"middleware": behind,
	"traces":     traced,
	"envoy":      asEnvoy,
	"resp":       asRedis,
	"redis":      onRedis,
	"cluster":    onClusters,
	"network":    behindNetworks,
	"all": func(set *results.Set) []row {
		return slices.Concat(
			speed(set), size(set), served(set), behind(set), onRedis(set), onClusters(set), behindNetworks(set),
		)
	},
}

// speed compares the time of a decision in memory with the floor's and with that of the fastest peer,
// which may be another one for each load.
func speed(set *results.Set) []row {
	var fromPeers, fromFloor []row
	for _, load := range []struct {
		keys, title            string
		serial, two, overFloor float64 // the bounds
		aim                    float64
	}{
		{"uniform_1M", "1,000,000 keys, uniform", 1.7, 1.7, 1.5, 2},
		{"zipf_1M", "1,000,000 keys, Zipf 1.1", 1.7, 1.7, 1.5, 2},
		{"hot", "one hot key", 1.5, 1.2, 2.5, none},
	} {
		for _, path := range []string{"admitted", "denied"} {
			for _, cores := range []struct {
				cpu, title string
				must       float64
			}{{"1", "serial", load.serial}, {"2", "two cores", load.two}} {
				of := func(impl string) float64 {
					return set.Median(fmt.Sprintf("Take/keys=%s/path=%s/cpu=%s/impl=%s", load.keys, path, cores.cpu, impl), "sec/op")
				}
				own, floor, peer, name := of("stint"), of("floor"), none, "no peer"
				for _, impl := range set.Each("Take", "impl") {
					if d := of(impl); impl != "stint" && impl != "floor" && !math.IsNaN(d) && !(d >= peer) {
						peer, name = d, impl
					}
				}
				title := fmt.Sprintf("%s, %s, %s", load.title, path, cores.title)
				fromPeers = append(fromPeers, row{
					what: "x fastest peer: " + title, must: cores.must, aim: load.aim, measured: peer / own, unit: "x",
					from: fmt.Sprintf("%.0f ns, %s %.0f ns", own*1e9, name, peer*1e9),
				})
				fromFloor = append(fromFloor, row{
					what: "x floor: " + title, atMost: true, must: load.overFloor, aim: none, measured: own / floor, unit: "x",
					from: fmt.Sprintf("%.0f ns, floor %.0f ns", own*1e9, floor*1e9),
				})
			}
		}
	}
	return append(fromPeers, fromFloor...)
}

// size is the memory per key and the allocations of a decision.
func size(set *results.Set) (all []row) {
	var others []string
	for _, impl := range set.Each("Memory", "impl") {
		if impl != "stint" {
			others = append(others, fmt.Sprintf("%s %.0f", impl, set.Max("Memory/impl="+impl, "B/key")))
		}
	}
	for _, alg := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter"} {
		all = append(all, row{
			what: "heap per key at 1,000,000: " + alg + ", worst order", atMost: true, must: 48, aim: none,
			measured: set.Max("Memory/impl=stint/keys=1000000/alg="+alg, "B/key"), unit: " B", from: strings.Join(others, ", "),
		})
	}
	worst, at := none, "no"
	for _, keys := range set.Each("Memory", "keys") {
		if v := set.Max("Memory/impl=stint/alg=token_bucket/keys="+keys, "B/key"); !math.IsNaN(v) && !(v <= worst) {
			worst, at = v, keys
		}
	}
	return append(all, row{
		what:     "allocations per decision, worst case",
		atMost:   true,
		must:     0,
		aim:      none,
		measured: set.Max("Take/impl=stint", "allocs/op"),
		from:     fmt.Sprintf("(heap per key at its worst: %.1f B with %s keys)", worst, at),
	})
}

// behind is the requests per second of handlers with the middleware in front, as a share of the
// handlers' own.
func behind(set *results.Set) (all []row) {
	for _, handler := range []string{"small", "page"} {
		rate := func(impl string) float64 { return set.Median("Middleware/handler="+handler+"/impl="+impl, "req/s") }
		share := func(impl string) float64 { return 100 * rate(impl) / rate("bare") }
		all = append(all, row{
			what: "middleware, one rule on memory, share of the handler's own requests: " + handler, must: 90, aim: none,
			measured: share("rule"), unit: "%",
			from: fmt.Sprintf("%.0f/s, bare %.0f/s; without fields %.1f %%, five constant fields alone %.1f %%",
				rate("rule"), rate("bare"), share("rule-silent"), share("fields")),
		})
	}
	return all
}

// traced is the processor time of the service with 1 % of traces, as a multiple of that without.
func traced(set *results.Set) []row {
	used := func(impl string) float64 { return set.Median("Traces/impl="+impl, cpu) * 1e6 }
	return []row{{
		what: "processor time of a check with 1 % of traces, of that without", atMost: true, must: none, aim: none,
		measured: used("on") / used("off"), unit: "x", from: fmt.Sprintf("%.1f us, without %.1f us", used("on"), used("off")),
	}}
}

// cpu is the unit of the processor time of an answer, in seconds, of the server alone.
const cpu = "cpu-sec/op"

// floors compares implementations with the one that decides nothing, by answers per second and processor time.
func floors(set *results.Set, title, name, floor string, impls ...string) (all []row) {
	rate := func(impl string) float64 { return set.Median(name+"/impl="+impl, "req/s") }
	used := func(impl string) float64 { return set.Median(name+"/impl="+impl, cpu) * 1e6 }
	for _, impl := range impls {
		from := fmt.Sprintf("%.0f/s, %s %.0f/s", rate(impl), floor, rate(floor))
		if p99 := set.Median(name+"/impl="+impl, "p99-sec"); !math.IsNaN(p99) {
			from += fmt.Sprintf("; p99 %.2f ms, %.2f ms", 1e3*p99, 1e3*set.Median(name+"/impl="+floor, "p99-sec"))
		}
		all = append(all, row{
			what: title + ": " + impl + ", share of the answers per second of " + floor, must: none, aim: none,
			measured: 100 * rate(impl) / rate(floor), unit: "%", from: from,
		}, row{
			what: title + ": " + impl + ", processor time, of that of " + floor, atMost: true, must: none, aim: none,
			measured: used(impl) / used(floor), unit: "x",
			from: fmt.Sprintf("%.2f us, %s %.2f us", used(impl), floor, used(floor)),
		})
	}
	return all
}

// asEnvoy is what the rate limit service reaches, and Envoy's own, of a bare grpc-go server.
func asEnvoy(set *results.Set) []row {
	impls := []string{"stint", "reference", "reference_pipelined"}
	return slices.Concat(
		floors(set, "Envoy, memory, 64 in flight", "Envoy/store=memory/in_flight=64", "bare", "stint"),
		floors(set, "Envoy, memory, 512 in flight", "Envoy/store=memory/in_flight=512", "bare", "stint"),
		floors(set, "Envoy, Redis, 64 in flight", "Envoy/store=redis/in_flight=64", "bare", impls...),
		floors(set, "Envoy, Redis, 512 in flight", envoyOnRedis, "bare", impls...),
		floors(set, "Envoy, Redis, at a rate", "Envoy/store=redis/offered=7000", "bare", impls...),
	)
}

// asRedis is what the Redis protocol reaches of a redis-server's plainest commands.
func asRedis(set *results.Set) []row {
	return slices.Concat(
		floors(set, "pipelines of 64", "RESP/pipeline=64", "redis_get", "stint_throttle", "redis_evalsha"),
		floors(set, "one by one", "RESP/pipeline=1", "redis_incr", "stint_throttle"),
	)
}

// served is what the running service reaches.
func served(set *results.Set) (all []row) {
	for _, path := range []string{"admitted", "denied"} {
		own, bare := set.Median("Service/impl=stint/path="+path, "req/s"), set.Median("Service/impl=bare/path="+path, "req/s")
		all = append(all, row{
			what: "service on memory, share of a bare handler's requests: " + path, must: 85, aim: none,
			measured: 100 * own / bare, unit: "%", from: fmt.Sprintf("%.0f/s, bare %.0f/s", own, bare),
		})
	}
	for _, processes := range []string{"1 process", "4 processes"} {
		name := "OpenLoop/processes=" + processes[:1]
		millis := func(unit string) float64 { return 1000 * set.Median(name, unit) }
		title := processes + " on Redis, open loop: "
		all = append(all,
			row{
				what: title + "p99", atMost: true, must: 10, aim: none, measured: millis("p99-sec"), unit: " ms",
				from: fmt.Sprintf("%.0f/s, p50 %.2f ms, p99.9 %.2f ms",
					set.Median(name, "req/s"), millis("p50-sec"), millis("p999-sec")),
			},
			row{what: title + "errors", atMost: true, must: 0, aim: none, measured: set.Max(name, "errors")},
			row{what: title + "decisions that differ", atMost: true, must: 0, aim: none, measured: set.Max(name, "differ")})
	}
	return all
}
