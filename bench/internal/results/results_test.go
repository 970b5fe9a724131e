package results

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stint-go/stint/internal/must"
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
	must.Do(t, os.WriteFile(path, []byte(sample), 0o600))
	var s Set
	must.Do(t, s.Read(path))
	for name, want := range map[string]float64{
		"Take/impl=stint/keys=hot/cpu=1": 40e-9,
		"Take/cpu=1/impl=stint":          40e-9,
		"Take/impl=stint/cpu=2":          20e-9,
		"Take":                           40e-9, // of 20, 30, 50 and 80
	} {
		if got := s.Median(name, "sec/op"); math.Abs(got-want) > 1e-15 {
			t.Errorf("%s: median %v, want %v", name, got, want)
		}
	}
	if got := s.Values("OpenLoop/processes=4", "p99-sec"); len(got) != 1 || got[0] != 0.0025 {
		t.Errorf("p99 %v, want 0.0025 once", got)
	}
	if got := s.Max("Take/keys=hot", "sec/op"); got != 80e-9 {
		t.Errorf("max %v, want 80e-9", got)
	}
	if got := s.Each("Take", "impl"); !slices.Equal(got, []string{"go_limiter", "stint"}) {
		t.Errorf("implementations %v", got)
	}
	if m, x := s.Median("Take/impl=other", "sec/op"), s.Max("Take", "B/key"); !math.IsNaN(m) || !math.IsNaN(x) {
		t.Errorf("of nothing the median is %v and the maximum %v", m, x)
	}
}
