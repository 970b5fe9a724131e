package simulate_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/simulate"
)

func made(t testing.TB, p simulate.Pattern) (events []simulate.Event) {
	t.Helper()
	if err := p.Run(func(ev *simulate.Event) error { events = append(events, *ev); return nil }); err != nil {
		t.Fatal(err)
	}
	return events
}

// TestPatterns looks at what each pattern promises: the same traffic for a seed, in order, at the rate that was asked for.
func TestPatterns(t *testing.T) {
	within := func(events []simulate.Event, from, to float64) (n int) {
		begin := at2026
		for _, ev := range events {
			if at := float64(ev.Time-begin) / 1e6 / 600; at >= from && at < to {
				n++
			}
		}
		return n
	}
	for _, name := range simulate.Patterns() {
		p := simulate.Pattern{Name: name, Rate: 20, Clients: 50, Length: 10 * time.Minute, Window: time.Minute, Seed: 3}
		events, again := made(t, p), made(t, p)
		same := func(a, b simulate.Event) bool {
			return a.Time == b.Time && a.Request.Address == b.Request.Address && a.Line == b.Line
		}
		if !slices.EqualFunc(events, again, same) {
			t.Errorf("%s is another one the second time", name)
		}
		if !slices.IsSortedFunc(events, func(a, b simulate.Event) int { return int(a.Time - b.Time) }) {
			t.Errorf("%s is out of order", name)
		}
		all, early, middle := len(events), within(events, 0, 0.1), within(events, 0.45, 0.55)
		sound := map[string]bool{
			"boundary-burst": all == 5*2*600*50,
			"steady":         all == 11_999 && middle == 1200,
			"poisson":        all > 11_500 && all < 12_500,
			"diurnal":        all > 11_500 && all < 12_500 && early < 400 && middle > 2000,
			"spike":          early > 1000 && early < 1400 && middle > 11_000 && middle < 13_000,
			"retry-storm":    within(events, 0.35, 0.4) > 4*within(events, 0.2, 0.25) && within(events, 0.5, 0.6) < 1400,
		}
		if !sound[name] {
			t.Errorf("%s has %d requests, %d early and %d in the middle", name, all, early, middle)
		}
		p.Seed++
		if name != "boundary-burst" && slices.EqualFunc(events, made(t, p), same) {
			t.Errorf("%s does not depend on the seed", name)
		}
	}
	for _, p := range []simulate.Pattern{
		{Name: "steddy", Rate: 1, Clients: 1, Length: time.Second},
		{Name: "steady", Clients: 1, Length: time.Second},
		{Name: "steady", Rate: 1, Length: time.Second},
		{Name: "steady", Rate: 1, Clients: 1},
		{Name: "boundary-burst", Rate: 1, Clients: 1, Length: time.Second, Window: time.Second},
	} {
		if err := p.Run(func(*simulate.Event) error { return nil }); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
