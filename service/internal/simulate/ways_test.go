package simulate_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/record"
	"github.com/stint-go/stint/service/internal/simulate"
	"github.com/stint-go/stint/storetest"
)

func minutely(capacity int64) stint.Limit {
	return stint.TokenBucket(capacity, stint.Per(capacity, time.Minute))
}

// tenants are sets of rules that share limits, by name.
func tenants() map[string][]rules.Rule {
	floor := func(n int64) rules.Floor { return rules.Floor{Capacity: n, Refill: stint.Per(n, time.Minute)} }
	classes := rules.Classes{By: rules.ClassBy{Attribute: "class"}, Default: "batch", Keep: map[string]rules.Percent{"critical": 0, "batch": 40}}
	org := rules.Rule{ID: "org", Scope: []string{rules.Global}, Limits: []stint.Limit{minutely(20)}}
	team := rules.Rule{
		ID: "team", Within: "org", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip, Borrow: rules.Borrow{Any: true},
		Guaranteed: map[string]rules.Floor{"search": floor(6), "ads": floor(4)}, Classes: classes,
	}
	ceiling := team
	ceiling.Borrow, ceiling.Classes = rules.Borrow{Rate: stint.Per(3, time.Minute)}, rules.Classes{}
	user := rules.Rule{
		ID: "user", Within: "team", Scope: []string{rules.Custom("user")}, Missing: rules.MissingSkip, Borrow: rules.Borrow{Any: true},
		Guaranteed: map[string]rules.Floor{"ann": floor(1), "ben": floor(2)},
	}
	own := rules.Rule{
		ID: "own", Scope: []string{rules.Custom("user")}, Missing: rules.MissingSkip, Otherwise: "extra", Classes: classes,
		Limits: []stint.Limit{stint.FixedWindow(2, time.Minute), stint.SlidingWindowLog(1, time.Second).Named("second")},
	}
	extra := rules.Rule{ID: "extra", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(5, time.Minute)}}
	all := rules.Rule{ID: "all", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.SlidingWindowCounter(12, time.Minute)}}
	shadow := func(list ...rules.Rule) []rules.Rule {
		for i := range list {
			list[i].OnExceed = rules.Shadow
		}
		return append(list, all)
	}
	return map[string][]rules.Rule{
		"floors": {org, team}, "ceilings": {org, ceiling}, "levels": {org, team, user}, "otherwise": {own, extra},
		"beside another": {org, team, all}, "both": {org, team, own, extra}, "shadow": shadow(org, team), "shadow of otherwise": shadow(own, extra),
	}
}

// Each request of random traffic is decided as package enforce decides it on memstore, and counted by class and via.
func TestWaysAsEnforceDoes(t *testing.T) {
	for name, list := range tenants() {
		for seed := range uint64(20) {
			compareWays(t, fmt.Sprintf("%s, seed %d", name, seed), list, rand.New(rand.NewPCG(seed, 7)), false)
			compareWays(t, fmt.Sprintf("%s with holds, seed %d", name, seed), list, rand.New(rand.NewPCG(seed, 8)), true)
		}
	}
}

func compareWays(t *testing.T, what string, list []rules.Rule, rng *rand.Rand, holding bool) {
	t.Helper()
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	clock := storetest.NewClock(at2026)
	limiter := must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: clock.Now}), Set: set}))(t)
	// Holds of the store expire, which it tells clients to wait for, and those of a simulation are renewed.
	said := func(allowed bool, rule, key string, d stint.Decision, shadowed []string) string {
		if holding {
			return fmt.Sprint(allowed, shadowed)
		}
		return fmt.Sprintf("%v %s %s %+v %v", allowed, rule, key, plain(d), shadowed)
	}
	var got []string
	sim := simulation(t, func(v *simulate.Verdict) {
		got = append(got, said(v.Allowed, v.Rule, v.Key, v.Decision, v.Shadowed))
	}, list...)
	type ending struct {
		at   stint.Instant
		held *stint.Reservation
		cost int64
	}
	var want []string
	var endings []ending
	ways := map[string]int64{}
	now := at2026
	for i := range 150 {
		now = now.Add(time.Duration(rng.Int64N(int64(2 * time.Second))))
		for len(endings) > 0 && endings[0].at <= now {
			clock.Set(endings[0].at)
			must.Get(endings[0].held.Commit(t.Context(), endings[0].cost))(t)
			endings = endings[1:]
		}
		clock.Set(now)
		r := rules.Request{Method: "GET", Path: "/", Address: "192.0.2.1", Attributes: map[string]string{}}
		for name, values := range map[string][]string{"team": {"search", "ads", "new"}, "user": {"ann", "ben", "carl"}, "class": {"critical", "batch"}} {
			if n := rng.IntN(len(values) + 1); n < len(values) {
				r.Attributes[name] = values[n]
			}
		}
		ev := &simulate.Event{Time: now, Request: r}
		var v enforce.Verdict
		if holding && rng.IntN(2) == 0 {
			ev.Hold = &simulate.Hold{For: time.Duration(1+rng.IntN(20)) * time.Second, Actual: int64(rng.IntN(2))}
			held := must.Get(limiter.Reserve(t.Context(), &r, stint.Hold{ID: fmt.Sprint(i), TTL: time.Minute}, &v))(t)
			if held != nil && v.Allowed {
				endings = append(endings, ending{now.Add(ev.Hold.For), held, ev.Hold.Actual})
				slices.SortStableFunc(endings, func(a, b ending) int { return int(a.at - b.at) })
			}
		} else if err := limiter.DecideNow(t.Context(), &r, &v); err != nil {
			t.Fatal(err)
		}
		id := ""
		if v.Rule != nil {
			id = v.Rule.ID
			if id == "team" || id == "user" || id == "own" {
				ways[v.Class+"/"+v.Via+"/"+fmt.Sprint(v.Allowed)]++
			}
		}
		want = append(want, said(v.Allowed, id, v.Claim.Key, v.Decision, v.Shadowed))
		must.Do(t, sim.Add(ev))
	}
	report := finish(t, sim).Candidates[0]
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s, request %d:\n got %s\nwant %s", what, i, got[i], want[i])
		}
	}
	if strings.HasPrefix(what, "both") || strings.HasPrefix(what, "beside") || strings.HasPrefix(what, "shadow") {
		return // one rule decides, of several that are charged
	}
	counted := map[string]int64{}
	for _, rule := range report.Rules {
		for _, w := range rule.Ways {
			counted[w.Class+"/"+w.Via+"/true"] += w.Admitted
			counted[w.Class+"/"+w.Via+"/false"] += w.Denied
		}
	}
	maps.DeleteFunc(counted, func(_ string, n int64) bool { return n == 0 })
	if !maps.Equal(counted, ways) {
		t.Fatalf("%s: counted %v, want %v", what, counted, ways)
	}
}

// plain is what enforce and the simulation say alike: their indexes count other limits.
func plain(d stint.Decision) stint.Decision {
	d.Index, d.Via, d.At = 0, 0, 0
	return d
}

// A record of random operations with ways replays, and one without the ways differs.
func TestRecordOfWays(t *testing.T) {
	policy := func(name string, limits ...stint.Limit) *stint.Policy {
		return must.Get(stint.NewPolicy(name, limits...))(t)
	}
	all := []*stint.Policy{
		policy("root", minutely(20)), policy("floor", minutely(6)),
		policy("two", stint.FixedWindow(9, time.Minute), stint.SlidingWindowLog(3, time.Second).Named("second")),
	}
	clock := storetest.NewClock(at2026)
	var recorded bytes.Buffer
	store := record.New(memstore.New(memstore.Config{Now: clock.Now}), &recorded, record.Options{Memory: true})
	rng := rand.New(rand.NewPCG(1, 2))
	denied, second := 0, 0
	for range 3000 {
		clock.Advance(time.Duration(rng.Int64N(int64(3 * time.Second))))
		var op stint.Op
		var groups [][]stint.Way
		for i := range 2 + rng.IntN(3) {
			claim := stint.Claim{
				Key: fmt.Sprint(rng.IntN(2)), Policy: all[rng.IntN(len(all))], Permits: 1 + rng.Int64N(3), Keep: rng.Int64N(4),
			}
			group := len(groups) - 1
			switch kind := rng.IntN(4); {
			case kind == 0 && i == 0:
				op.Claim = claim
			case kind == 0 && op.Policy != nil && groups == nil:
				op.And = append(op.And, claim)
			case kind < 2 || groups == nil:
				groups = append(groups, []stint.Way{{claim}})
			case kind == 2:
				groups[group][len(groups[group])-1] = append(groups[group][len(groups[group])-1], claim)
			default:
				groups[group] = append(groups[group], stint.Way{claim})
			}
		}
		op.Extra = &stint.Extra{Groups: groups}
		if op.Validate() != nil {
			continue
		}
		d := must.Get(store.Decide(t.Context(), op))(t)
		if !d.Allowed {
			denied++
		} else if d.Via > 0 {
			second++
		}
	}
	if c := replayed(t, recorded.String()); c.Decisions < 500 || c.Different != 0 || c.Unfit != "" || denied < 100 || second < 50 {
		t.Errorf("%+v; %d denied, %d by another way", c, denied, second)
	}
	if c := replayed(t, strings.ReplaceAll(recorded.String(), `,"way":`, `,"unknown":`)); c.Different == 0 {
		t.Errorf("without ways: %+v", c)
	}
}

// A request waits for the way that admits it first.
func TestWaitsForTheFirstWay(t *testing.T) {
	list := []rules.Rule{
		{ID: "org", OnExceed: rules.Wait, MaxWait: 5 * time.Minute, Scope: []string{rules.Global}, Limits: []stint.Limit{minutely(20)}},
		{
			ID: "team", OnExceed: rules.Wait, MaxWait: 5 * time.Minute, Within: "org", Scope: []string{rules.PerIP},
			Guaranteed: map[string]rules.Floor{"192.0.2.1": {Capacity: 1, Refill: stint.Per(1, time.Minute)}},
			Borrow:     rules.Borrow{Rate: stint.Per(1, 10*time.Second)},
		},
	}
	var waited []time.Duration
	s := simulation(t, func(v *simulate.Verdict) { waited = append(waited, v.Waited) }, list...)
	for range 9 {
		must.Do(t, s.Add(event(at2026, "192.0.2.1")))
	}
	all := finish(t, s)
	report := all.Candidates[0]
	var text strings.Builder
	if err := all.WriteText(&text, false); err != nil || !strings.Contains(text.String(), "\ncharged by team of test: borrowed 7, guaranteed 2\n") {
		t.Errorf("%v: %s", err, text.String())
	}
	want := []time.Duration{0, 0, 10 * time.Second, 20 * time.Second, 30 * time.Second, 40 * time.Second, 50 * time.Second, time.Minute, time.Minute}
	if !slices.Equal(waited, want) {
		t.Errorf("waited %v, want %v", waited, want)
	}
	ways := []simulate.WayReport{{Via: "borrowed", Admitted: 7}, {Via: "guaranteed", Admitted: 2}}
	for _, rule := range report.Rules {
		if rule.Rule == "team" && (!slices.Equal(rule.Ways, ways) || rule.Denied > 0) {
			t.Errorf("%+v", rule)
		}
	}
}

// Classes, and teams that borrow of one limit, wait in queues of their own, as in package enforce.
func TestClassesAndTeamsWaitApart(t *testing.T) {
	bucket := []stint.Limit{stint.TokenBucket(10, stint.PerSecond(1))}
	all := rules.Rule{ID: "all", Scope: []string{rules.Global}, OnExceed: rules.Wait, MaxWait: 10 * time.Second, Limits: bucket}
	classes := all
	classes.Classes = rules.Classes{By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"critical": 0, "batch": 50}, Default: "batch"}
	team := rules.Rule{
		ID: "team", Within: "all", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip, Borrow: rules.Borrow{Any: true},
		OnExceed: rules.Wait, MaxWait: 10 * time.Second, MaxWaiters: 2,
	}
	ask := func(name string, first int, values []string, list ...rules.Rule) (said []string) {
		s := simulation(t, func(v *simulate.Verdict) {
			if n := int(v.Line) - first; n >= 0 {
				said = append(said, fmt.Sprintf("%d %v %v", n, v.Allowed, v.Waited))
			}
		}, list...)
		for i := range first + len(values) {
			ev := event(at2026, "192.0.2.1")
			if ev.Line = int64(i); i < first {
				ev.Request.Attributes = map[string]string{name: values[len(values)-1]}
			} else if value := values[i-first]; value != "" {
				ev.Request.Attributes = map[string]string{name: value}
			}
			must.Do(t, s.Add(ev))
		}
		finish(t, s)
		slices.Sort(said)
		return said
	}
	want := []string{"0 true 2s", "1 true 3s", "2 true 0s"}
	if got := ask("class", 5, []string{"batch", "batch", "critical"}, classes); !slices.Equal(got, want) {
		t.Errorf("classes: %q, want %q", got, want)
	}
	want = []string{"0 true 1s", "1 true 2s", "2 false 0s", "3 true 3s", "4 true 4s", "5 false 0s"}
	if got := ask("team", 10, []string{"greedy", "greedy", "greedy", "other", "", "greedy"}, all, team); !slices.Equal(got, want) {
		t.Errorf("teams: %q, want %q", got, want)
	}
}
