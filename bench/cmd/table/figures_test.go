package main

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/bench/internal/results"
	"github.com/stint-go/stint/internal/must"
)

const root = "../../.."

// What stands in the pages is what the generator writes: a command that the Makefile has, a machine, the head, the labels,
// and cells of the forms that the generator has. A translation has its own head and labels. No other table says that it is.
func TestPagesHoldFigures(t *testing.T) {
	makefile := must.Get(os.ReadFile(filepath.Join(root, "Makefile")))(t)
	named := map[string][]string{}
	for _, f := range figures() {
		for _, page := range f.pages {
			named[page] = append(named[page], f.name)
			text := must.Get(os.ReadFile(filepath.Join(root, page)))(t)
			found := f.region().FindSubmatch(text)
			if found == nil {
				t.Errorf("%s has no figures:%s", page, f.name)
				continue
			}
			for _, fault := range faultsOf(&f, string(found[1]), page == korean) {
				t.Errorf("%s, figures:%s: %s", page, f.name, fault)
			}
		}
		for target := range strings.FieldsSeq(strings.TrimPrefix(f.command, "make ")) {
			if !strings.Contains(string(makefile), "\n"+target+":") {
				t.Errorf("the Makefile has no target %s", target)
			}
		}
	}
	for page, names := range named {
		text, _ := os.ReadFile(filepath.Join(root, page))
		var have []string
		for _, found := range regexp.MustCompile(`(?m)^<!-- figures:(\S+) -->$`).FindAllSubmatch(text, -1) {
			have = append(have, string(found[1]))
		}
		if !slices.Equal(have, names) || strings.Count(string(text), "\n<!-- /figures -->\n") != len(names) {
			t.Errorf("%s has the figures %q, want %q", page, have, names)
		}
	}
}

// faultsOf are what is wrong with a region.
func faultsOf(f *figure, text string, translated bool) (faults []string) {
	parts := strings.Split(strings.TrimSuffix(text, "\n"), "\n\n")
	if len(parts) != 1+len(f.tables) {
		return []string{"it has other tables"}
	}
	if machine, found := strings.CutPrefix(parts[0], f.source("")); !found || !regexp.MustCompile(`\d+ (shared )?cores`).MatchString(machine) {
		faults = append(faults, "it does not begin with a command and a machine: "+parts[0])
	}
	for i, t := range f.tables {
		lines := strings.Split(parts[1+i], "\n")
		if len(lines) != 2+len(t.rows) || lines[0] != tableRow(t.head...) && !translated || lines[1] != t.ruler() {
			faults = append(faults, "it has another head or other rows: "+lines[0])
			continue
		}
		for j, row := range t.rows {
			cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(lines[2+j], "| "), " |"), " | ")
			n := len(row.label)
			if len(cells) != len(t.head) || len(cells) != n+len(row.cells) || !translated && !slices.Equal(cells[:n], row.label) {
				faults = append(faults, "it has another row: "+lines[2+j])
				continue
			}
			for k, c := range row.cells {
				if !c.pattern().MatchString(cells[n+k]) {
					faults = append(faults, "it has a cell of another form: "+cells[n+k])
				}
			}
		}
	}
	return faults
}

// What is measured is written, and right by the test above; a page in another language keeps its labels, and a region of
// which nothing was measured stays.
func TestFiguresAreWritten(t *testing.T) {
	dir, pages := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"machine.txt": "machine: Some CPU, 8 cores, Linux 6.1, Go 1.26\n",
		"redis.txt":   redisSample,
		"take.txt":    sample,
		"service.txt": "BenchmarkMiddleware/handler=small/impl=rule 1 1 ns/op 40000 req/s\nBenchmarkMiddleware/handler=small/impl=bare 1 1 ns/op 50000 req/s\n" +
			"BenchmarkMiddleware/handler=page/impl=rule 1 1 ns/op 9000 req/s\nBenchmarkMiddleware/handler=page/impl=bare 1 1 ns/op 10000 req/s\n",
		"resp.txt": "BenchmarkRESP/pipeline=1/impl=redis_incr 1 1 ns/op 50000 req/s 16000 cpu-ns/op\nBenchmarkRESP/pipeline=1/impl=stint_throttle 1 1 ns/op 40000 req/s 20000 cpu-ns/op\n",
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	written := map[string]string{}
	for _, page := range []string{readme, korean, benchPage, redisPage} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err == nil {
			err = os.MkdirAll(filepath.Join(pages, "bench"), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(pages, page), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// What was not measured stays as it was.
	unmeasured := regexp.MustCompile(`(?m)^\| 512, memory \| .*\n`).FindString(string(must.Get(os.ReadFile(filepath.Join(root, benchPage)))(t)))
	if unmeasured == "" {
		t.Fatalf("%s has no row of Envoy's protocol on memory", benchPage)
	}
	must.Do(t, writePages(pages, dir))
	for _, f := range figures() {
		for _, page := range f.pages {
			text := must.Get(os.ReadFile(filepath.Join(pages, page)))(t)
			written[page] = string(text)
			for _, fault := range faultsOf(&f, string(f.region().FindSubmatch(text)[1]), page == korean) {
				t.Errorf("%s, figures:%s: %s", page, f.name, fault)
			}
		}
	}
	for page, lines := range map[string][]string{
		readme: {
			"`make figures`: Some CPU, 8 cores, Linux 6.1, Go 1.26\n", "| one hot key, serial / two cores | – | – | – |\n", "| heap per key at 1,000,000 keys | 49 bytes | – | – |\n",
			"| one hot key, 512 callers | 400,000/s | 10,000/s | – | 40 x | – |\n",
			"13 bytes / 20 items as JSON | 40,000 / 9,000 | 50,000 / 10,000 | 80 % / 90 % |\n",
		},
		korean:    {"| 핫 키 하나, 호출자 512개 | 400,000/s | 10,000/s | – | 40 x | – |\n"},
		benchPage: {"| 1 | `CL.THROTTLE` | 40,000 | 0.8 | 20 | 1.25 |\n", unmeasured},
		redisPage: {"| 3 | 40,000 to 40,000 | 20,000 to 20,000 | – | 2 |\n", "| 5 ms | 64 | 6,000 | 12,000 | – | 0.5 | 10 ms | 8 ms | – |\n"},
	} {
		for _, line := range lines {
			if !strings.Contains(written[page], line) {
				t.Errorf("%s lacks %q:\n%s", page, line, written[page])
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[float64]string{0.934: "0.93", 7.9: "7.9", 1: "1", 15.14: "15.1", 99: "99", 112.4: "112", 676590: "676,590", 5360000.4: "5,360,000"} {
		if got := number3(n); got != want {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
	if text := one("# ns", "Take", "sec/op", 1e9).text(new(results.Set)); text != unmeasured || !math.IsNaN(none) {
		t.Errorf("of nothing: %s", text)
	}
}
