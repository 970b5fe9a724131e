package simulate_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/simulate"
)

func TestBoundaryBurst(t *testing.T) {
	s, err := simulate.New(simulate.Config{Candidates: five(t, 100, "1m")})
	if err != nil {
		t.Fatal(err)
	}
	p := simulate.Pattern{Name: "boundary-burst", Rate: 200.0 / 60, Clients: 1, Length: 10 * time.Minute, Window: time.Minute}
	if err := p.Run(s.Add); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"token_bucket": 109, "leaky_bucket": 109, "fixed_window": 200, "sliding_window_log": 100, "sliding_window_counter": 104}
	r := finish(t, s)
	if r.Events != 5*200 {
		t.Errorf("%d events, want 1000", r.Events)
	}
	for _, c := range r.Candidates {
		if got := c.Rules[0].Limits[0].Peak; got != want[c.Name] {
			t.Errorf("%s admits %d within a minute, want %d", c.Name, got, want[c.Name])
		}
		if c.Total.Admitted+c.Total.Denied != r.Events {
			t.Errorf("%s: %d admitted and %d denied of %d", c.Name, c.Total.Admitted, c.Total.Denied, r.Events)
		}
	}
}

// A budget has a limit of every algorithm, and each is simulated: TestOracle holds them to the model.
func TestBudget(t *testing.T) {
	limits, err := simulate.Budget("100/1m")
	if err != nil {
		t.Fatal(err)
	}
	var algorithms []stint.Algorithm
	for _, l := range limits {
		algorithms = append(algorithms, l.Algorithm)
	}
	if !slices.Equal(algorithms, stint.Algorithms()) {
		t.Errorf("a budget has limits of %v", algorithms)
	}
}
