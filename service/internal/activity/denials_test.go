package activity_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/activity"
)

// Pages have the pairs of rule and client that were denied last, and filters find them.
func TestDenials(t *testing.T) {
	s := newService(t, activity.Config{Process: activity.Process{Name: "a"}})
	for i := range 10_100 {
		s.advance(time.Millisecond)
		s.see(1, "api", fmt.Sprintf("client-%05d", i), activity.Denied)
	}
	banned := decisionAt(s.At(), "ban", "mallory", activity.Denied)
	banned.Reason = stint.ReasonBanned
	banned.Attributes = map[string]string{
		"plan": "free", "region": "eu\xff", "none": "", "other": "of no rule", "long": strings.Repeat("x", 129), "a": strings.Repeat("y", 128), "b": strings.Repeat("z", 128),
	}
	s.RulesChanged("7", "", []string{"absent", "plan", "region", "none", "long", "a", "b"})
	s.Observe(t.Context(), &banned)
	seen, pages, target := 0, 0, "/api/v1/denials?scope=process&limit=1000"
	for next := uint64(1); next != 0; pages++ {
		page := get[activity.Denials](s, target)
		if pages == 0 && (page.Denials[0].Client != "mallory" || page.Denials[0].Reason != "banned" || page.Denials[1].RequestID != "request-of-client-10099") {
			t.Errorf("the last are %+v", page.Denials[:2])
		}
		seen, next = seen+len(page.Denials), page.Next
		target = fmt.Sprintf("/api/v1/denials?scope=process&limit=1000&before=%d", next)
	}
	if seen != 10_000 || pages != 10 {
		t.Errorf("%d denials on %d pages, want the last 10,000", seen, pages)
	}
	for query, want := range map[string]string{
		"rule=ban": "mallory", "reason=banned": "mallory", "client=client-05000": "client-05000", "q=of-client-09876": "client-09876", "q=llor": "mallory", "q=bann": "mallory",
		"since=2026-09-21T14:14:20.6Z&rule=ban": "mallory",
	} {
		if got := get[activity.Denials](s, "/api/v1/denials?scope=process&"+query); len(got.Denials) != 1 || got.Denials[0].Client != want {
			t.Errorf("%s finds %+v", query, got.Denials)
		}
	}
	if got := get[activity.Denials](s, "/api/v1/denials?since=2026-09-21T14:14:20.599Z"); len(got.Denials) != 3 {
		t.Errorf("of the last two milliseconds there are %+v", got.Denials)
	}
	s.advance(time.Second)
	if got := get[activity.Denials](s, "/api/v1/denials?rule=api&limit=5"); len(got.Denials) != 5 || got.Denials[0].Process != "a" || got.Denials[0].Client != "client-10099" {
		t.Errorf("the heads are %+v", got)
	}
	// Of the attributes that rules name, those are kept that fit.
	kept := map[string]string{"plan": "free", "region": `eu\xff`, "a": strings.Repeat("y", 128)}
	if got := get[activity.Denials](s, "/api/v1/denials?rule=ban").Denials[0].Attributes; !maps.Equal(got, kept) {
		t.Errorf("of attributes there are %v, want %v", got, kept)
	}
	// Without a token, names are neither shown nor searched.
	s.names = false
	masked := get[activity.Denials](s, "/api/v1/denials?scope=process&rule=ban").Denials[0]
	if masked.Client == "mallory" || !strings.HasPrefix(masked.Client, "client-") || masked.RequestID != "" || masked.Attributes != nil {
		t.Errorf("without a token it is %+v", masked)
	}
	if top := get[activity.Top](s, "/api/v1/top?limit=100"); slices.ContainsFunc(top.Denied, func(i activity.TopItem) bool { return len(i.Client) != len("client-")+12 }) {
		t.Errorf("without a token the top is %+v", top.Denied)
	}
	if got := get[activity.Denials](s, "/api/v1/denials?scope=process&q=llor"); len(got.Denials) != 0 {
		t.Errorf("without a token clients are searched: %+v", got.Denials)
	}
	s.refused(http.MethodGet, "/api/v1/denials?client=mallory", http.StatusForbidden, "token")
	s.refused(http.MethodGet, "/api/v1/timeline?client=mallory", http.StatusForbidden, "token")
}

// A flood takes one place, and many clients one each: a victim is found behind both, with its last request.
func TestFloodOfDenials(t *testing.T) {
	s := newService(t, activity.Config{Process: activity.Process{Name: "a"}})
	policy := must.Get(stint.NewPolicy("p", stint.FixedWindow(5, time.Minute).Named("tries")))(t)
	first := s.At()
	for i := range 3 {
		e := decisionAt(s.At(), "login", "victim", activity.Denied)
		e.Claim.Policy, e.Decision.Limit = policy, 5
		e.Method, e.Path, e.RequestID, e.Class = "POST", fmt.Sprintf("/login/%d?password=secret", i), fmt.Sprint("id-", i), "batch"
		s.Observe(t.Context(), &e)
		s.advance(time.Second)
	}
	for i := range 9_998 {
		s.see(20, "api", "one client", activity.Denied)
		s.see(1, "api", fmt.Sprint("one of many ", i), activity.Denied)
	}
	const query = "/api/v1/denials?client=victim"
	d := get[activity.Denials](s, query)
	want := activity.Denial{
		Process: "a", Seq: 3, First: first, At: first + 2e6, Count: 3, Rule: "login", Client: "victim", Class: "batch", Reason: "limit",
		Limit: 5, LimitName: "tries", Algorithm: "FIXED_WINDOW", Method: "POST", Path: "/login/2", RequestID: "id-2",
	}
	if len(d.Denials) != 1 || !reflect.DeepEqual(d.Denials[0], want) || d.Kept != 10_000 || d.More || d.Scope != activity.ScopeProcess || d.Processes != 1 {
		t.Errorf("the victim has %+v, want %+v", d, want)
	}
	if d := get[activity.Denials](s, "/api/v1/denials?client=one+client"); len(d.Denials) != 1 || d.Denials[0].Count != 20*9_998 {
		t.Errorf("the flood is %+v", d.Denials)
	}
	// One more client than there are places: the answer says since when it knows all.
	s.see(1, "api", "one too many", activity.Denied)
	if d := get[activity.Denials](s, query); len(d.Denials) != 0 || d.Kept != 10_000 || d.From != first+2e6 {
		t.Errorf("without the victim the answer is %+v", d)
	}
	s.see(1, "login", "victim", activity.Denied)
	if d := get[activity.Denials](s, query); len(d.Denials) != 1 || d.Denials[0].Count != 1 || d.Denials[0].First != s.At() || d.Denials[0].Path != "" || d.Denials[0].Limit != 0 {
		t.Errorf("the victim that comes back has %+v", d.Denials)
	}
}

// The table has what a list of all pairs would have, whatever comes in which order: also a rule that is named as a client.
func TestPairsAgainstAList(t *testing.T) {
	s := newService(t, activity.Config{})
	type pair struct{ rule, client string }
	var order []pair
	counts := map[pair]int64{}
	names := []string{"a", "b", "c"}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 25_000 {
		p := pair{"a", fmt.Sprint(random.IntN(12_000))}
		if i%10 == 0 {
			p = pair{names[random.IntN(3)], names[random.IntN(3)]}
		}
		if counts[p]++; counts[p] > 1 {
			order = slices.DeleteFunc(order, func(q pair) bool { return p == q })
		}
		if order = append(order, p); len(order) > 10_000 {
			delete(counts, order[0])
			order = order[1:]
		}
		s.see(1, p.rule, p.client, activity.Denied)
	}
	target, left := "/api/v1/denials?scope=process&limit=1000", order
	for next := uint64(1); next != 0; {
		page := get[activity.Denials](s, target)
		for _, d := range page.Denials {
			if p := left[len(left)-1]; d.Rule != p.rule || d.Client != p.client || d.Count != counts[p] {
				t.Fatalf("%d from the end there is %+v, want %v with %d", len(left), d, p, counts[p])
			}
			left = left[:len(left)-1]
		}
		next, target = page.Next, fmt.Sprintf("/api/v1/denials?scope=process&limit=1000&before=%d", page.Next)
	}
	if len(order) != 10_000 || len(left) != 0 {
		t.Errorf("%d of %d pairs are not found", len(left), len(order))
	}
}

// Texts of strangers are cut, and each byte that is no UTF-8 is shown as such.
func TestHostileDenials(t *testing.T) {
	s := newService(t, activity.Config{})
	long := strings.Repeat("é", 1000)
	e := decisionAt(s.At(), "api", long, activity.Denied)
	e.Method, e.Path, e.RequestID = long, "/"+long, "\xff\x00"+long
	s.Observe(t.Context(), &e)
	d := get[activity.Denials](s, "/api/v1/denials").Denials[0]
	if len(d.Client) != 256 || len(d.Method) != 16 || len(d.Path) > 128+3 || !strings.HasSuffix(d.Path, `\xc3`) || !strings.HasPrefix(d.RequestID, `\xff`+"\x00") {
		t.Errorf("kept are %d, %d, %d bytes and %q", len(d.Client), len(d.Method), len(d.Path), d.RequestID)
	}
	if found := get[activity.Denials](s, "/api/v1/denials?client="+long[:300]); len(found.Denials) != 1 {
		t.Errorf("a client whose name is cut is not found: %+v", found)
	}
	for _, name := range []string{"rule", "reason", "q"} {
		s.refused(http.MethodGet, "/api/v1/denials?"+name+"="+long, http.StatusBadRequest, name, "at most 256 bytes")
	}
	s.refused(http.MethodGet, "/api/v1/denials?since=soon", http.StatusBadRequest, "since", "soon", "a span such as 15m")
	s.refused(http.MethodGet, "/api/v1/denials?since=-5m", http.StatusBadRequest, "since")
	s.refused(http.MethodGet, "/api/v1/denials?reason=baned", http.StatusBadRequest, "reason", "holds (did you mean banned?)")
}
