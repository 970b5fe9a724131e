package rulesapi

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

// A slow backend takes its time for each version, and notes how many it is asked for.
type slow struct {
	registry.Backend
	each  time.Duration
	asked []int
}

func (s *slow) Versions(ctx context.Context, before int64, n int) ([]registry.Version, error) {
	list, err := s.Backend.Versions(ctx, before, n)
	s.asked = append(s.asked, n)
	<-time.After(s.each * time.Duration(len(list))) // by the test's own time
	return list, err
}

// history makes versions, of which every third changes the rule third.
func history(t *testing.T, backend registry.Backend, versions int) *Call {
	t.Helper()
	r, err := registry.New(backend, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range versions {
		rule := rules.Rule{ID: "other", Scope: []string{rules.Global}, Unlimited: true, Priority: n + 1}
		if n%3 == 0 {
			rule.ID = "third"
		}
		if _, err := r.Edit(t.Context(), registry.Author{}, func(d *registry.Draft) error { d.Put(rule); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Call{api: &API{config: Config{Registry: r}}, r: request}
}

// No more versions are read than are asked for, and few at a time, as each holds its rules.
func TestHistoryReadsWhatIsAskedFor(t *testing.T) {
	backend := &slow{Backend: registry.NewMemory()}
	call := history(t, backend, 30)
	for _, test := range []struct {
		before      int64
		limit       int
		rule        string
		asked       []int
		first, last int64
		next        int64
	}{
		{0, 1, "", []int{1}, 30, 30, 30},
		{0, 10, "", []int{10}, 30, 21, 21},
		{0, 25, "", []int{10, 10, 5}, 30, 6, 6},
		{0, 30, "", []int{10, 10, 10}, 30, 1, 0},
		{0, 31, "", []int{10, 10, 10}, 30, 1, 0},
		{4, 50, "", []int{10}, 3, 1, 0},
		{0, 2, "third", []int{10}, 28, 25, 25},
		{0, 5, "third", []int{10, 10}, 28, 16, 16},
		{0, 50, "third", []int{10, 10, 10}, 28, 1, 0},
	} {
		backend.asked = nil
		list, err := call.versions(test.before, test.limit, test.rule)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(backend.asked, test.asked) {
			t.Errorf("%+v: asked for %v", test, backend.asked)
		}
		if n := len(list.Versions); list.Versions[0].Version != test.first || list.Versions[n-1].Version != test.last || list.Next != test.next {
			t.Errorf("%+v: %+v", test, list)
		}
	}
}

// Who looks for a long time is shown what was found, and where to go on; nothing is left out.
func TestHistoryTakesBoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &slow{Backend: registry.NewMemory(), each: 50 * time.Millisecond}
		call := history(t, backend, 200)
		for _, rule := range []string{"", "third", "none"} {
			var got []int64
			begun, pages := time.Now(), 0
			for next := int64(0); pages == 0 || next > 0; pages++ {
				began := time.Now()
				list, err := call.versions(next, maxVersions, rule)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > lookTimeout+readAtOnce*backend.each {
					t.Errorf("a page took %s", took)
				}
				for _, v := range list.Versions {
					got = append(got, v.Version)
				}
				next = list.Next
			}
			want := map[string]int{"": 200, "third": 67, "none": 0}[rule]
			if len(got) != want || len(slices.Compact(slices.Clone(got))) != want || pages != 5 {
				t.Errorf("%q: %d versions in %d pages and %s: %v", rule, len(got), pages, time.Since(begun), got)
			}
		}
	})
}
