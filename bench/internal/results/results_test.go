package results

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const sample = `goos: linux
BenchmarkTake/impl=stint/keys=hot/path=admitted         	 100	 30 ns/op	 0 B/op	 0 allocs/op
BenchmarkTake/impl=stint/keys=hot/path=admitted-2       	 100	 20 ns/op	 0 B/op	 0 allocs/op
BenchmarkTake/impl=stint/keys=hot/path=admitted         	 100	 50 ns/op	 0 B/op	 0 allocs/op
BenchmarkTake/impl=go_limiter/keys=hot/path=admitted    	 100	 80 ns/op	 0 B/op	 0 allocs/op
BenchmarkOpenLoop/processes=4-2	 100	 900 ns/op	 0.0025 p99-sec	 0 errors
PASS
`

func TestReadSelectsByLabels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "take.txt")
	if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	var s Set
	if err := s.Read(path); err != nil {
		t.Fatal(err)
	}
	serial := Labels{"impl": "stint", "keys": "hot", "cpu": "1"}
	if got := Median(s.Values("Take", "sec/op", serial)); math.Abs(got-40e-9) > 1e-15 {
		t.Errorf("median %v, want 40e-9", got)
	}
	if got := s.Values("OpenLoop", "p99-sec", Labels{"processes": "4"}); len(got) != 1 || got[0] != 0.0025 {
		t.Errorf("p99 %v, want 0.0025 once", got)
	}
	if got := s.Each("Take", "impl"); !slices.Equal(got, []string{"go_limiter", "stint"}) {
		t.Errorf("implementations %v", got)
	}
}

func TestMedianAndMaxOfNothingAreNaN(t *testing.T) {
	if m, x := Median(nil), Max(nil); !math.IsNaN(m) || !math.IsNaN(x) {
		t.Errorf("got %v and %v", m, x)
	}
	if m, x := Median([]float64{3, 1, 2}), Max([]float64{3, 1, 2}); m != 2 || x != 3 {
		t.Errorf("got %v and %v, want 2 and 3", m, x)
	}
}
