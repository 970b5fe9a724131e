// Package served measures stint as programs ask for it, over sockets: REST, a handler's middleware, Envoy's rate limit
// service and the Redis protocol, each beside a server that decides nothing. `stint bench` makes the load, and verifies
// what is decided.
package served

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
)

var (
	length = flag.Duration("for", 200*time.Millisecond, "how `long` each measurement is")
	round  = flag.Int("round", 0, "the `number` of the round: another one is measured first in each")
)

// program is stint, which TestMain builds.
var program string

func TestMain(m *testing.M) {
	if flag.Parse(); flag.Lookup("test.bench").Value.String() == "" {
		os.Exit(m.Run()) // tests don't need it
	}
	var programs string
	os.Exit(testprogram.Main(func() int {
		program = filepath.Join(programs, "stint")
		return m.Run()
	}, &programs, "../../service/cmd/stint"))
}

// serve starts `stint serve` with a configuration, and with a listener at an address by the flag. It returns its number.
func serve(tb testing.TB, config, listener, addr string, env []string, args ...string) (pid int) {
	tb.Helper()
	file := written(tb, "stint.yaml", config)
	args = append([]string{"serve", "--config", file, "--admin-listen", "off", listener, addr}, args...)
	if listener != "--listen" {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	return proc.Start(tb, addr, env, program, args...)
}

func written(tb testing.TB, name, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	must.Do(tb, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// figures are what `stint bench --json` says of a target.
type figures struct {
	Decisions, Admitted, Denied, Failed int64
	Error                               string
	PerSecond                           float64
	Latency                             map[string]float64 `json:"latencyMicros"`
	Findings                            struct{ AdmittedBeyond, DeniedTooMuch int64 }
}

func (f *figures) differ() int64 { return f.Findings.AdmittedBeyond + f.Findings.DeniedTooMuch }

// add adds what another `stint bench` found at the same time: of latencies, the longer one.
func (f *figures) add(other figures) {
	f.Decisions += other.Decisions
	f.Admitted += other.Admitted
	f.Denied += other.Denied
	f.Failed += other.Failed
	f.PerSecond += other.PerSecond
	f.Findings.AdmittedBeyond += other.Findings.AdmittedBeyond
	f.Findings.DeniedTooMuch += other.Findings.DeniedTooMuch
	if f.Latency == nil {
		f.Latency = map[string]float64{}
	}
	for percentile, micros := range other.Latency {
		f.Latency[percentile] = max(f.Latency[percentile], micros)
	}
}

// load runs `stint bench`, for so long as each measurement is.
func load(tb testing.TB, args ...string) figures {
	tb.Helper()
	args = append([]string{"bench", "--json", "--for", length.String()}, args...)
	command := exec.CommandContext(tb.Context(), program, args...)
	command.Stderr = os.Stderr
	out, ended := command.Output()
	var report struct{ Targets []figures }
	if err := json.Unmarshal(out, &report); err != nil || len(report.Targets) != 1 || report.Targets[0].Decisions == 0 {
		tb.Errorf("%s: %v, %v\n%s", command, ended, err, out)
		return figures{}
	}
	return report.Targets[0] // it ends with 1 if decisions differ, which the figures say
}

// An entrant is a server that is measured: how it is asked, and whose processor time that is.
type entrant struct {
	name string
	pid  int
	// bare says that it decides nothing, so that there is nothing to verify.
	bare bool
	ask  func(tb testing.TB) figures
}

// race measures entrants by turns.
func race(b *testing.B, entrants ...entrant) {
	for i := range entrants {
		e := entrants[(i+*round)%len(entrants)] // none always goes first
		b.Run("impl="+e.name, func(b *testing.B) {
			for b.Loop() { // the last one counts
				before := proc.CPUTime(e.pid)
				f := e.ask(b)
				used := float64(proc.CPUTime(e.pid)-before) / float64(f.Decisions)
				if f.Decisions == 0 || f.Failed > 0 || f.differ() > 0 && !e.bare {
					b.Fatalf("%d of %d requests failed, and %d decisions differ: %+v", f.Failed, f.Failed+f.Decisions, f.differ(), f)
				}
				report(b, f)
				b.ReportMetric(used, "cpu-ns/op")
			}
		})
	}
}

// report reports figures.
func report(b *testing.B, f figures) {
	b.ReportMetric(1e9/f.PerSecond, "ns/op")
	b.ReportMetric(f.PerSecond, "req/s")
	for percentile, unit := range map[string]string{"p50": "p50-sec", "p99": "p99-sec", "p99.9": "p999-sec", "p100": "max-sec"} {
		if micros, known := f.Latency[percentile]; known {
			b.ReportMetric(micros/1e6, unit)
		}
	}
	b.ReportMetric(float64(f.Failed), "errors")
	b.ReportMetric(float64(f.differ()), "differ")
}
