package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

const sample = `BenchmarkTake/impl=floor/keys=hot/path=admitted 	 1 	 40 ns/op 	 0 allocs/op
BenchmarkTake/impl=stint/keys=hot/path=admitted 	 1 	 60 ns/op 	 0 allocs/op
BenchmarkTake/impl=slow/keys=hot/path=admitted 	 1 	 200 ns/op 	 2 allocs/op
BenchmarkTake/impl=fast/keys=hot/path=admitted 	 1 	 120 ns/op 	 0 allocs/op
BenchmarkTake/impl=fast/keys=hot/path=denied 	 1 	 120 ns/op 	 0 allocs/op
BenchmarkTake/impl=stint/keys=hot/path=denied 	 1 	 100 ns/op 	 0 allocs/op
BenchmarkMemory/impl=stint/alg=token_bucket/order=random/keys=1000000 	 1 	 1 ns/op 	 49 B/key
BenchmarkMemory/impl=stint/alg=token_bucket/order=reversed/keys=1000000 	 1 	 1 ns/op 	 47 B/key
`

func TestTableComparesWithTheFastestPeer(t *testing.T) {
	expectLines(t, tableOf(t, "all", "take.txt", sample), map[string][]string{
		"x fastest peer: one hot key, admitted, serial":    {">= 1.50x", " 2x", " ok ", "fast 120 ns"},
		"x fastest peer: one hot key, denied, serial":      {" 1.20x", "MISSED"},
		"x fastest peer: one hot key, denied, two cores":   {"not measured"},
		"x floor: one hot key, admitted, serial":           {"<= 2.50x", " 1.50x", " ok ", "floor 40 ns"},
		"heap per key at 1,000,000: token_bucket":          {"<= 48 B", " 49 B", "MISSED"},
		"allocations per decision":                         {"<= 0", " ok"},
		"service on memory, share of a bare handler's req": {"not measured"},
		"4 processes on Redis, open loop: p99":             {"<= 10 ms", "not measured"},
	})
}

// tableOf is the table that is printed of a part, by what a file has measured.
func tableOf(t *testing.T, part, file, text string) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	var out strings.Builder
	must.Get(run(&out, part, dir, nil))(t)
	return out.String()
}

// expectLines expects that lines with some beginnings have some parts.
func expectLines(t *testing.T, table string, lines map[string][]string) {
	t.Helper()
	for start, want := range lines {
		line := lineThat(table, start)
		for _, part := range want {
			if !strings.Contains(line, part) {
				t.Errorf("line %q of %q lacks %q", line, start, part)
			}
		}
	}
}

func lineThat(text, start string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, start) {
			return line
		}
	}
	return ""
}
