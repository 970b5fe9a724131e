package simulate_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/record"
	"github.com/stint-go/stint/service/internal/simulate"
)

// holds simulates a table with a rule, and returns for each of its lines whether it is admitted and what remains.
func holds(t *testing.T, rule rules.Rule, table string) ([]string, *simulate.Report) {
	t.Helper()
	var got []string
	s := simulation(t, func(v *simulate.Verdict) {
		word := "denied"
		if v.Allowed {
			word = "admitted"
		}
		got = append(got, fmt.Sprintf("%s %d", word, v.Decision.Remaining))
	}, rule)
	events, input := read(t, simulate.ReaderOptions{}, table)
	if input.Malformed > 0 {
		t.Fatal(input.FirstMalformed)
	}
	for i := range events {
		must.Do(t, s.Add(&events[i]))
	}
	return got, finish(t, s)
}

// A place is free at the instant at which a hold ends, for each client by itself, and for a request of two places only once
// there are two.
func TestHoldsOfConcurrency(t *testing.T) {
	got, report := holds(t, simulate.LimitRule("r", stint.Concurrency(2)), `time,key,cost,hold
1000.0,a,1,10s
1001.0,a,1,2.5s
1002.0,a,1,1s
1002.0,b,1,100
1003.499999,a,1,1s
1003.5,a,1,0s
1003.5,a,1,1m
1009.0,a,1,1s
1010.0,a,2,1s
1010.0,a,1,1s
1063.5,a,2,2h
1064.0,a,1,1s
`)
	want := []string{
		"admitted 1", "admitted 0", "denied 0", "admitted 1",
		"denied 0",                 // the second ends a microsecond later
		"admitted 0", "admitted 0", // the first of these ends at once
		"denied 0",               // until 1010.0 and 1063.5
		"denied 1", "admitted 0", // one place is free
		"admitted 0", "denied 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	limit := report.Candidates[0].Rules[0].Limits[0]
	if limit.Limit != "concurrency 2" || limit.Span != 0 || limit.Peak != 3 || limit.ClientPeak != 2 {
		t.Errorf("%+v; want 3 held at once, 2 by one client", limit)
	}
}

// What was held and not used comes back to a sliding window counter when the hold ends, and what was used beyond it is
// charged then.
func TestHoldsGiveBack(t *testing.T) {
	const begin = 1_767_225_600 // of a minute
	table := "time,key,cost,hold,actual\n"
	for _, line := range []string{
		"0.5,a,8,10s,2",   // held: 8
		"5.5,a,4,1s,4",    // 8 + 4 > 10
		"10.5,a,8,1s,",    // 2 were used
		"11.5,a,1,1s,1",   // without actual, all 8 were
		"90.5,a,4,1s,6",   // half a window later half of them count: 5 by then, rounded up, and 4
		"91.5,a,1,1s,1",   // 2 more were charged: 5 + 6
		"500.5,a,10,1s,0", // cost nothing
		"502.5,a,10,,",    // takes
		"503.5,a,1,1s,0",
	} {
		offset, rest, _ := strings.Cut(line, ",")
		seconds, _ := strconv.ParseFloat(offset, 64)
		table += fmt.Sprintf("%.1f,%s\n", begin+seconds, rest)
	}
	got, report := holds(t, simulate.LimitRule("r", stint.SlidingWindowCounter(10, time.Minute)), table)
	want := []string{
		"admitted 2", "denied 2", "admitted 0", "denied 0", "admitted 1", "denied 0", "admitted 0", "admitted 0", "denied 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if limit := report.Candidates[0].Rules[0].Limits[0]; limit.Peak != 10 || limit.ClientPeak != 10 {
		t.Errorf("%+v; want a peak of 10, as what came back counts no more", limit)
	}
}

// Holds are decided, and end, as by a store in the process: of each algorithm, of several limits, with other costs at the
// end, on random traces.
func TestHoldsAsMemstoreDoes(t *testing.T) {
	lists := map[string][]stint.Limit{
		"token bucket": {stint.TokenBucket(20, stint.Per(20, time.Second))},
		"fixed window": {stint.FixedWindow(20, time.Second)},
		"log":          {stint.SlidingWindowLog(20, time.Second).WithMinInterval(time.Millisecond)},
		"counter":      {stint.SlidingWindowCounter(20, time.Second)},
		"concurrency":  {stint.Concurrency(20)},
		"own costs": {
			stint.FixedWindow(60, time.Second), stint.SlidingWindowCounter(9, time.Second).WithCost(1),
			stint.LeakyBucket(20, stint.Per(20, time.Second)).WithCost(2), stint.Concurrency(30).WithCost(3),
		},
		"several": {stint.Concurrency(30), stint.TokenBucket(40, stint.Per(30, time.Second)), stint.SlidingWindowCounter(25, time.Second)},
	}
	for name, limits := range lists {
		t.Run(name, func(t *testing.T) {
			denied, late := 0, 0
			for seed := range uint64(50) {
				d, l := compareHolds(t, seed, limits)
				denied, late = denied+d, late+l
			}
			if denied < 500 || denied > 9500 || late < 500 {
				t.Errorf("%d of 10000 decisions are denials, %d end with another cost: the traces show little", denied, late)
			}
		})
	}
}

func compareHolds(t *testing.T, seed uint64, limits []stint.Limit) (denied, other int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	now, ctx := at2026, context.Background()
	store := memstore.New(memstore.Config{Now: func() time.Time { return now.Time() }, MaxHolds: bounds.MaxHolds})
	policy := must.Get(stint.NewPolicy("p", limits...))(t)
	var got []stint.Decision
	s := simulation(t, func(v *simulate.Verdict) { got = append(got, v.Decision) }, simulate.LimitRule("r", limits...))
	type end struct {
		at     stint.Instant
		id     int
		key    string
		actual int64
	}
	var ends []end
	commit := func(until stint.Instant) {
		for len(ends) > 0 && ends[0].at <= until {
			e := ends[0]
			ends, now = ends[1:], e.at
			op := stint.Op{Verb: stint.VerbCommit, Claim: stint.Claim{Key: e.key, Policy: policy, Permits: e.actual}, Extra: &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint(e.id), TTL: time.Hour}}}}
			must.Get(store.Decide(ctx, op))(t)
		}
	}
	var want []stint.Decision
	at := at2026
	for i := range 200 {
		at = at.Add(time.Duration(rng.IntN(100)) * time.Millisecond)
		key, cost, takes := fmt.Sprint("client ", rng.IntN(2)), 1+rng.Int64N(8), rng.IntN(4) == 0 && !policy.NeedsReserve()
		hold := &simulate.Hold{For: time.Duration(rng.IntN(1000)) * time.Millisecond, Actual: -1 + rng.Int64N(12)}
		commit(at)
		now = at
		ev := event(at, key)
		ev.Request.Attributes = map[string]string{simulate.CostAttribute: strconv.FormatInt(cost, 10)}
		op := stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: cost}}
		if !takes {
			ev.Hold = hold
			op.Verb, op.Extra = stint.VerbReserve, &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint(i), TTL: time.Hour}}}
		}
		d := must.Get(store.Decide(ctx, op))(t)
		if want = append(want, d); !d.Allowed {
			denied++
		} else if !takes {
			actual := hold.Actual
			if actual < 0 {
				actual = cost
			} else if actual != cost {
				other++
			}
			e := end{at.Add(hold.For), i, key, actual}
			after := slices.IndexFunc(ends, func(known end) bool { return known.at > e.at })
			if after < 0 {
				after = len(ends)
			}
			ends = slices.Insert(ends, after, e)
		}
		must.Do(t, s.Add(ev))
	}
	finish(t, s)
	for i := range want {
		if got[i].Allowed != want[i].Allowed || got[i].Remaining != want[i].Remaining || got[i].Index != want[i].Index {
			t.Fatalf("seed %d, decision %d:\n got %+v\nwant %+v", seed, i, got[i], want[i])
		}
	}
	return denied, other
}

// Of a rule with several costs, actual is what the limits cost that a request may name, and the others keep theirs.
func TestHoldsOfNamedCosts(t *testing.T) {
	rule := simulate.LimitRule("r", stint.Concurrency(1), stint.FixedWindow(3, time.Hour), stint.SlidingWindowCounter(100, time.Hour))
	rule.Costs = []rules.Cost{{Permits: 1}, {Permits: 1}, {}}
	got, _ := holds(t, rule, `time,key,cost,hold,actual
1000.0,a,90,1s,10
1001.0,a,90,1s,0
1002.0,a,90,1s,90
1003.0,a,1,1s,1
`)
	if want := []string{"admitted 0", "admitted 0", "admitted 0", "denied 0"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A denial that takes the end of a hold says when a hold expires at the latest that is renewed: after its TTL.
func TestHoldsExpireIfNobodyRenews(t *testing.T) {
	rule := simulate.LimitRule("r", stint.Concurrency(1))
	rule.Reserve.TTL = 7 * time.Second
	var waits []time.Duration
	s := simulation(t, func(v *simulate.Verdict) { waits = append(waits, v.Decision.RetryAfter) }, rule)
	for _, after := range []time.Duration{0, 59 * time.Minute, time.Hour} {
		ev := event(at2026.Add(after), "a")
		ev.Hold = &simulate.Hold{For: time.Hour, Actual: -1}
		must.Do(t, s.Add(ev))
	}
	tooMany := event(at2026.Add(3*time.Hour), "a")
	tooMany.Hold, tooMany.Request.Attributes = &simulate.Hold{}, map[string]string{simulate.CostAttribute: "2"}
	must.Do(t, s.Add(tooMany))
	finish(t, s)
	if want := []time.Duration{0, 7 * time.Second, 0, stint.Never}; !slices.Equal(waits, want) {
		t.Errorf("got %v, want %v", waits, want)
	}
}

// A request that holds never waits, as a reserve does not. One that waits for a bucket tries again when the hold that takes
// it would expire, and finds it free if the last hold ends at that instant.
func TestHoldsBesideWaits(t *testing.T) {
	rule := simulate.LimitRule("r", stint.TokenBucket(2, stint.Per(2, time.Second)))
	rule.OnExceed, rule.MaxWait, rule.Reserve.TTL = rules.Wait, 10*time.Second, 7*time.Second
	got := map[int64]string{}
	s := simulation(t, func(v *simulate.Verdict) { got[v.Line] = fmt.Sprint(v.Allowed, " after ", v.Waited) }, rule)
	for i, request := range []struct {
		after time.Duration
		cost  string
		hold  *simulate.Hold
	}{
		{0, "1", &simulate.Hold{For: 6 * time.Second}},
		{0, "2", &simulate.Hold{For: time.Second}},
		{0, "2", nil},
		{time.Second, "1", &simulate.Hold{For: 6 * time.Second}},
	} {
		ev := event(at2026.Add(request.after), "a")
		ev.Line, ev.Hold, ev.Request.Attributes = int64(i), request.hold, map[string]string{simulate.CostAttribute: request.cost}
		must.Do(t, s.Add(ev))
	}
	finish(t, s)
	if want := "map[0:true after 0s 1:false after 0s 2:true after 7s 3:true after 0s]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// Holds that are none are in testdata/refused.txt.
func TestHoldsOfJSON(t *testing.T) {
	events, _ := read(t, simulate.ReaderOptions{}, `{"time":1,"key":"a","hold":2.5,"actual":0}`+"\n"+`{"time":1,"key":"a","hold":"1m"}`+"\n")
	if len(events) != 2 || *events[0].Hold != (simulate.Hold{For: 2500 * time.Millisecond}) || *events[1].Hold != (simulate.Hold{For: time.Minute, Actual: -1}) {
		t.Errorf("%+v", events)
	}
}

// A request without a hold is an error where a rule has a concurrency limit, unless nobody knows of holds. Such a rule in
// shadow is left out. A rule that can't hold denies, and a note says why.
func TestHoldsThatRulesRefuse(t *testing.T) {
	places := simulate.LimitRule("places", stint.Concurrency(1))
	add := func(config simulate.Config, hold *simulate.Hold, list ...rules.Rule) (*simulate.Report, error) {
		config.Candidates = []simulate.Candidate{candidate(t, "c", list...)}
		s := must.Get(simulate.New(config))(t)
		for i := range 2 {
			ev := event(at2026, "a")
			ev.Hold, ev.Line = hold, int64(7+i)
			must.Do(t, s.Add(ev))
		}
		return s.Finish()
	}
	_, err := add(simulate.Config{}, nil, places)
	if err == nil || !strings.Contains(err.Error(), `hold is "missing in line 7"; allowed: a duration, in the column hold`) || !strings.Contains(err.Error(), "rule places") {
		t.Error(err)
	}
	r, err := add(simulate.Config{NoHolds: true}, nil, places)
	if err != nil || r.Candidates[0].Total.Admitted != 2 || !slices.Equal(r.Candidates[0].Unmet, []string{"places"}) {
		t.Errorf("%v, %+v", err, r)
	}
	shadow := places
	shadow.OnExceed = rules.Shadow
	for _, hold := range []*simulate.Hold{nil, {For: time.Second, Actual: -1}} {
		if r, err = add(simulate.Config{}, hold, shadow); err != nil || r.Candidates[0].Total.Shadow != 0 || !slices.Equal(r.Candidates[0].Unmet, []string{"places"}) {
			t.Errorf("%v, %+v", err, r)
		}
	}
	r, err = add(simulate.Config{}, &simulate.Hold{For: time.Second, Actual: -1}, simulate.LimitRule("turns", stint.LeakyBucket(5, stint.Per(1, time.Second))))
	if err != nil || r.Candidates[0].Total.Denied != 2 || !strings.Contains(strings.Join(r.Notes(), "\n"), "turns of c: the service answers requests that hold with 400: cost is 0; allowed: 1 or more for a leaky bucket") {
		t.Errorf("%v, %+v, %q", err, r, r.Notes())
	}
}

// Holds count as memory, and none is forgotten when clients are left out: at their end nothing is held any more.
func TestHoldsWithinMemory(t *testing.T) {
	run := func(rounds int, config simulate.Config) (*simulate.Report, error) {
		config.Candidates = []simulate.Candidate{candidate(t, "c", simulate.LimitRule("r", stint.Concurrency(1)))}
		s := must.Get(simulate.New(config))(t)
		for round := range rounds {
			for i := range 20_000 {
				ev := event(at2026.Add(time.Duration(round)*time.Hour+time.Duration(i)*time.Millisecond), fmt.Sprint("a client with a long key, number ", i))
				ev.Hold = &simulate.Hold{For: time.Minute, Actual: -1}
				if err := s.Add(ev); err != nil {
					return nil, err
				}
			}
		}
		return s.Finish()
	}
	_, err := run(1, simulate.Config{MaxMemory: 2 << 20})
	if err == nil || !strings.Contains(err.Error(), "requests that hold\"; allowed: what fits in 2 MiB") {
		t.Error(err)
	}
	once := must.Get(run(1, simulate.Config{MaxClients: 1000}))(t)
	twice := must.Get(run(2, simulate.Config{MaxClients: 1000}))(t)
	peak, rule := once.Candidates[0].Rules[0].Limits[0].Peak, twice.Candidates[0].Rules[0]
	if rule.Denied != 0 || rule.Sample < 16 || rule.Limits[0].Peak != peak {
		t.Errorf("%d denied, 1 client of %d, a peak of %d; want every place free after an hour, and %d", rule.Denied, rule.Sample, rule.Limits[0].Peak, peak)
	}
}

// What is suggested for places is the most that the clients hold, and a cost beyond what was held is refused.
func TestSuggestPlaces(t *testing.T) {
	pattern := simulate.Pattern{Name: "poisson", Seed: 1, Rate: 5, Clients: 20, Length: 4 * time.Minute, Hold: 5 * time.Second}
	for _, limit := range []stint.Limit{
		stint.Concurrency(1), stint.TokenBucket(1, stint.Per(1, time.Second)), stint.SlidingWindowLog(1, time.Minute), stint.SlidingWindowCounter(1, time.Minute),
	} {
		made, err := simulate.Suggest(pattern.Run, simulate.LimitRule("r", limit), rules.Options{}, simulate.Goal{Share: 0.9})
		if err != nil || made.Untouched < 18 || made.UntouchedBelow[0] >= 18 { // which replays have counted
			t.Errorf("%v: %v, %+v", limit.Algorithm, err, made)
		}
	}
	debts := func(add func(*simulate.Event) error) error {
		return pattern.Run(func(ev *simulate.Event) error {
			ev.Hold.Actual = 2
			return add(ev)
		})
	}
	_, err := simulate.Suggest(debts, simulate.LimitRule("r", stint.SlidingWindowLog(1, time.Minute)), rules.Options{}, simulate.Goal{Share: 0.9})
	if err == nil || !strings.Contains(err.Error(), "actual is 2; allowed: what line 1 holds, or less") {
		t.Error(err)
	}
	_, err = simulate.Suggest(pattern.Run, simulate.LimitRule("r", stint.LeakyBucket(1, stint.Per(1, time.Second))), rules.Options{}, simulate.Goal{Share: 0.9})
	if err == nil || !strings.Contains(err.Error(), "leaky bucket") {
		t.Error(err)
	}
}

// A record does not say which hold an operation is about. It can't be replayed, and says so; a list changes nothing.
func TestRecordOfHolds(t *testing.T) {
	var recorded bytes.Buffer
	store := record.New(memstore.New(memstore.Config{}), &recorded, record.Options{Memory: true})
	policy := must.Get(stint.NewPolicy("p", stint.FixedWindow(1, time.Hour)))(t)
	claim, ctx := stint.Claim{Key: "a", Policy: policy, Permits: 1}, context.Background()
	if _, err := store.Decide(ctx, stint.Op{Verb: stint.VerbList, Claim: claim, Extra: &stint.Extra{Live: &[]stint.Hold{}}}); err != nil {
		t.Fatal(err)
	}
	if c := replayed(t, recorded.String()); c.Unfit != "" || c.Decisions != 0 {
		t.Errorf("%+v", c)
	}
	if _, err := store.Decide(ctx, stint.Op{Verb: stint.VerbReserve, Claim: claim, Extra: &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: "x"}}}}); err != nil {
		t.Fatal(err)
	}
	if c := replayed(t, recorded.String()); c.Unfit != "line 3: holds can't be replayed, as a record does not say which one it is" || c.Different != 0 {
		t.Errorf("%+v", c)
	}
}
