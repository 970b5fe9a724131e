package simulate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/simulate"
)

// A rule that marks denies nobody, and counts what it marks; so does one with mark_at, beside what it denies.
func TestMarked(t *testing.T) {
	soft := simulate.LimitRule("soft", stint.FixedWindow(2, time.Hour))
	soft.OnExceed = rules.Mark
	hard := simulate.LimitRule("hard", stint.FixedWindow(4, time.Hour))
	hard.MarkAt = 75
	for _, list := range [][]rules.Rule{{soft, hard}, {hard}} {
		var marks []string
		s := simulation(t, func(v *simulate.Verdict) { marks = append(marks, strings.Join(v.Exceeded, " ")) }, list...)
		events, _ := read(t, simulate.ReaderOptions{}, "time,key\n"+strings.Repeat("1000,a\n", 5))
		for i := range events {
			must.Do(t, s.Add(&events[i]))
		}
		report := must.Get(s.Finish())(t)
		want := []string{"", "", "hard", "hard", ""}
		if len(list) > 1 {
			want = []string{"", "", "soft hard", "soft hard", ""}
		}
		for i := range marks {
			words := strings.Fields(marks[i])
			slices.Sort(words)
			slices.Reverse(words)
			marks[i] = strings.Join(words, " ")
		}
		if !slices.Equal(marks, want) {
			t.Errorf("the verdicts mark %q, want %q", marks, want)
		}
		for _, rule := range append(report.Candidates[0].Rules, report.Candidates[0].Total) {
			denied := map[bool]int64{true: 0, false: 1}[rule.Rule == "soft"]
			if rule.Requests != 5 || rule.Admitted != 4 || rule.Denied != denied || rule.Marked != 2 || rule.Shadow != 0 {
				t.Errorf("%q: %+v, want 4 admitted, %d denied, 2 marked", rule.Rule, rule.Counts, denied)
			}
		}
	}
}

// A denial has the reason that the service gives for it.
func TestReasons(t *testing.T) {
	login := simulate.LimitRule("login", stint.FixedWindow(3, time.Minute))
	login.Block = rules.Block{After: 3, For: time.Hour}
	for _, list := range [][]rules.Rule{{login}, {login, simulate.LimitRule("all", stint.TokenBucket(9, stint.PerSecond(9)))}} {
		var got, want []string
		sim := simulation(t, func(v *simulate.Verdict) { got = append(got, v.Reason) }, list...)
		now := stint.Instant(0)
		live := must.Get(enforce.New(enforce.Config{
			Store: memstore.New(memstore.Config{Now: func() time.Time { return now.Time() }}),
			Set:   must.Get(rules.Compile(list, rules.Options{}))(t),
		}))(t)
		for _, cost := range []string{"3", "1", "4", "1", "1"} {
			now += stint.Instant(time.Second.Microseconds())
			ev := event(now, "192.0.2.1")
			ev.Request.Attributes = map[string]string{simulate.CostAttribute: cost}
			must.Do(t, sim.Add(ev))
			var v enforce.Verdict
			must.Do(t, live.Decide(t.Context(), &ev.Request, &v))
			want = append(want, string(v.Reason()))
		}
		finish(t, sim)
		if !slices.Equal(got, want) || !slices.Contains(got, "never") || !slices.Contains(got, "blocked") {
			t.Errorf("%d rules: reasons %q, want %q", len(list), got, want)
		}
	}
}
