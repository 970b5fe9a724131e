package exact

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

// dawn is a time at which windows of a second and a permit's turn begin.
const dawn = stint.Instant(1_767_225_600_000_000)

// answers are what two processes got about one client under a bucket of 3 that gains
// one permit a second: after dawn 3 and a denial, after a second one more.
func answers() []report {
	second := dawn.Add(time.Second)
	return []report{
		{Elapsed: time.Second, Clients: []*account{{
			Decided:  decided(moment{At: dawn, Admitted: 2}, moment{At: second, Admitted: 1, Denied: 2, Until: dawn.Add(2 * time.Second)}),
			Recalled: map[stint.Instant]*span{dawn.Add(2 * time.Second): {First: second + 1, Last: second + 999_999, Hits: 7}},
		}}},
		{Elapsed: time.Second, Clients: []*account{{
			Decided: decided(moment{At: dawn + 5, Admitted: 1, Denied: 1, Until: second}),
		}}},
	}
}

func decided(moments ...moment) map[stint.Instant]*moment {
	byTime := map[stint.Instant]*moment{}
	for _, m := range moments {
		byTime[m.At] = &m
	}
	return byTime
}

// Each fault in the answers is found.
func TestCheckFindsFaults(t *testing.T) {
	end := dawn.Add(2 * time.Second)
	for name, c := range map[string]struct {
		spoil func(first, second *account)
		fault string // that is among those found; none if it is empty
	}{
		"none":                 {func(_, _ *account) {}, ""},
		"one more is admitted": {func(_, b *account) { b.Decided[dawn+5].Admitted++ }, "the model admits 1"},
		"a write is lost and no request before denied": {
			func(_, b *account) { b.Decided = decided(moment{At: dawn + 5, Admitted: 2}) }, "the model admits 1",
		},
		"a permit is lost":                 {func(a, _ *account) { a.Decided[dawn].Admitted-- }, "a permit was lost"},
		"a wait is too long":               {func(_, b *account) { b.Decided[dawn+5].Until++ }, "by the model until"},
		"memory keeps a denial that ended": {func(a, _ *account) { a.Recalled[end].Last++ }, "denied from memory"},
		"memory knows what another process was told": {
			func(_, b *account) {
				b.Recalled = map[stint.Instant]*span{end: {dawn.Add(time.Second), dawn.Add(time.Second), 1}}
			},
			"denied from memory",
		},
		"a process noticed something": {func(a, _ *account) { a.Faults = []string{"strange"} }, "strange"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := must.Get(stint.NewPolicy("", stint.TokenBucket(3, stint.PerSecond(1))))(t)
			reports := answers()
			c.spoil(reports[0].Clients[0], reports[1].Clients[0])
			got := check(1, policy, reports)
			if got.model != 4 {
				t.Errorf("the model admits %d, want 4", got.model)
			}
			if c.fault == "" && (got.decisions != 14 || got.remembered != 7 || got.admitted != 4 || len(got.faults) > 0) {
				t.Errorf("%d decisions, %d from memory, %d admitted, faults %q; want 14, 7, 4 and none",
					got.decisions, got.remembered, got.admitted, got.faults)
			}
			has := func(fault string) bool { return strings.Contains(fault, c.fault) }
			if c.fault != "" && !slices.ContainsFunc(got.faults, has) {
				t.Errorf("faults %q, want %q among them", got.faults, c.fault)
			}
		})
	}
}
