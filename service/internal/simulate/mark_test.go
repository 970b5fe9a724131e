package simulate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
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
		s := simulation(t, func(v *simulate.Verdict) error {
			marks = append(marks, strings.Join(v.Exceeded, " "))
			return nil
		}, list...)
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
