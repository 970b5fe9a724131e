package simulate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/simulate"
)

func TestBoundaryBurst(t *testing.T) {
	s := must.Get(simulate.New(simulate.Config{Candidates: five(t, 100, "1m")}))(t)
	p := simulate.Pattern{Name: "boundary-burst", Rate: 200.0 / 60, Clients: 1, Length: 10 * time.Minute, Window: time.Minute}
	must.Do(t, p.Run(s.Add))
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
	limits := must.Get(simulate.Budget("100/1m"))(t)
	var algorithms []stint.Algorithm
	for _, l := range limits {
		algorithms = append(algorithms, l.Algorithm)
	}
	if !slices.Equal(algorithms, notation.Algorithms()) {
		t.Errorf("a budget has limits of %v", algorithms)
	}
}

// A client that was denied and never asked again is shut out until its last request, however long the log goes on. One that is
// admitted later is shut out until then.
func TestShutOut(t *testing.T) {
	s := simulation(t, nil, simulate.LimitRule("r", stint.FixedWindow(1, time.Hour)))
	add := func(after time.Duration, client string) {
		must.Do(t, s.Add(event(at2026.Add(after), client)))
	}
	for _, after := range []time.Duration{0, time.Second, 8 * time.Second, 20 * time.Second} {
		add(after, "gone")
	}
	add(50*time.Minute, "back")
	add(50*time.Minute+10*time.Second, "back")
	add(60*time.Minute, "back")
	shut := map[string]time.Duration{}
	for _, c := range finish(t, s).Candidates[0].Rules[0].Heaviest {
		shut[c.Key] = time.Duration(c.Shut) * time.Microsecond
	}
	if want := 9*time.Minute + 50*time.Second; shut["gone"] != 19*time.Second || shut["back"] != want {
		t.Errorf("shut out for %v, want 19s and %s", shut, want)
	}
}

// A client of a rule counts once, however many policies the rule has for its limits: of different costs, or of denials.
// It was denied if any of them denied it. So it is beside a rule whose requests have several ways.
func TestClientsOfSeveralPolicies(t *testing.T) {
	costs := simulate.LimitRule("costs", stint.FixedWindow(5, time.Second).Named("x"), stint.FixedWindow(3, time.Hour).Named("y").WithCost(1))
	blocks := simulate.LimitRule("blocks", stint.FixedWindow(5, time.Second))
	blocks.Block.After, blocks.Block.For = 2, time.Hour
	ways, spare := simulate.LimitRule("ways", stint.FixedWindow(500, time.Second)), simulate.LimitRule("spare", stint.FixedWindow(9, time.Second))
	ways.Otherwise, spare.Match.Paths = spare.ID, []string{"/spare"}
	for name, test := range map[string]struct {
		set              []rules.Rule
		admitted, denied int64
		limits           int
	}{
		"costs": {[]rules.Rule{costs}, 4, 4, 2}, "costs beside ways": {[]rules.Rule{costs, ways, spare}, 4, 4, 2},
		"blocks": {[]rules.Rule{blocks}, 2, 6, 1}, "blocks beside ways": {[]rules.Rule{blocks, ways, spare}, 2, 6, 1},
	} {
		s := simulation(t, nil, test.set...)
		for i, after := range []int{0, 1, 2, 1001, 2001, 2002, 3001} {
			ev := event(at2026.Add(time.Duration(after)*time.Millisecond), "a")
			ev.Request.Attributes = map[string]string{simulate.CostAttribute: "5"}
			ev.Line = int64(i)
			must.Do(t, s.Add(ev))
		}
		must.Do(t, s.Add(event(at2026.Add(time.Minute), "b")))
		r := finish(t, s).Candidates[0].Rules[0]
		if r.Clients != 2 || r.ClientsDenied != 1 || len(r.Heaviest) != 2 || len(r.Limits) != test.limits || r.Limits[0].ClientPeak != 5 {
			t.Errorf("%s: %+v", name, r)
		}
		if a := r.Heaviest[0]; a.Key != "a" || a.Admitted != test.admitted-1 || a.Denied != test.denied || r.Denied != test.denied {
			t.Errorf("%s: %+v, %d denied", name, a, r.Denied)
		}
	}
}

// A limit with a cost of its own is charged that, wherever it stands in the rule, and so its peak counts; what a client
// asks for is what its requests cost.
func TestPeaksOfOwnCosts(t *testing.T) {
	tokens, asked := stint.FixedWindow(100, time.Minute).Named("tokens"), stint.FixedWindow(9, time.Minute).Named("requests").WithCost(2)
	for name, limits := range map[string][]stint.Limit{
		"behind": {tokens, asked}, "before": {asked, tokens},
		"places behind": {tokens, stint.Concurrency(5).Named("requests").WithCost(2)},
		"places before": {stint.Concurrency(5).Named("requests").WithCost(2), tokens},
	} {
		s := simulation(t, nil, simulate.LimitRule("r", limits...))
		for i := range 3 {
			ev := event(at2026.Add(time.Duration(i)*300*time.Millisecond), "a")
			ev.Request.Attributes = map[string]string{simulate.CostAttribute: "7"}
			if strings.HasPrefix(name, "places") {
				ev.Hold = &simulate.Hold{For: 500 * time.Millisecond, Actual: -1} // so that two are held at once
			}
			must.Do(t, s.Add(ev))
		}
		r := finish(t, s).Candidates[0].Rules[0]
		want := map[string]int64{"tokens": 21, "requests": 6}
		if strings.HasPrefix(name, "places") {
			want["requests"] = 4
		}
		for _, limit := range r.Limits {
			of, _, _ := strings.Cut(limit.Limit, ":")
			if limit.Peak != want[of] || limit.ClientPeak != want[of] {
				t.Errorf("%s: %+v, want a peak of %d", name, limit, want[of])
			}
		}
		if r.Busiest != 21 {
			t.Errorf("%s: asked for %d within a second, want 21", name, r.Busiest)
		}
	}
}

// REQUESTS and CLIENTS of a rule count alike: also those that another rule denied, by a limit or before any limit.
func TestClientsOfRequests(t *testing.T) {
	ban := rules.Rule{ID: "ban", Scope: []string{rules.PerIP}, Match: rules.Match{Paths: []string{"/banned"}}, Banned: true}
	s := simulation(t, nil, ban,
		rules.Rule{ID: "all", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(2, time.Hour)}},
		rules.Rule{ID: "each", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(5, time.Hour)}})
	for i, client := range []string{"a", "b", "c", "d", "d"} { // c is denied by all, and d by the ban
		ev := event(at2026.Add(time.Duration(i)*time.Second), client)
		if ev.Request.Path = "/"; client == "d" {
			ev.Request.Path = "/banned"
		}
		must.Do(t, s.Add(ev))
	}
	for _, rule := range finish(t, s).Candidates[0].Rules {
		clients, once := map[string]int64{"ban": 0, "all": 1, "each": 4}[rule.Rule], map[string]int64{"all": 1}[rule.Rule]
		if rule.Clients != clients || rule.ClientsDenied != once || rule.Rule == "each" && (rule.Requests != 5 || rule.Shares[0] != 4) {
			t.Errorf("%s: %d requests of %d clients, %d denied once, shares %v", rule.Rule, rule.Requests, rule.Clients, rule.ClientsDenied, rule.Shares)
		}
	}
}
