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
	for i := range 1_100 {
		s.see(1, "trial", fmt.Sprintf("late-%d", i), activity.ShadowDenied)
	}
	page := get[activity.Denials](s, "/api/v1/denials?scope=process&shadow=true&limit=1000")
	if len(page.Denials) != 1000 || page.More || page.Kept != 1000 || page.From != s.At() {
		t.Fatalf("%d pairs in shadow of %d, more: %v", len(page.Denials), page.Kept, page.More)
	}
	if d := page.Denials[0]; !d.Shadow || d.Rule != "trial" || d.Client != "late-1099" || d.Reason != "limit" || d.Process != "a" {
		t.Errorf("the last in shadow is %+v", d)
	}
	for query, want := range map[string]int{"shadow=true": 100, "shadow=false": 1, "scope=process&shadow=false": 1, "rule=trial&scope=process&limit=7": 7} {
		if got := get[activity.Denials](s, "/api/v1/denials?"+query); len(got.Denials) != want {
			t.Errorf("%s finds %d, want %d", query, len(got.Denials), want)
		}
	}
	s.refused(http.MethodGet, "/api/v1/denials?shadow=some", http.StatusBadRequest, "some", "true or false")
	top := get[activity.Top](s, "/api/v1/top")
	if len(top.Denied) != 1 || top.Denied[0].Count != 2 || len(top.Clients) != 1 {
		t.Errorf("the clients are %+v, the denied %+v", top.Clients, top.Denied)
	}
	if len(top.ShadowDenied) < 10 || top.ShadowDenied[0].Rule != "trial" || top.ShadowDenied[9].Count != 400 {
		t.Errorf("denied in shadow are %+v", top.ShadowDenied)
	}
}
