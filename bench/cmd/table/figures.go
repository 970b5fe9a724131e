package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint/bench/internal/results"
)

// A figure is a list of tables in pages, between <!-- figures:NAME --> and <!-- /figures -->. The
// line above the tables names the command that measures them, and the machine that it ran on.
type figure struct {
	name    string
	command string
	pages   []string
	tables  []table
}

// A table has a head, and rows of labels and cells.
type table struct {
	head []string
	rows []line
}

// A line of a table has a label, which may have several columns, and the cells of what was measured.
type line struct {
	label []string
	cells []cell
}

// A cell is a text in which each # stands for a number, such as "# / # ns".
type cell struct {
	format string
	of     func(*results.Set) []float64 // one number for each #; NaN: not measured
}

// unmeasured stands for a cell without a measurement.
const unmeasured = "–"

// text is the cell as it was measured, or unmeasured if one of its numbers was not.
func (c cell) text(set *results.Set) string {
	text := c.format
	for _, n := range c.of(set) {
		if math.IsNaN(n) {
			return unmeasured
		}
		text = strings.Replace(text, "#", number3(n), 1)
	}
	return text
}

// pattern matches what text returns.
func (c cell) pattern() *regexp.Regexp {
	const number = `[0-9][0-9,.]*`
	return regexp.MustCompile("^(" + strings.ReplaceAll(regexp.QuoteMeta(c.format), "#", number) + "|" + unmeasured + ")$")
}

// number3 is a number with three digits or more: 1.23, 12.3, 123, 1,234. Zeros behind the point are
// left out.
func number3(n float64) string {
	digits := 0
	for _, limit := range []float64{10, 100} {
		if n < limit {
			digits++
		}
	}
	text := strconv.FormatFloat(n, 'f', digits, 64)
	for i := len(text) - 3; digits == 0 && i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if digits > 0 {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// one is a cell of one number, of measurements that a name selects: their median times a factor.
func one(format, name, unit string, times float64) cell {
	return cell{format, func(set *results.Set) []float64 { return []float64{times * set.Median(name, unit)} }}
}

// ratio is a cell of one number: what a name selects by what another selects.
func ratio(format, name, other, unit string) cell {
	return cell{format, func(set *results.Set) []float64 {
		return []float64{set.Median(name, unit) / set.Median(other, unit)}
	}}
}

// spread is a cell of the least and the most of what a name selects.
func spread(name, unit string) cell {
	return cell{"# to #", func(set *results.Set) []float64 {
		values := set.Values(name, unit)
		if len(values) == 0 {
			return []float64{none}
		}
		return []float64{slices.Min(values), slices.Max(values)}
	}}
}

// blank is a cell of what is not measured.
var blank = cell{unmeasured, func(*results.Set) []float64 { return nil }}

const (
	readme, korean, benchPage, redisPage = "README.md", "README.ko.md", "bench/README.md", "bench/redis.md"

	envoyOnRedis = "Envoy/store=redis/in_flight=512"
)

// figures are all of them.
func figures() []figure {
	return []figure{
		{"readme", "make figures", []string{readme, korean}, []table{
			{
				[]string{
					"memory store, token bucket, full decision", "stint", "fastest peer",
					"a bare table with one compare-and-swap (lower bound)",
				},
				[]line{
					taken("1,000,000 keys, uniform, serial / two cores", "uniform_1M"),
					taken("one hot key, serial / two cores", "hot"),
					{[]string{"heap per key at 1,000,000 keys"}, []cell{heapOf("stint"), {"# bytes", leastHeap}, heapOf("floor")}},
				},
			}, {
				[]string{
					"Redis on one core, the client on the other", "stint", "redis_rate v10", "rueidislimiter", "of redis_rate",
					"of rueidislimiter",
				},
				[]line{
					decided("one hot key, 512 callers", "hot", "512"),
					decided("100,000 uniform keys, 512 callers", "uniform", "512"),
					decided("a flood on a denied key, 512 callers", "denied", "512"),
					decided("one caller alone, hot key", "hot", "1"),
					{[]string{"Redis bytes per client, 1,000,000 clients ([if they go on asking](docs/redis.md#memory))"}, []cell{
						{"# (#)", func(set *results.Set) []float64 {
							const name, unit = "RedisMemory/state=token_bucket/impl=stint/generations=", "B/client"
							return []float64{set.Median(name+"1", unit), set.Median(name+"2", unit)}
						}},
						one("#", "RedisMemory/impl=redis_rate", "B/client", 1),
						one("#", "RedisMemory/impl=rueidislimiter", "B/client", 1), blank, blank,
					}},
				},
			}, {
				[]string{"service, requests per second", "measured", "lower bound", "share"},
				[]line{
					share("`stint serve` on `memory://`, of a bare net/http handler",
						[]string{"Service/path=admitted"}, "stint", "bare"),
					share("a handler behind one rule with all header fields, of the handler alone: 13 bytes / 20 items as JSON",
						[]string{"Middleware/handler=small", "Middleware/handler=page"}, "rule", "bare"),
					share("Envoy's rate limit service, 512 calls in flight, of a bare grpc-go server: on memory / Redis",
						[]string{"Envoy/store=memory/in_flight=512", envoyOnRedis}, "stint", "bare"),
					share("Envoy's own rate limit service on Redis, of the same", []string{envoyOnRedis}, "reference", "bare"),
					share("`CL.THROTTLE` on memory, of redis-server's GET in pipelines of 64, one core each",
						[]string{"RESP/pipeline=64"}, "stint_throttle", "redis_get"),
					share("`CL.THROTTLE` one by one, of redis-server's INCR",
						[]string{"RESP/pipeline=1"}, "stint_throttle", "redis_incr"),
				},
			},
		}},
		{"envoy", "make bench-envoy", []string{benchPage}, []table{{
			[]string{
				"in flight, store", "stint, of bare", "its processor time, of bare", "reference service, of bare",
				"its processor time, of bare",
			},
			[]line{
				envoyLine("64, memory", "Envoy/store=memory/in_flight=64"),
				envoyLine("512, memory", "Envoy/store=memory/in_flight=512"),
				envoyLine("512, Redis", envoyOnRedis),
			},
		}}},
		{"resp", "make bench-resp", []string{benchPage}, []table{{
			[]string{"pipeline", "command", "per second", "ratio", "processor, us", "ratio"},
			[]line{
				respLine("64", "GET", "redis_get", "redis_get"), respLine("64", "`CL.THROTTLE`", "stint_throttle", "redis_get"),
				respLine("64", "EVALSHA of redis_rate's algorithm", "redis_evalsha", "redis_get"),
				respLine("1", "INCR", "redis_incr", "redis_incr"), respLine("1", "`CL.THROTTLE`", "stint_throttle", "redis_incr"),
			},
		}}},
		{"cluster", "make bench-cluster", []string{redisPage}, []table{{
			[]string{"primaries", "stint, decisions per CPU second", "redis_rate", "rueidislimiter", "of redis_rate"},
			[]line{clusterLine("1"), clusterLine("2"), clusterLine("3")},
		}}},
		{"network", "make bench-network", []string{redisPage}, []table{{
			[]string{
				"delay", "callers", "stint, decisions/s", "redis_rate", "rueidislimiter", "of redis_rate",
				"stint, p99", "redis_rate", "rueidislimiter",
			},
			[]line{
				networkLine("1", "64"), networkLine("1", "512"), networkLine("5", "64"),
				networkLine("5", "512"), networkLine("50", "64"), networkLine("50", "512"),
			},
		}}},
	}
}

// taken is the time of a decision in memory, on one processor and two: stint's, that of the fastest
// peer on as many processors, and the floor's.
func taken(label, keys string) line {
	of := func(set *results.Set, impl, cpus string) float64 {
		return 1e9 * set.Median("Take/path=admitted/keys="+keys+"/impl="+impl+"/cpu="+cpus, "sec/op")
	}
	both := func(impls func(*results.Set) []string) cell {
		return cell{"# / # ns", func(set *results.Set) []float64 {
			times := []float64{none, none}
			for i, cpus := range []string{"1", "2"} {
				for _, impl := range impls(set) {
					if t := of(set, impl, cpus); !math.IsNaN(t) && !(t >= times[i]) {
						times[i] = t
					}
				}
			}
			return times
		}}
	}
	named := func(impl string) func(*results.Set) []string {
		return func(*results.Set) []string { return []string{impl} }
	}
	peers := func(set *results.Set) []string {
		notPeer := func(impl string) bool { return impl == "stint" || impl == "floor" }
		return slices.DeleteFunc(set.Each("Take", "impl"), notPeer)
	}
	return line{[]string{label}, []cell{both(named("stint")), both(peers), both(named("floor"))}}
}

// heapOf is the heap per key, if the keys come in the worst order of those that were measured.
func heapOf(impl string) cell {
	return cell{"# bytes", func(set *results.Set) []float64 {
		return []float64{set.Max("Memory/keys=1000000/alg=token_bucket/impl="+impl, "B/key")}
	}}
}

// leastHeap is the heap per key of the peer that needs the least.
func leastHeap(set *results.Set) []float64 {
	least := none
	for _, impl := range set.Each("Memory", "impl") {
		if n := set.Median("Memory/keys=1000000/impl="+impl, "B/key"); impl != "stint" && impl != "floor" && !(n >= least) {
			least = n
		}
	}
	return []float64{least}
}

// decided is the decisions per second on Redis, and stint's as a multiple of each peer's.
func decided(label, load, callers string) line {
	name := "Redis/load=" + load + "/callers=" + callers + "/impl="
	rate := func(impl string) cell { return one("#/s", name+impl, "decisions/s", 1) }
	of := func(impl string) cell { return ratio("# x", name+"stint", name+impl, "decisions/s") }
	return line{[]string{label}, []cell{
		rate("stint"), rate("redis_rate"), rate("rueidislimiter"), of("redis_rate"), of("rueidislimiter"),
	}}
}

// share is the requests per second of an implementation and of a floor, and the share in percent.
// A cell has one number for each of the benchmarks.
func share(label string, names []string, impl, floor string) line {
	of := func(format string, value func(set *results.Set, name string) float64) cell {
		return cell{strings.Repeat(format+" / ", len(names)-1) + format, func(set *results.Set) (all []float64) {
			for _, name := range names {
				all = append(all, value(set, name))
			}
			return all
		}}
	}
	rate := func(impl string) func(set *results.Set, name string) float64 {
		return func(set *results.Set, name string) float64 { return set.Median(name+"/impl="+impl, "req/s") }
	}
	percent := func(set *results.Set, name string) float64 {
		return 100 * rate(impl)(set, name) / rate(floor)(set, name)
	}
	return line{[]string{label}, []cell{of("#", rate(impl)), of("#", rate(floor)), of("# %", percent)}}
}

// envoyLine is the rate and processor time of stint and of the reference service, each first as a
// multiple of a bare server's.
func envoyLine(label, name string) line {
	var cells []cell
	for _, impl := range []string{"stint", "reference"} {
		impl, floor := name+"/impl="+impl, name+"/impl=bare"
		cells = append(cells, cell{"# (#/s)", func(set *results.Set) []float64 {
			return []float64{set.Median(impl, "req/s") / set.Median(floor, "req/s"), set.Median(impl, "req/s")}
		}}, cell{"# (# us)", func(set *results.Set) []float64 {
			return []float64{set.Median(impl, cpu) / set.Median(floor, cpu), 1e6 * set.Median(impl, cpu)}
		}})
	}
	return line{[]string{label}, cells}
}

// respLine is the rate and processor time of a command, and each as a multiple of a floor's.
func respLine(pipeline, command, impl, floor string) line {
	name := "RESP/pipeline=" + pipeline + "/impl="
	return line{[]string{pipeline, command}, []cell{
		one("#", name+impl, "req/s", 1), ratio("#", name+impl, name+floor, "req/s"),
		one("#", name+impl, cpu, 1e6), ratio("#", name+impl, name+floor, cpu),
	}}
}

// clusterLine is the decisions per second of Redis's processor time on so many primaries.
func clusterLine(primaries string) line {
	const unit = "decisions/cpu-s"
	name := "RedisCluster/load=uniform/callers=64/primaries=" + primaries + "/impl="
	return line{[]string{primaries}, []cell{
		spread(name+"stint", unit), spread(name+"redis_rate", unit), spread(name+"rueidislimiter", unit),
		ratio("#", name+"stint", name+"redis_rate", unit),
	}}
}

// networkLine is the decisions per second and the latency behind a network with a delay, in
// milliseconds.
func networkLine(delay, callers string) line {
	name := "RedisNetwork/load=uniform/callers=" + callers + "/delay=" + delay + "ms/impl="
	rate := func(impl string) cell { return one("#", name+impl, "decisions/s", 1) }
	late := func(impl string) cell { return one("# ms", name+impl, "p99-sec", 1e3) }
	return line{[]string{delay + " ms", callers}, []cell{
		rate("stint"), rate("redis_rate"), rate("rueidislimiter"), ratio("#", name+"stint", name+"redis_rate", "decisions/s"),
		late("stint"), late("redis_rate"), late("rueidislimiter"),
	}}
}

// region is what stands between the comments of a figure.
func (f *figure) region() *regexp.Regexp {
	return regexp.MustCompile(`(?ms)^<!-- figures:` + f.name + ` -->\n(.*?)^<!-- /figures -->\n`)
}

// source is the first line of a region.
func (f *figure) source(machine string) string { return "`" + f.command + "`: " + machine }

// tableRow is a row of a table in Markdown.
func tableRow(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |" }

// ruler is the second row of a table.
func (t *table) ruler() string { return strings.Repeat("|---", len(t.head)) + "|" }

// lines are the table as it was measured, in Markdown, and whether any of its cells was measured.
func (t *table) lines(set *results.Set) (lines []string, measured bool) {
	lines = []string{tableRow(t.head...), t.ruler()}
	for _, row := range t.rows {
		texts := slices.Clone(row.label)
		for _, c := range row.cells {
			texts = append(texts, c.text(set))
			measured = measured || texts[len(texts)-1] != unmeasured
		}
		lines = append(lines, tableRow(texts...))
	}
	return lines, measured
}

// write returns a page with the figure as it was measured on a machine. If one of its tables was not
// measured at all, that is the same page: no figure mixes machines. A page in another language keeps
// its labels.
func (f *figure) write(page []byte, set *results.Set, machine string, translated bool) ([]byte, error) {
	at := f.region().FindSubmatchIndex(page)
	if at == nil {
		return nil, fmt.Errorf("the page has no <!-- figures:%s --> or no <!-- /figures --> after it", f.name)
	}
	texts := []string{f.source(machine)}
	old := strings.Split(strings.TrimSpace(string(page[at[2]:at[3]])), "\n\n")
	if translated && len(old) != len(f.tables)+1 {
		return nil, fmt.Errorf(
			"figures:%s has %d tables in a translation; it has to have %d", f.name, len(old)-1, len(f.tables),
		)
	}
	for i, t := range f.tables {
		lines, measured := t.lines(set)
		if !measured {
			return page, nil
		}
		if translated {
			was := strings.Split(old[i+1], "\n")
			if len(was) != len(lines) {
				return nil, fmt.Errorf(
					"figures:%s has a table of %d lines in a translation; it has to have %d", f.name, len(was), len(lines),
				)
			}
			lines[0] = was[0]
			for j, row := range t.rows {
				cells := strings.Split(lines[j+2], " | ")
				copy(cells[:len(row.label)], strings.Split(was[j+2], " | "))
				lines[j+2] = strings.Join(cells, " | ")
			}
		}
		texts = append(texts, strings.Join(lines, "\n"))
	}
	return slices.Concat(page[:at[2]], []byte(strings.Join(texts, "\n\n")+"\n"), page[at[3]:]), nil
}

// writePages writes all figures that were measured into the pages in a folder.
func writePages(folder, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	var set results.Set
	for _, file := range files {
		err = errors.Join(err, set.Read(file))
	}
	text, fault := os.ReadFile(filepath.Join(dir, "machine.txt"))
	if err = errors.Join(err, fault); err != nil {
		return err
	}
	_, machine, _ := strings.Cut(strings.TrimSpace(string(text)), "machine: ")
	for _, f := range figures() {
		for _, name := range f.pages {
			path := filepath.Join(folder, name)
			page, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if page, err = f.write(page, &set, machine, name == korean); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := os.WriteFile(path, page, 0o666); err != nil { //nolint:gosec // a page that others may read
				return err
			}
		}
	}
	return nil
}

// machine names this machine: its processor and how many cores of it there are, memory, the kernel, Go
// and Redis. Figures of different machines are not to be compared.
func machine() string {
	field := func(file, name string) string {
		text, _ := os.ReadFile(file)
		for line := range bytes.Lines(text) {
			if key, value, found := strings.Cut(string(line), ":"); found && strings.TrimSpace(key) == name {
				return strings.TrimSpace(value)
			}
		}
		return "unknown"
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	redis, _ := exec.Command("redis-server", "--version").Output() //nolint:noctx // it ends
	kilobytes, _ := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	version := regexp.MustCompile(`v=(\S+)`).FindSubmatch(append(redis, " v=unknown"...))[1]
	return fmt.Sprintf(
		"%s, %d cores, %d GiB of memory, Linux %s, %s, Redis %s",
		field("/proc/cpuinfo", "model name"), runtime.NumCPU(), kilobytes>>20, bytes.TrimSpace(kernel),
		strings.Replace(runtime.Version(), "go", "Go ", 1), version,
	)
}
