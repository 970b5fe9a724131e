package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
)

const plansPage = "docs/plans.md"

// The page's table of what is left when a limit changes.
func TestChangedPlans(t *testing.T) {
	month := func(n int64) stint.Limit { return stint.CalendarWindow(n, stint.CalendarMonth, "UTC") }
	end := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC).Sub(still())
	for _, test := range []struct {
		limit, used, changed, left string
		was, is                    stint.Limit
		take, want                 int64
		full                       time.Duration // until nothing is used
	}{
		{"fixed window, 1,000 a month", "800", "50,000 a month", "49,200, until the same end of the month", month(1000), month(50_000), 800, 49_200, end},
		{"fixed window, 50,000 a month", "3,000", "1,000 a month", "0, until the same end of the month", month(50_000), month(1000), 3000, 0, end},
		{
			"sliding window counter, 20 a minute", "15", "500 a minute", "485",
			stint.SlidingWindowCounter(20, time.Minute), stint.SlidingWindowCounter(500, time.Minute), 15, 485, 2 * time.Minute,
		},
		{
			"sliding window log, 20 a minute", "15", "500 a minute", "485",
			stint.SlidingWindowLog(20, time.Minute), stint.SlidingWindowLog(500, time.Minute), 15, 485, time.Minute,
		},
		{
			"token bucket, 10 and 10/s", "7", "100 and 100/s", "3, and 100/s more",
			stint.TokenBucket(10, stint.PerSecond(10)), stint.TokenBucket(100, stint.PerSecond(100)), 7, 3, 970 * time.Millisecond,
		},
		{
			"token bucket, 10 and 10/s", "nothing", "100 and 100/s", "100",
			stint.TokenBucket(10, stint.PerSecond(10)), stint.TokenBucket(100, stint.PerSecond(100)), 0, 100, 0,
		},
		{
			"token bucket, 100 and 100/s", "40", "10 and 10/s", "10",
			stint.TokenBucket(100, stint.PerSecond(100)), stint.TokenBucket(10, stint.PerSecond(10)), 40, 10, 0,
		},
	} {
		hasRow(t, plansPage, test.limit, test.used, test.changed, test.left)
		was := must.Get(stint.New(stillStore(), "quota", test.was))(t)
		if test.take > 0 {
			if d, err := was.AllowN(t.Context(), "ann", test.take); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		is := must.Get(was.With(test.is))(t)
		if d, err := is.Peek(t.Context(), "ann"); err != nil || d.Remaining != test.want || d.ResetAfter != test.full {
			t.Errorf("%s, %s, then %s: %d left, nothing is used in %s, %v; want %d, %s", test.limit, test.used, test.changed, d.Remaining, d.ResetAfter, err, test.want, test.full)
		}
	}
}

// Streams that run keep their places when there are fewer.
func TestChangedConcurrency(t *testing.T) {
	hasRow(t, plansPage, "concurrency, 20", "5 run", "2", "0, until four have ended")
	was := must.Get(stint.New(stillStore(), "streams", stint.Concurrency(20)))(t)
	is := must.Get(was.With(stint.Concurrency(2)))(t)
	var places []*stint.Reservation
	for range 5 {
		place, d, err := was.Reserve(t.Context(), "ann", 1, stint.Hold{})
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		places = append(places, place)
	}
	for ended, place := range places {
		if d, err := is.Peek(t.Context(), "ann"); err != nil || d.Allowed != (ended >= 4) {
			t.Errorf("when %d have ended: %v, %v", ended, d, err)
		}
		must.Get(place.Commit(t.Context(), 1))(t)
	}
}

// The page's upgrade on 16 March.
func Example_upgrade() {
	ctx := context.Background()
	now := time.Date(2026, 3, 16, 9, 0, 0, 0, time.UTC)
	store := memstore.New(memstore.Config{Now: func() time.Time { return now }})
	free := must.Get(
		stint.New(store, "quota", stint.CalendarWindow(1000, stint.CalendarMonth, "UTC").Named("month")))(example{})
	must.Get(free.AllowN(ctx, "ann", 800))(example{})
	pro := must.Get(free.With(stint.CalendarWindow(50_000, stint.CalendarMonth, "UTC").Named("month")))(example{})
	decision := must.Get(pro.Allow(ctx, "ann"))(example{})
	fmt.Println(decision) // allowed, 49199 of 50000 left
	now = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	decision = must.Get(pro.Allow(ctx, "ann"))(example{})
	fmt.Println(decision) // allowed, 49999 of 50000 left
	// Output:
	// allowed, 49199 of 50000 left
	// allowed, 49999 of 50000 left
}

// A month that is under way ends when it would have, and days come after it.
func TestMonthThenDays(t *testing.T) {
	now := time.Date(2026, 3, 16, 9, 0, 0, 0, time.UTC)
	store := memstore.New(memstore.Config{Now: func() time.Time { return now }})
	months := must.Get(stint.New(store, "quota", stint.CalendarWindow(1000, stint.CalendarMonth, "UTC").Named("quota")))(t)
	must.Get(months.AllowN(t.Context(), "ann", 800))(t)
	days := must.Get(months.With(stint.CalendarWindow(5000, stint.CalendarDay, "UTC").Named("quota")))(t)
	for _, step := range []struct{ month, day, left int }{{3, 16, 4199}, {3, 17, 4198}, {4, 1, 4999}, {4, 2, 4999}} {
		now = time.Date(2026, time.Month(step.month), step.day, 12, 0, 0, 0, time.UTC)
		if d, err := days.Allow(t.Context(), "ann"); err != nil || d.Remaining != int64(step.left) {
			t.Errorf("on %s: %v, %v; want %d left", now, d, err, step.left)
		}
	}
}

// A denial that a process remembers is of the old limit.
func TestDenialOfTheOldPlan(t *testing.T) {
	store := bareStore(t, server.URL(), redisstore.Options{KeyPrefix: "plans"})
	must.Do(t, store.Ready(t.Context()))
	free := must.Get(stint.New(store, "quota", stint.FixedWindow(3, 24*time.Hour)))(t)
	remembered := false
	for range 100 { // a denial is remembered once announcements are received
		d := must.Get(free.Allow(t.Context(), "ann"))(t)
		remembered = remembered || d.Source == stint.SourceDenialCache
	}
	pro := must.Get(free.With(stint.FixedWindow(5, 24*time.Hour)))(t)
	if d, err := pro.Allow(t.Context(), "ann"); err != nil || !d.Allowed || d.Remaining != 1 || !remembered {
		t.Errorf("after the upgrade: %v, %v; remembered before: %v", d, err, remembered)
	}
}

// The page's commands print what it says, by the rules of its first document without the override that a command makes.
func TestPlansByREST(t *testing.T) {
	s := serve(t, "rules_from: store\n", map[string]string{"rules.yaml": blocks(t, plansPage, "yaml")[0]})
	s.expect(t, "stint rules apply rules.yaml", "revision 1: added quota")
	if n := s.session(t, blocks(t, plansPage, "console")...); n != 7 {
		t.Errorf("the page has %d commands", n)
	}
	explain := "stint rules explain --rules rules.yaml --path /api/x --attribute customer=acme"
	s.expect(t, explain, "quota  limited  acme  1     yes      500        0s")
	s.expect(t, "stint rules diff rules.yaml && echo equal", "equal")
	if strings.Contains(s.shell(t, "curl -s localhost:8079/api/v1/rules/quota/overrides"), "ann") {
		t.Error("the raise is not undone")
	}
}

// What the page says of plans as attributes: each has a state of its own, and a request without a plan needs a default.
func TestPlansAsAttributes(t *testing.T) {
	for _, deny := range []bool{false, true} {
		limiter := must.Get(enforce.New(enforce.Config{
			Store: stillStore(), Set: shownRules(t, plansPage, 1), DenyByDefault: deny,
		}))(t)
		of := func(plan string) enforce.Verdict {
			r := with("plan", plan, "customer", "ann")
			r.Method, r.Path = http.MethodGet, "/api/x"
			return decide(t, limiter, r)
		}
		left := func(plan string) int64 { return of(plan).Decision.Remaining }
		if free, pro, again := left("free"), left("pro"), left("free"); free != 999 || pro != 49999 || again != 998 {
			t.Errorf("%d of free, %d of pro and then %d of free are left", free, pro, again)
		}
		if of("other").Allowed == deny {
			t.Errorf("another plan is admitted: %t, though DenyByDefault is %t", !deny, deny)
		}
	}
}
