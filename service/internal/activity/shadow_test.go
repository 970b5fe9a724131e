package activity_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stint-go/stint/service/internal/activity"
)

// Whom a rule in shadow would deny is told, marked, and neither counted as denied nor in the way of real denials.
func TestShadowDenials(t *testing.T) {
	s := newService(t, activity.Config{Process: activity.Process{Name: "a"}})
	s.see(1, "login", "mallory", activity.Denied)
	for i := range 4_000 {
		e := decisionAt(s.At(), "trial", fmt.Sprintf("client-%d", i%10), activity.ShadowDenied)
		e.RequestID = "r-1"
		s.Observe(t.Context(), &e)
	}
	s.see(1, "login", "mallory", activity.Denied)
	const path = "/api/v1/denials?scope=process&limit=1000"
	page := get[activity.Denials](s, path)
	if n := len(page.Denials); n != 1000 || page.Denials[0].Shadow || page.Denials[0].Client != "mallory" {
		t.Fatalf("%d denials, the last is %+v", n, page.Denials[0])
	}
	if d := page.Denials[1]; !d.Shadow || d.Rule != "trial" || d.Client != "client-9" || d.Reason != "limit" || d.RequestID != "r-1" || d.Process != "a" {
		t.Errorf("the last in shadow is %+v", d)
	}
	seen := map[bool]int{}
	for next := uint64(1); next != 0; next = page.Next {
		for _, d := range page.Denials {
			seen[d.Shadow]++
		}
		page = get[activity.Denials](s, fmt.Sprintf("%s&before=%d", path, page.Denials[len(page.Denials)-1].Seq))
		if page.Next == 0 {
			for _, d := range page.Denials {
				seen[d.Shadow]++
			}
		}
	}
	if seen[false] != 2 || seen[true] != 1000 {
		t.Errorf("the pages have %d denials and %d in shadow, want 2 and 1000", seen[false], seen[true])
	}
	for query, want := range map[string]int{"shadow=true": 100, "shadow=false": 2, "scope=process&shadow=false": 2, "rule=trial&scope=process&limit=7": 7} {
		if got := get[activity.Denials](s, "/api/v1/denials?"+query); len(got.Denials) != want {
			t.Errorf("%s finds %d, want %d", query, len(got.Denials), want)
		}
	}
	s.refused(http.MethodGet, "/api/v1/denials?shadow=some", http.StatusBadRequest, "some", "true or false")
	top := get[activity.Top](s, "/api/v1/top")
	if len(top.Denied) != 1 || top.Denied[0].Count != 2 || len(top.Clients) != 1 {
		t.Errorf("the clients are %+v, the denied %+v", top.Clients, top.Denied)
	}
	if len(top.ShadowDenied) != 10 || top.ShadowDenied[0].Rule != "trial" || top.ShadowDenied[0].Count != 400 {
		t.Errorf("denied in shadow are %+v", top.ShadowDenied)
	}
	timeline := get[activity.Timeline](s, "/api/v1/timeline?client=client-3&limit=5")
	if len(timeline.Denials) != 5 || !timeline.Denials[0].Shadow || len(timeline.Decisions) != 0 {
		t.Errorf("the timeline is %+v", timeline)
	}
}
