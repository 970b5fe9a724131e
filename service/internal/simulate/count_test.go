package simulate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/simulate"
)

// A request with a status holds while it runs, and gives it back at its end if the rule does not count that; without a
// status it is counted.
func TestCountByStatus(t *testing.T) {
	rule := simulate.LimitRule("r", stint.FixedWindow(2, time.Hour))
	rule.Count.Status = []int{401, 5}
	got, _ := holds(t, rule, `time,key,hold,status
1000,a,1s,200
1002,a,1s,401
1004,a,3s,200
1005,a,1s,401
1008,a,1s,503
1010,a,1s,200
1012,b,1s,
1014,b,1s,404
`)
	want := []string{
		"admitted 1", "admitted 1", "admitted 0", "denied 0", // by what is under way
		"admitted 0", "denied 0", // by two that were counted
		"admitted 1", "admitted 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A request without a hold is refused, as that of a concurrency limit is.
func TestCountNeedsHolds(t *testing.T) {
	rule := simulate.LimitRule("r", stint.FixedWindow(2, time.Hour))
	rule.Count.Status = []int{401}
	s := simulation(t, nil, rule)
	events, _ := read(t, simulate.ReaderOptions{}, "time,key,status\n1000,a,401\n")
	err := s.Add(&events[0])
	if err == nil {
		_, err = s.Finish()
	}
	if err == nil || !strings.Contains(err.Error(), "for each request of rule r: only reserves are decided by its concurrency limit or count") {
		t.Error(err)
	}
}
