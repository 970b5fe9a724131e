package rulesapi

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// A slow store takes its time for each revision, and notes which are loaded.
type slow struct {
	rulestore.Store
	each   time.Duration
	loaded []int64
}

func (s *slow) Load(ctx context.Context, number int64) (rulestore.Revision, error) {
	s.loaded = append(s.loaded, number)
	<-time.After(s.each) // by the test's own time
	return s.Store.Load(ctx, number)
}

// history makes revisions, of which every third changes the rule third.
func history(t *testing.T, kept rulestore.Store, revisions int) *call {
	t.Helper()
	m := must.Get(rulestore.NewManager(kept, rulestore.Options{}))(t)
	for n := range revisions {
		rule := rules.Rule{ID: "other", Scope: []string{rules.Global}, Unlimited: true, Priority: n + 1}
		if n%3 == 0 {
			rule.ID = "third"
		}
		must.Get(m.Edit(t.Context(), rulestore.Author{}, func(d *rulestore.Draft) error { d.Put(rule); return nil }))(t)
	}
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))(t)
	return &call{api: &API{config: Config{Manager: m}}, r: request}
}

// Revisions are listed without their rules, which are loaded only to find those of a rule.
func TestHistoryReadsWhatIsAskedFor(t *testing.T) {
	kept := &slow{Store: rulestore.NewMemory()}
	c := history(t, kept, 30)
	for _, test := range []struct {
		before      int64
		limit       int
		rule        string
		loaded      int
		first, last int64
		next        int64
	}{
		{0, 1, "", 0, 30, 30, 30},
		{0, 10, "", 0, 30, 21, 21},
		{0, 30, "", 0, 30, 1, 0},
		{0, 31, "", 0, 30, 1, 0},
		{4, 50, "", 0, 3, 1, 0},
		{0, 2, "third", 7, 28, 25, 25},
		{0, 5, "third", 16, 28, 16, 16},
		{0, 50, "third", 30, 28, 1, 0},
	} {
		kept.loaded = nil
		list := must.Get(c.revisions(test.before, test.limit, test.rule))(t)
		if len(kept.loaded) != test.loaded {
			t.Errorf("%+v: loaded %v", test, kept.loaded)
		}
		if n := len(list.Revisions); list.Revisions[0].Revision != test.first || list.Revisions[n-1].Revision != test.last || list.Next != test.next {
			t.Errorf("%+v: %+v", test, list)
		}
	}
}

// A long search returns what it found and where to go on; nothing is left out.
func TestHistoryTakesBoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &slow{Store: rulestore.NewMemory(), each: 50 * time.Millisecond}
		c := history(t, kept, 200)
		for _, rule := range []string{"third", "none"} {
			var got []int64
			begun, pages := time.Now(), 0
			for next := int64(0); pages == 0 || next > 0; pages++ {
				began := time.Now()
				list := must.Get(c.revisions(next, 100, rule))(t)
				if took := time.Since(began); took > historyTimeout+2*kept.each {
					t.Errorf("a page took %s", took)
				}
				for _, v := range list.Revisions {
					got = append(got, v.Revision)
				}
				next = list.Next
			}
			want := map[string]int{"third": 67, "none": 0}[rule]
			if len(got) != want || len(slices.Compact(slices.Clone(got))) != want || pages != 6 {
				t.Errorf("%q: %d revisions in %d pages and %s: %v", rule, len(got), pages, time.Since(begun), got)
			}
		}
	})
}
