package simulate_test

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/simulate"
)

// traffic is of three kinds, of some 1,500 requests of 40 clients, at costs of 1 to 3.
func traffic(t testing.TB) map[string]simulate.Source {
	t.Helper()
	kinds := map[string]simulate.Source{}
	for _, p := range []simulate.Pattern{
		{Name: "poisson", Rate: 6, Clients: 40, Length: 4 * time.Minute},
		{Name: "spike", Rate: 4, Clients: 40, Length: 4 * time.Minute},
		{Name: "retry-storm", Rate: 3, Clients: 40, Length: 4 * time.Minute, Seed: 7},
	} {
		kinds[p.Name] = func(add func(*simulate.Event) error) error {
			return p.Run(func(ev *simulate.Event) error {
				ev.Request.SetDefault(simulate.CostAttribute, strconv.FormatInt(1+ev.Line%3, 10))
				return add(ev)
			})
		}
	}
	return kinds
}

// untouched is the share of clients that the oracle never denies under limits, in the first three quarters of the time.
func untouched(t testing.TB, source simulate.Source, limits ...stint.Limit) (untouched, asked int64) {
	t.Helper()
	policy := must.Get(stint.NewPolicy("p", limits...))(t)
	var first, last stint.Instant
	_ = source(func(ev *simulate.Event) error { // which has no errors
		if first == 0 {
			first = ev.Time
		}
		last = ev.Time
		return nil
	})
	model, denied := oracle.New(0), map[string]bool{}
	_ = source(func(ev *simulate.Event) error {
		if ev.Time > first+(last-first)/4*3 {
			return nil
		}
		cost := must.Get(strconv.ParseInt(ev.Request.Attributes[simulate.CostAttribute], 10, 64))(t)
		d := model.Decide(stint.Op{Claim: stint.Claim{Key: ev.Request.Address, Policy: policy, Permits: cost}}, ev.Time).Decision
		denied[ev.Request.Address] = denied[ev.Request.Address] || !d.Allowed
		return nil
	})
	for _, d := range denied {
		if !d {
			untouched++
		}
	}
	return untouched, int64(len(denied))
}

// TestSuggest holds suggestions to the oracle: under what is suggested enough clients are untouched, and under one less of any value too few.
func TestSuggest(t *testing.T) {
	one := must.Get(simulate.Budget("50/1m"))(t)
	var sets [][]stint.Limit
	for _, l := range one {
		sets = append(sets, []stint.Limit{l})
	}
	sets = append(sets,
		[]stint.Limit{stint.SlidingWindowLog(9, time.Minute).CountingDenied()},
		[]stint.Limit{stint.SlidingWindowLog(9, 10*time.Second), stint.TokenBucket(1, stint.PerSecond(2)).Named("burst"), stint.FixedWindow(7, time.Minute)},
		[]stint.Limit{stint.SlidingWindowCounter(9, 10*time.Second), stint.LeakyBucket(1, stint.PerSecond(2)), stint.CalendarWindow(7, stint.CalendarHour, "")},
	)
	for kind, source := range traffic(t) {
		if testing.Short() && kind != "spike" {
			continue
		}
		for i, limits := range sets {
			for j, share := range []float64{0.8, 1} {
				if testing.Short() && i%2 != j { // by turns
					continue
				}
				s, err := simulate.Suggest(source, simulate.LimitRule("r", limits...), rules.Options{}, simulate.Goal{Share: share})
				if err != nil {
					t.Fatalf("%s, %v: %v", kind, limits, err)
				}
				got, asked := untouched(t, source, s.Limits...)
				wanted := int64(share * float64(asked))
				if float64(wanted) < share*float64(asked) {
					wanted++
				}
				if got < wanted || got != s.Untouched || asked != s.Clients || s.Maximum != (wanted == asked) {
					t.Errorf("%s, %.2f, %v: %d of %d are untouched; it says %+v", kind, share, s.Texts, got, asked, s)
				}
				for i, curve := range s.Curves {
					testCurve(t, s, i, curve, func(limits []stint.Limit) int64 {
						n, _ := untouched(t, source, limits...)
						return n
					})
				}
				for i := range s.Limits {
					less := append([]stint.Limit(nil), s.Limits...)
					if less[i].Capacity--; less[i].Capacity == 0 {
						continue
					}
					if below, _ := untouched(t, source, less...); below >= wanted || below != s.UntouchedBelow[i] {
						t.Errorf("%s, %.2f, %v: with one less of limit %d %d of %d are untouched; it says %d", kind, share, s.Texts, i, below, asked, s.UntouchedBelow[i])
					}
				}
				if s.RestClients == 0 || s.RestUntouched > s.RestClients {
					t.Errorf("%s: the rest is %d of %d", kind, s.RestUntouched, s.RestClients)
				}
			}
		}
	}
}

// TestSuggestRate finds the least rate of a bucket by bisection.
func TestSuggestRate(t *testing.T) {
	for kind, source := range traffic(t) {
		for _, l := range []stint.Limit{stint.TokenBucket(10, stint.PerMinute(1)), stint.LeakyBucket(10, stint.PerMinute(1))} {
			s, err := simulate.Suggest(source, simulate.LimitRule("r", l), rules.Options{}, simulate.Goal{Share: 0.9, Rate: true})
			if err != nil {
				t.Fatal(err)
			}
			got, asked := untouched(t, source, s.Limits...)
			less := s.Limits[0]
			less.Rate.Permits--
			below, _ := untouched(t, source, less)
			if s.Values[0] < 2 || got*10 < asked*9 || below*10 >= asked*9 {
				t.Errorf("%s: %v leaves %d of %d untouched, one less %d", kind, s.Texts, got, asked, below)
			}
		}
	}
}

// TestSuggestTellsApart has clients whom no value suits.
func TestSuggestTellsApart(t *testing.T) {
	at := func(add func(*simulate.Event) error, second int, client, cost string) {
		ev := event(at2026+stint.Instant(second)*1_000_000, client)
		ev.Request.SetDefault(simulate.CostAttribute, cost)
		must.Do(t, add(ev))
	}
	source := func(add func(*simulate.Event) error) error {
		for i := range 100 {
			at(add, i, "often", "1")
			if i%10 == 0 {
				at(add, i, "192.0.2.1", "2")
			}
			if i < 2 {
				at(add, i, "greedy", "900000000")
			}
		}
		return nil
	}
	rule := simulate.LimitRule("r", stint.SlidingWindowLog(5, time.Minute).WithMinInterval(2*time.Second))
	s := must.Get(simulate.Suggest(source, rule, rules.Options{}, simulate.Goal{Share: 0.999}))(t)
	if s.TooClose != 1 || s.BeyondRange != 1 || s.Clients != 1 || s.Values[0] != 12 || !s.Maximum {
		t.Errorf("%+v", s)
	}
	rule.Limits[0].MinInterval = 0
	s = must.Get(simulate.Suggest(source, rule, rules.Options{}, simulate.Goal{Share: 0.5}))(t)
	if s.TooClose != 0 || s.BeyondRange != 1 || s.Clients != 2 || s.Values[0] != 12 || s.Maximum {
		t.Errorf("%+v", s)
	}
	rule.Block, rule.Otherwise = rules.Block{After: 1, For: time.Hour}, "another"
	if blocks := must.Get(simulate.Suggest(source, rule, rules.Options{}, simulate.Goal{Share: 0.5}))(t); !reflect.DeepEqual(blocks, s) {
		t.Errorf("of a rule that blocks, and has another: %+v, want %+v", blocks, s)
	}
	rule.Overrides = []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{stint.SlidingWindowLog(1, time.Minute)}}}
	s = must.Get(simulate.Suggest(source, rule, rules.Options{}, simulate.Goal{Share: 0.5}))(t)
	if s.Clients != 1 || s.Values[0] != 60 {
		t.Errorf("%+v", s)
	}
}

// TestSuggestBrackets has a client with more instants in a log's window than are kept: its need is found by bisection.
func TestSuggestBrackets(t *testing.T) {
	requests, window := 70_001, 68*time.Second
	if testing.Short() {
		requests, window = 7_001, 6_800*time.Millisecond // all are kept
	}
	source := func(add func(*simulate.Event) error) error {
		for i := range requests {
			if err := add(event(at2026+stint.Instant(i)*1000, "192.0.2.1")); err != nil {
				return err
			}
		}
		return add(event(at2026+100_000_000, "192.0.2.2"))
	}
	s, err := simulate.Suggest(source, simulate.LimitRule("r", stint.SlidingWindowLog(1, window)), rules.Options{}, simulate.Goal{Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	if s.Values[0] != window.Milliseconds() {
		t.Errorf("%+v", s)
	}
}

// testCurve holds some points of a limit's curve to a count.
func testCurve(t *testing.T, s *simulate.Suggestion, i int, curve []simulate.CurvePoint, count func([]stint.Limit) int64) {
	t.Helper()
	found := false
	for at, p := range curve {
		if at > 0 && (p.Value <= curve[at-1].Value || p.Untouched < curve[at-1].Untouched) {
			t.Errorf("%v: the curve falls, or is not in order: %v", s.Texts, curve)
		}
		if p.Value == s.Values[i] {
			found = p.Untouched == s.Untouched
		}
		if at%9 > 0 {
			continue
		}
		limits := append([]stint.Limit(nil), s.Limits...)
		limits[i].Capacity = p.Value
		if want := count(limits); p.Untouched != want {
			t.Errorf("%v: with %d in limit %d, %d are untouched; the curve says %d", s.Texts, p.Value, i, want, p.Untouched)
		}
	}
	if !found {
		t.Errorf("%v: the curve of limit %d lacks what was found: %v", s.Texts, i, curve)
	}
}
