package docs_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/internal/testtraffic"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/storetest"
)

// shownRules are the rules of a page's n-th document of rules.
func shownRules(t *testing.T, page string, n int) *rules.Set {
	t.Helper()
	shown := groups("(?s)```yaml\n(rules:.*?)```", read(t, page)[page])
	if len(shown) <= n {
		t.Fatalf("%s has %d documents of rules", page, len(shown))
	}
	return must.Get(file.ParseSet(page, []byte(shown[n]), rules.Options{}))(t)
}

// play lets callers ask for a time, and counts from a time on what each asked for and was admitted.
func play(until, from time.Duration, callers []testtraffic.Caller, decide func(name string, now time.Duration) bool) (asked, admitted map[string]int) {
	asked, admitted = map[string]int{}, map[string]int{}
	testtraffic.Play(until, callers, func(name string, now time.Duration) {
		yes := decide(name, now)
		if now < from {
			return
		}
		if asked[name]++; yes {
			admitted[name]++
		}
	})
	return asked, admitted
}

// decideBy decides by rules on a pinned clock. A caller's name is the value of the attribute.
func decideBy(t *testing.T, set *rules.Set, attribute string) func(string, time.Duration) bool {
	t.Helper()
	limiter, clock := byRules(t, set)
	begun := clock.Instant()
	var v enforce.Verdict
	return func(name string, now time.Duration) bool {
		clock.Set(begun + stint.Instant(now.Microseconds()))
		r := rules.Request{Attributes: map[string]string{"organisation": "acme", attribute: name}}
		must.Do(t, limiter.Decide(t.Context(), &r, &v))
		return v.Allowed
	}
}

func byRules(t *testing.T, set *rules.Set) (*enforce.Limiter, *storetest.Clock) {
	t.Helper()
	clock := storetest.NewClock(stint.Instant(still().UnixMicro()))
	limiter := must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: clock.Now}), Set: set}))(t)
	return limiter, clock
}

// number is a count as people read it.
func number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// hasRow reports a row that a page's tables lack.
func hasRow(t *testing.T, page string, cells ...string) {
	t.Helper()
	if row := "| " + strings.Join(cells, " | ") + " |"; !strings.Contains(read(t, page)[page], row+"\n") {
		t.Errorf("%s lacks\n%s", page, row)
	}
}

const organisationsPage, prioritiesPage = "docs/organisations.md", "docs/priorities.md"

// The decision's table of what teams get in a minute, beside a rule that makes ceilings of floors.
func TestOrganisations(t *testing.T) {
	const minute, limit = time.Minute, 60_000
	shares := map[string]float64{"search": 0.4, "ads": 0.3, "mail": 0.3}
	all := func(perSecond float64) []testtraffic.Caller {
		return []testtraffic.Caller{{Name: "search", PerSecond: perSecond}, {Name: "ads", PerSecond: perSecond}, {Name: "mail", PerSecond: perSecond}}
	}
	for _, test := range []struct {
		name    string
		callers []testtraffic.Caller
		from    time.Duration // what counts
		show    []string
	}{
		{"search asks alone, 3,000 a second", []testtraffic.Caller{{Name: "search", PerSecond: 3000}}, 0, []string{"search"}},
		{"all three ask, 1,000 a second each", all(1000), 0, []string{"search", "ads", "mail"}},
		{
			"search asks alone for 30 s, then all three: what ads and mail get in the other 30 s",
			[]testtraffic.Caller{{Name: "search", PerSecond: 3000}, {Name: "ads", PerSecond: 1000, From: 30 * time.Second}, {Name: "mail", PerSecond: 1000, From: 30 * time.Second}},
			30 * time.Second,
			[]string{"ads", "mail"},
		},
	} {
		// Of stint the second minute counts, so that what was in the bucket at the beginning does not.
		late := make([]testtraffic.Caller, len(test.callers))
		for i, c := range test.callers {
			if late[i] = c; c.From > 0 {
				late[i].From += minute
			}
		}
		_, ours := play(2*minute, minute+test.from, late, decideBy(t, shownRules(t, organisationsPage, 0), "team"))
		_, theirs := play(minute, test.from, test.callers, testtraffic.Ceilings(limit, 0.8, shares))
		show := func(admitted map[string]int) string {
			var list []string
			sum := 0
			for _, name := range test.show {
				list = append(list, name+" "+number(admitted[name]))
				sum += admitted[name]
			}
			if test.from == 0 {
				list = append(list, fmt.Sprintf("%.1f %% of the rate", 100*float64(sum)/limit))
			}
			return strings.Join(list, ", ")
		}
		hasRow(t, "docs/adr/0020-floors-by-two-primitives.md", test.name, show(ours), show(theirs))

		floor := (minute - test.from).Seconds() * 1000
		for _, name := range test.show {
			if float64(ours[name]) < shares[name]*floor-1 {
				t.Errorf("%s: %s is admitted %d, less than its floor", test.name, name, ours[name])
			}
		}
	}
}

// A team that comes finds its floor whole, whatever others did; a lone one has a burst of what no floor needs.
func TestOrganisationsAtOnce(t *testing.T) {
	limiter, _ := byRules(t, shownRules(t, organisationsPage, 0))
	expectAtOnce(t, limiter, acme("search"), 500, "max(200, 1000 - 500) of a lone team")
	expectAtOnce(t, limiter, acme("ads"), 150, "its floor")
	expectAtOnce(t, limiter, acme("mail"), 150, "its floor")
	for _, other := range []string{"", "guests"} {
		expectAtOnce(t, limiter, acme(other), 0, "as the floors need the rest")
	}
}

// Another organisation, whose teams have the same names, takes nothing of a team's floor.
func TestOrganisationsApart(t *testing.T) {
	limiter, _ := byRules(t, shownRules(t, organisationsPage, 0))
	atOnce(t, limiter, with("organisation", "greedy", "team", "search"))
	atOnce(t, limiter, acme("guests"))
	expectAtOnce(t, limiter, acme("search"), 200, "its floor")
}

// Each API key has the floors of models, whatever another key uses.
func TestFloorsOfEachKey(t *testing.T) {
	limiter, _ := byRules(t, shownRules(t, organisationsPage, 2))
	for _, key := range []string{"k1", "k2"} {
		small, large := with("model", "small"), with("model", "large")
		small.APIKey, large.APIKey = key, key
		expectAtOnce(t, limiter, small, 80, "which no floor needs")
		expectAtOnce(t, limiter, large, 20, "its floor")
	}
}

// A team of no organisation is denied by the page's first rules; with skip it is admitted, as none holds for it.
func TestTeamOfNoOrganisation(t *testing.T) {
	set := shownRules(t, organisationsPage, 0)
	limiter, _ := byRules(t, set)
	if v := decide(t, limiter, with("team", "search")); v.Allowed {
		t.Errorf("%+v; want it denied", v)
	}
	list := set.Rules()
	list[0].Missing = rules.MissingSkip
	limiter, _ = byRules(t, must.Get(rules.Compile(list, rules.Options{}))(t))
	if v := decide(t, limiter, with("team", "search")); !v.Allowed || v.Rule != nil {
		t.Errorf("%+v; want it admitted by no rule", v)
	}
}

// What is left is told of the way that was charged, and on denial of the one that admits first; what is available, of all
// ways together.
func TestWhatIsLeftOfWays(t *testing.T) {
	limiter, _ := byRules(t, shownRules(t, organisationsPage, 0))
	v := decide(t, limiter, acme("search"))
	available, _ := v.Available()
	said := fmt.Sprintf("`\"limit\": %d, \"remaining\": %d` and `\"available\": %d`", v.Decision.Limit, v.Decision.Remaining, available)
	if v.Via != rules.ViaGuaranteed || !strings.Contains(pages(t)[organisationsPage], said) {
		t.Errorf("the page does not say %s, by %s", said, v.Via)
	}
	for range 498 {
		v = decide(t, limiter, acme("search"))
	}
	available, _ = v.Available()
	if d := v.Decision; !d.Allowed || d.Limit != 1000 || d.Remaining != 1 || v.Via != rules.ViaBorrowed || available != 1 {
		t.Errorf("request 499: %+v by %s, %d available", d, v.Via, available)
	}
	decide(t, limiter, acme("search"))
	if d := decide(t, limiter, acme("search")).Decision; d.Allowed || d.Remaining != 0 {
		t.Errorf("request 501: %+v", d)
	}
}

// What the page says of resets: each clears what it names, and nothing of the others.
func TestOrganisationsReset(t *testing.T) {
	limiter, _ := byRules(t, shownRules(t, organisationsPage, 0))
	teams := []string{"ads", "mail", "search"}
	empty := func() {
		for _, team := range []string{"search", "ads", "mail"} {
			atOnce(t, limiter, acme(team))
		}
	}
	reset := func(rule string, clients ...string) {
		for _, client := range clients {
			must.Do(t, limiter.ResetClient(t.Context(), rule, "{acme}"+client))
		}
	}
	expect := func(after string, want ...int) {
		t.Helper()
		var got []int
		for _, team := range teams {
			got = append(got, atOnce(t, limiter, acme(team)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %s %s have %v, want %v", after, teams, got, want)
		}
	}
	empty()
	expect("nothing", 0, 0, 0)
	reset("organisation", "acme")
	expect("a reset of the organisation", 500, 0, 0) // borrowed: the floors are as empty as before
	reset("team", "ads")
	expect("a reset of a floor", 150, 0, 0)
	var v enforce.Verdict
	r := acme("ads")
	if err := limiter.Settle(t.Context(), &r, 5, nil, &v); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a settlement: %v, want it refused", err)
	}

	// All floors are reset while the organisation has 200 left: they are late by the rest.
	limiter, _ = byRules(t, shownRules(t, organisationsPage, 0))
	empty()
	reset("team", teams...)
	expect("a reset of all floors", 150, 50, 0)
	empty()
	reset("organisation", "acme")
	reset("team", teams...)
	expect("a reset of everything", 500, 150, 200)
}

// On a cluster the rules need one partition, and partition_by gives them one.
func TestOrganisationsOnACluster(t *testing.T) {
	store := bareStore(t, testredis.StartCluster(t, 3).URL(), redisstore.Options{})
	must.Do(t, store.Ready(t.Context()))
	list := shownRules(t, organisationsPage, 0).Rules()
	for _, partition := range []string{"", "organisation"} {
		for i := range list {
			list[i].PartitionBy = partition
		}
		set := must.Get(rules.Compile(list, rules.Options{}))(t)
		limiter := must.Get(enforce.New(enforce.Config{Store: store, Set: set}))(t)
		var v enforce.Verdict
		refused := 0
		for _, team := range []string{"search", "ads", "mail"} {
			r := rules.Request{Attributes: map[string]string{"organisation": "acme", "team": team}}
			switch err := limiter.Decide(t.Context(), &r, &v); {
			case errors.Is(err, stint.ErrInvalid):
				refused++
			case err != nil || !v.Allowed || v.Via != rules.ViaGuaranteed:
				t.Errorf("partition_by %q: %s has %+v, %v", partition, team, v, err)
			}
		}
		if (refused > 0) != (partition == "") {
			t.Errorf("partition_by %q: %d requests are refused", partition, refused)
		}
	}
}

// The page's table of what each class gets.
func TestPriorities(t *testing.T) {
	classes := []string{"critical", "normal", "batch"}
	for _, times := range []float64{1, 2, 3} {
		callers := []testtraffic.Caller{
			{Name: "critical", PerSecond: 300 * times}, {Name: "normal", PerSecond: 400 * times}, {Name: "batch", PerSecond: 300 * times},
		}
		asked, admitted := play(70*time.Second, 10*time.Second, callers, decideBy(t, shownRules(t, prioritiesPage, 0), "class"))
		cells := []string{number(int(1000 * times))}
		for _, class := range classes {
			cells = append(cells, fmt.Sprintf("%.0f of %.0f (%.0f %%)", float64(admitted[class])/60, float64(asked[class])/60, 100*float64(admitted[class])/float64(asked[class])))
		}
		hasRow(t, prioritiesPage, cells...)
	}
}

// Critical requests that come in bursts are admitted, as long as they are less than the rate.
func TestCriticalBursts(t *testing.T) {
	for _, perSecond := range []float64{300, 600, 900, 950} {
		rest := (3000 - perSecond) / 2
		asked, admitted := play(70*time.Second, 10*time.Second, []testtraffic.Caller{
			{Name: "normal", PerSecond: rest},
			{Name: "batch", PerSecond: rest},
			{Name: "critical", PerSecond: perSecond, Every: 100 * time.Millisecond},
		}, decideBy(t, shownRules(t, prioritiesPage, 0), "class"))
		part := float64(admitted["critical"]) / float64(asked["critical"])
		t.Logf("critical %v/s: %.2f %% of %d; normal %d, batch %d", perSecond, 100*part, asked["critical"], admitted["normal"], admitted["batch"])
		if part < 0.99 {
			t.Errorf("%v a second: %.2f %% is admitted", perSecond, 100*part)
		}
	}
}

// What batch jobs leave is a burst of the others: how long it lasts.
func TestWhatClassesKeep(t *testing.T) {
	for _, test := range []struct {
		perSecond float64
		lasts     time.Duration
	}{{1100, 4 * time.Second}, {2000, 400 * time.Millisecond}, {3000, 200 * time.Millisecond}} {
		decide := decideBy(t, shownRules(t, prioritiesPage, 0), "class")
		denied := time.Duration(0)
		play(20*time.Second, 0, []testtraffic.Caller{{Name: "batch", PerSecond: 3000}, {Name: "critical", PerSecond: test.perSecond, From: 10 * time.Second}},
			func(name string, now time.Duration) bool {
				yes := decide(name, now)
				if name == "critical" && !yes && denied == 0 {
					denied = now - 10*time.Second
				}
				return yes
			})
		if math.Abs(denied.Seconds()/test.lasts.Seconds()-1) > 0.01 {
			t.Errorf("at %v a second it lasts %v, want %v", test.perSecond, denied, test.lasts)
		}
	}
}

// What the page says of a request that has floors and a class: a batch request borrows down to 700.
func TestClassesWithFloors(t *testing.T) {
	limiter, _ := byRules(t, shownRules(t, prioritiesPage, 1))
	expectAtOnce(t, limiter, with("team", "guests", "class", "batch"), 300, "down to 700")
	expectAtOnce(t, limiter, with("team", "search", "class", "batch"), 300, "its floor")
	expectAtOnce(t, limiter, with("team", "guests", "class", "critical"), 0, "as the floors need the rest")
	expectAtOnce(t, limiter, with("team", "ads", "class", "batch"), 200, "its floor")
}

// Batch jobs of the page are admitted while more than 40 are left.
func TestKeep(t *testing.T) {
	ctx, user := t.Context(), "ann"
	limiter := must.Get(stint.New(stillStore(), "api", stint.TokenBucket(100, stint.PerSecond(10))))(t)
	batches, criticals := 0, 0
	for range 101 {
		decision, err := limiter.Ask(ctx, user, stint.Query{Keep: 40}) // a batch job: denied while 40 or fewer of 100 are left
		must.Do(t, err)
		if decision.Allowed {
			batches++
		}
	}
	for must.Get(limiter.Allow(ctx, user))(t).Allowed {
		criticals++
	}
	if batches != 60 || criticals != 40 {
		t.Errorf("%d batch jobs are admitted, and then %d others; want 60 and 40", batches, criticals)
	}
}

// A customer has what is included in each month, and then what is extra, and the verdict says which.
func TestIncludedThenPaid(t *testing.T) {
	limiter, clock := byRules(t, shownRules(t, organisationsPage, 3))
	by, ann := map[string]int{}, with("customer", "ann")
	ask := func() bool {
		v := decide(t, limiter, ann)
		by[v.Via]++
		return v.Allowed
	}
	for range 150_000 {
		if !ask() {
			t.Fatal("denied", by)
		}
	}
	if ask() {
		t.Error("more is admitted than there is")
	}
	clock.Advance(31 * 24 * time.Hour)
	ask()
	if by[rules.ViaLimits] != 100_001 || by[rules.ViaOtherwise] < 50_000 {
		t.Error(by)
	}
}

// The three levels of the page: what ann has at once of her own, of her team's floor and of the organisation.
func TestThreeLevels(t *testing.T) {
	limiter, _ := byRules(t, shownRules(t, organisationsPage, 1))
	by, r := map[string]int{}, with("team", "ads")
	r.User = "ann"
	for v := decide(t, limiter, r); v.Allowed; v = decide(t, limiter, r) {
		by[v.Via]++
	}
	if by[rules.ViaGuaranteed] != 20 || by[rules.ViaBorrowed] != 50 {
		t.Error(by)
	}
}

// with is a request with attributes: names and values by turns.
func with(pairs ...string) rules.Request {
	r := rules.Request{Attributes: map[string]string{}}
	for pair := range slices.Chunk(pairs, 2) {
		r.Attributes[pair[0]] = pair[1]
	}
	return r
}

// acme is a request of a team of the organisation.
func acme(team string) rules.Request { return with("organisation", "acme", "team", team) }

// decide is the verdict about a request.
func decide(t *testing.T, limiter *enforce.Limiter, r rules.Request) (v enforce.Verdict) {
	t.Helper()
	must.Do(t, limiter.Decide(t.Context(), &r, &v))
	return v
}

// atOnce is how many such requests are admitted at once.
func atOnce(t *testing.T, limiter *enforce.Limiter, r rules.Request) (n int) {
	t.Helper()
	for decide(t, limiter, r).Allowed {
		n++
	}
	return n
}

// expectAtOnce expects that so many such requests are admitted at once.
func expectAtOnce(t *testing.T, limiter *enforce.Limiter, r rules.Request, want int, why string) {
	t.Helper()
	if n := atOnce(t, limiter, r); n != want {
		t.Errorf("%+v is admitted %d times at once; want %d, %s", r, n, want, why)
	}
}
