package simulate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/simulate"
)

func made(t testing.TB, p simulate.Pattern) (events []simulate.Event) {
	t.Helper()
	must.Do(t, p.Run(func(ev *simulate.Event) error { events = append(events, *ev); return nil }))
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

// A pattern's requests are what was asked for, at the same rate however many come together, and rules that none of them met are named.
func TestPatternOfRequests(t *testing.T) {
	p := simulate.Pattern{Name: "steady", Rate: 20, Clients: 1, Length: time.Minute, Client: "ann", Path: "/login", Method: "POST", Burst: 5}
	limit := []stint.Limit{stint.FixedWindow(4, time.Second)}
	rule := func(id, path, scope string) rules.Rule {
		return rules.Rule{ID: id, Match: rules.Match{Paths: []string{path}, Methods: []string{"POST"}}, Scope: []string{scope}, Missing: rules.MissingSkip, Limits: limit}
	}
	off := rule("off", "/login", rules.PerIP)
	off.Disabled = true
	s := simulation(t, nil, rule("login", "/login", rules.PerUser), rule("orders", "/orders", rules.PerIP), rule("search", "/search", rules.PerAPIKey), off)
	must.Do(t, p.Run(s.Add))
	report := finish(t, s)
	c := report.Candidates[0]
	if report.Events != 1195 || len(c.Rules) != 1 || c.Rules[0].Rule != "login" || c.Rules[0].Heaviest[0].Key != "ann" || c.Rules[0].Denied != 1195-60*4 {
		t.Errorf("%d requests: %+v", report.Events, c.Rules)
	}
	if !slices.Equal(c.Unmet, []string{"orders", "search"}) || !strings.Contains(strings.Join(report.Notes(), " "), "orders, search.") {
		t.Errorf("not met: %v, %v", c.Unmet, report.Notes())
	}
	for _, p := range []simulate.Pattern{
		{Name: "steady", Rate: 1, Clients: 1, Length: time.Second, Burst: -1},
		{Name: "steady", Rate: 1, Clients: 1, Length: time.Second, Path: "login"},
		{Name: "steady", Rate: 1, Clients: 1, Length: time.Second, Method: "GET /"},
		{Name: "steady", Rate: 1, Clients: 1, Length: time.Second, Method: "get"},
		{Name: "steady", Rate: 1, Clients: simulate.MaxPatternClients + 1, Length: time.Second},
	} {
		if err := p.Validate(); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
