package activity_test

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/activity"
)

// Everything that is observed is counted once, from however many goroutines it comes.
func TestStats(t *testing.T) {
	s := newService(t, activity.Config{Process: activity.Process{Name: "a", Version: "v1"}})
	var observers sync.WaitGroup
	for range 8 {
		observers.Go(func() {
			s.see(1000, "api", "alice", activity.Admitted)
			s.see(100, "api", "bob", activity.Denied)
			s.see(10, "trial", "", activity.ShadowDenied)
			s.see(1, "trial", "", activity.ShadowAdmitted)
		})
	}
	observers.Wait()
	degraded := decisionAt(s.At(), "login", "carol", activity.Admitted)
	degraded.Decision.Degraded = true
	s.Observe(t.Context(), &degraded)
	s.advance(time.Second)
	stats := get[activity.Stats](s, "/api/v1/stats?seconds=5")
	totals := stats.Totals
	if totals.From != s.Now().Unix()-5 || totals.Step != 1 || len(totals.Admitted) != 5 {
		t.Errorf("totals from %d by %d: %d", totals.From, totals.Step, len(totals.Admitted))
	}
	if totals.Admitted[4] != 8001 || totals.Denied[4] != 800 || totals.ShadowDenied[4] != 80 || totals.Degraded[4] != 1 || totals.StoreMicros[4] != 1000 {
		t.Errorf("the last second is %+v", totals)
	}
	if sum(totals.Admitted[:4])+sum(totals.Denied[:4]) != 0 {
		t.Errorf("the seconds before are %+v", totals)
	}
	if len(stats.Rules) != 3 || stats.Rules[0].Rule != "api" || stats.Rules[1].Rule != "trial" || stats.Rules[2].Rule != "login" {
		t.Fatalf("rules are %+v", stats.Rules)
	}
	api, trial := stats.Rules[0], stats.Rules[1]
	if api.Seconds.Admitted[4] != 8000 || api.Seconds.Denied[4] != 800 || api.Minutes.Admitted[59] != 8000 || trial.Seconds.ShadowDenied[4] != 80 || trial.Seconds.Admitted[4] != 8 {
		t.Errorf("api is %+v, trial %+v", api, trial)
	}
	if stats.All.Scope != activity.ScopeProcess || stats.All.Processes != 1 || stats.All.Admitted != 8001 {
		t.Errorf("all is %+v", stats.All)
	}
	// A minute later seconds are kept, an hour later they are not; a second of the hour before is not taken for one of this.
	s.advance(time.Minute)
	if got := get[activity.Stats](s, "/api/v1/stats"); sum(got.Totals.Admitted) != 8001 || got.Rules[0].Minutes.Admitted[58] != 8000 {
		t.Errorf("a minute later: %d", sum(got.Totals.Admitted))
	}
	s.advance(time.Hour)
	s.see(1, "api", "alice", activity.Admitted)
	s.advance(time.Second)
	if got := get[activity.Stats](s, "/api/v1/stats?rule=api"); sum(got.Totals.Admitted) != 1 || sum(got.Rules[0].Minutes.Admitted) != 1 {
		t.Errorf("an hour later: %d", sum(got.Totals.Admitted))
	}
}

// Requests that leave a client little of a limit are counted by rule and second, and left out where there are none.
func TestNear(t *testing.T) {
	s := newService(t, activity.Config{})
	e := decisionAt(s.At(), "login", "alice", activity.Admitted)
	e.Decision.Limit, e.Decision.Remaining = 10, 2
	s.Observe(t.Context(), &e)
	s.Observe(t.Context(), &e)
	e.Shadow = true // which admits nobody
	s.Observe(t.Context(), &e)
	s.see(3, "login", "alice", activity.Admitted)
	s.see(1, "api", "alice", activity.Admitted)
	s.advance(2 * time.Second)
	stats := get[activity.Stats](s, "/api/v1/stats?seconds=3")
	if login := stats.Rules[0]; !slices.Equal(login.Near, []uint32{0, 2, 0}) || stats.Rules[1].Near != nil {
		t.Errorf("the rules are %+v", stats.Rules)
	}
}

// The store's figures are this process's, in answers and events; others are not told them.
func TestStoreFigures(t *testing.T) {
	figures := activity.StoreFigures{Scope: activity.ScopeAll, UsedBytes: 5, MaxBytes: 9, Evictions: 1, Calls: 2, Operations: 7, DenialHits: 3}
	s := newService(t, activity.Config{StoreFigures: func() activity.StoreFigures { return figures }})
	if got := get[activity.Stats](s, "/api/v1/stats").Store.Figures; got == nil || *got != figures {
		t.Errorf("the figures are %+v", got)
	}
	if got := get[activity.Processes](s, "/api/v1/processes").Processes[0].Store.Figures; got != nil {
		t.Errorf("processes tell %+v", got)
	}
	if got := get[activity.Stats](newService(t, activity.Config{}), "/api/v1/stats").Store.Figures; got != nil {
		t.Errorf("a store that tells nothing has %+v", got)
	}
}

// The busiest rules are counted apart, and the others together.
func TestBusiestRules(t *testing.T) {
	s := newService(t, activity.Config{})
	for i := range 1200 {
		s.see(2, fmt.Sprintf("quiet-%d", i), "alice", activity.Admitted)
	}
	for range 300 { // the place of a quiet one is free once a second
		s.advance(time.Second)
		s.see(10, "busy", "alice", activity.Admitted)
	}
	s.advance(time.Second)
	stats := get[activity.Stats](s, "/api/v1/stats?seconds=1&rules=1000")
	if len(stats.Rules) != 1000 || stats.Rules[0].Rule != "busy" || sum(stats.Rules[0].Minutes.Admitted) != 3000 {
		t.Errorf("%d rules, the first is %s", len(stats.Rules), stats.Rules[0].Rule)
	}
	if n := sum(stats.Others.Minutes.Admitted); n < 2*195 || n > 2*205 {
		t.Errorf("%d requests of others, want those of about 200 rules", n)
	}
}

func TestTop(t *testing.T) {
	s := newService(t, activity.Config{})
	for i := range 5000 {
		s.see(1, "api", fmt.Sprintf("one-of-many-%d", i), activity.Admitted)
	}
	s.see(500, "api", "heavy", activity.Admitted)
	s.see(300, "login", "heavy", activity.Admitted)
	s.see(90, "api", "greedy", activity.Denied)
	top := get[activity.Top](s, "/api/v1/top?limit=3")
	if top.Scope != activity.ScopeProcess || top.From.Time().Unix()%60 != 0 || s.Now().Sub(top.From.Time()) > 5*time.Minute {
		t.Errorf("scope %s from %v", top.Scope, top.From)
	}
	for i, want := range []activity.TopItem{{Rule: "api", Client: "heavy", Count: 500}, {Rule: "login", Client: "heavy", Count: 300}, {Rule: "api", Client: "greedy", Count: 90}} {
		got := top.Clients[i]
		if got.Rule != want.Rule || got.Client != want.Client || got.Count < want.Count || got.Count-got.Error > want.Count || got.Error > 5890/500 {
			t.Errorf("%d is %+v, want %+v", i, got, want)
		}
	}
	if want := (activity.TopItem{Rule: "api", Client: "greedy", Count: 90}); len(top.Denied) != 1 || top.Denied[0] != want {
		t.Errorf("denied are %+v", top.Denied)
	}
	s.advance(3 * time.Minute)
	s.see(900, "api", "late", activity.Admitted)
	if top = get[activity.Top](s, "/api/v1/top"); top.Clients[0].Client != "late" || top.Clients[1].Client != "heavy" {
		t.Errorf("after 3 minutes the top is %+v", top.Clients[:2])
	}
	s.advance(3 * time.Minute)
	if top = get[activity.Top](s, "/api/v1/top"); len(top.Clients) != 1 || len(top.Denied) != 0 {
		t.Errorf("after 6 minutes the top is %+v, %+v", top.Clients, top.Denied)
	}
}

// What is said of a request names its class and by what it was charged, if the rule has such.
func TestClassAndVia(t *testing.T) {
	s := newService(t, activity.Config{})
	for _, outcome := range []activity.Outcome{activity.Denied, activity.Admitted, activity.ShadowDenied} {
		e := decisionAt(s.At(), "team", "search", outcome)
		if e.Class = "batch"; outcome == activity.Admitted {
			e.Via = "borrowed"
		}
		s.Observe(t.Context(), &e)
		s.advance(time.Millisecond)
	}
	s.see(1, "api", "search", activity.Denied)
	list := get[activity.Denials](s, "/api/v1/denials?scope=process").Denials
	if len(list) != 3 || list[0].Class != "" || list[1].Class != "batch" || list[2].Class != "batch" {
		t.Errorf("denials: %+v", list)
	}
	if all := get[activity.Denials](s, "/api/v1/denials?rule=team").Denials; len(all) != 2 || all[0].Class != "batch" {
		t.Errorf("denials of all processes: %+v", all)
	}
	timeline := get[activity.Timeline](s, "/api/v1/timeline?client=search")
	var said []string
	for _, d := range timeline.Decisions {
		said = append(said, strings.Join([]string{d.Outcome, d.Class, d.Via, d.Reason}, " "))
	}
	if want := []string{"denied   limit", "admitted batch borrowed ", "denied batch  limit"}; !slices.Equal(said, want) {
		t.Errorf("decisions: %q, want %q", said, want)
	}
}

// Of each client that is sampled there is everything since the sample begins, whatever the traffic.
func TestRecent(t *testing.T) {
	s := newService(t, activity.Config{})
	const clients, rounds = 2000, 300
	path := "/" + strings.Repeat("x", 200)
	for round := range rounds { // 600,000 decisions in 300 seconds, 120 MB of text in their paths alone
		s.advance(time.Second)
		for c := range clients {
			e := decisionAt(s.At(), "api", fmt.Sprintf("client-%d", c), activity.Admitted)
			e.Claim.Permits, e.Method, e.Path = int64(round), "GET", path
			s.Observe(t.Context(), &e)
		}
	}
	first, last, counts := map[string]int64{}, map[string]int64{}, map[string]int{}
	held := s.Hold()
	sample := held.Sample
	held.Each(func(d activity.Decision) bool {
		if d.Path != path || d.Method != "GET" || d.Rule != "api" || d.Outcome != "admitted" {
			t.Fatalf("a decision is %+v", d)
		}
		if counts[d.Client]++; counts[d.Client] == 1 {
			first[d.Client], last[d.Client] = d.Permits, d.Permits
		}
		first[d.Client], last[d.Client] = min(first[d.Client], d.Permits), max(last[d.Client], d.Permits)
		return true
	})
	if sample.OneIn < 2 || sample.OneIn > 64 {
		t.Errorf("one client in %d is sampled", sample.OneIn)
	}
	// One in 16 is sampled, by hashes: 125 clients, with a deviation of 11. The probability of 50 or less is 2e-13, that of
	// 312 or more less (Chernoff).
	if share := float64(len(last)) * float64(sample.OneIn) / clients; share < 0.4 || share > 2.5 {
		t.Errorf("%d clients of %d with one in %d", len(last), clients, sample.OneIn)
	}
	for client, permits := range last {
		if permits != rounds-1 || int64(counts[client]) != permits-first[client]+1 {
			t.Fatalf("of what %s did from %d to %d there are %d decisions", client, first[client], permits, counts[client])
		}
	}
	client := slices.Sorted(maps.Keys(last))[0]
	timeline := get[activity.Timeline](s, "/api/v1/timeline?limit=30&client="+client)
	if !timeline.Sampled || len(timeline.Decisions) != 30 || timeline.Decisions[0].Permits != rounds-1 || timeline.Decisions[29].Permits != rounds-30 {
		t.Errorf("the timeline has %d decisions, sampled: %v", len(timeline.Decisions), timeline.Sampled)
	}
	for c := range clients {
		if name := fmt.Sprintf("client-%d", c); counts[name] == 0 {
			if timeline := get[activity.Timeline](s, "/api/v1/timeline?client="+name); timeline.Sampled || len(timeline.Decisions) > 0 {
				t.Errorf("of a client that is left out the timeline is %+v", timeline)
			}
			break
		}
	}
	// When traffic is light again, everybody is sampled.
	for range 80 {
		s.advance(10 * time.Minute)
		for i := range 3000 {
			e := decisionAt(s.At()+stint.Instant(i)*100_000, "api", fmt.Sprintf("client-%d", i), activity.Admitted)
			e.Path = path
			s.Observe(t.Context(), &e)
		}
	}
	if sample = s.Hold().Sample; sample.OneIn != 1 {
		t.Errorf("under light traffic one client in %d is sampled", sample.OneIn)
	}
}

func TestChanges(t *testing.T) {
	s := newService(t, activity.Config{})
	for i := range 1100 {
		s.RulesChanged("7", fmt.Sprintf("edit %d", i), nil)
	}
	s.StoreChanged(0, "no connection")
	s.StoreChanged(1, "no connection")
	s.StoreChanged(0, "")
	stats := get[activity.Stats](s, "/api/v1/stats?seconds=1")
	if n := len(stats.Changes); n != 1000 || stats.Changes[0].State != "up" || stats.Changes[1].Shard != 1 || stats.Changes[3].Detail != "edit 1099" || stats.Changes[3].State != "7" {
		t.Errorf("%d changes, the last are %+v", n, stats.Changes[:4])
	}
	if stats.Store.State != "unreachable" || stats.Store.UnreachableShards != 1 || stats.Store.Since != s.At() {
		t.Errorf("the store is %+v", stats.Store)
	}
	s.StoreChanged(1, "")
	if stats = get[activity.Stats](s, "/api/v1/stats?seconds=1"); stats.Store.State != "up" {
		t.Errorf("the store is %+v", stats.Store)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Whatever is observed, it takes 22 MiB, and 32 MiB for recent decisions.
func TestMemory(t *testing.T) {
	before := heap()
	s := newService(t, activity.Config{})
	long := strings.Repeat("x", 250)
	ids := make([]string, 3000)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", long[:90], i)
	}
	used := heap()
	for i := range 400_000 {
		if i%2000 == 0 {
			s.advance(10 * time.Second)
			s.RulesChanged("7", long+long+long, []string{"a", "b"})
		}
		e := decisionAt(s.At(), ids[i%len(ids)], fmt.Sprintf("%s%d", long, i), activity.Outcome(i&1))
		e.Method, e.Path, e.RequestID = long, long+long, long
		e.Attributes = map[string]string{"a": long[:120], "b": long[:120]}
		s.Observe(t.Context(), &e)
	}
	for i := range 1100 {
		s.StoreChanged(0, long+long+long+ids[i])
	}
	_ = get[activity.Top](s, "/api/v1/top")
	used = heap() - used + max(0, used-before-int64(len(ids)*128)) // what the test itself keeps is not the recorder's
	if used > 54<<20 {
		t.Errorf("%d KiB are in use, want at most 54 MiB", used>>10)
	}
	if used < 36<<20 {
		t.Errorf("%d KiB are in use; the test does not fill it", used>>10)
	}
	t.Logf("%d KiB", used>>10)
	runtime.KeepAlive(s)
	runtime.KeepAlive(ids)
}

func TestObserveAllocates(t *testing.T) {
	s := newService(t, activity.Config{})
	names := make([]string, 1<<16)
	for i := range names {
		names[i] = fmt.Sprintf("client-%d", i)
	}
	i := 0
	observe := func() {
		for range 1000 {
			i++
			e := decisionAt(s.At(), "api", names[i%len(names)], activity.Outcome(i&1))
			e.Path = "/"
			s.Observe(t.Context(), &e)
		}
	}
	for range 700 { // the ring is full then
		observe()
	}
	if n := testing.AllocsPerRun(20, observe); n > 2 {
		t.Errorf("%v allocations in 1000 decisions, want none", n)
	}
}

func TestRefusals(t *testing.T) {
	s := newService(t, activity.Config{})
	s.refused(http.MethodPost, "/api/v1/stats", http.StatusMethodNotAllowed, "POST", "GET, HEAD")
	s.refused(http.MethodGet, "/api/v1/nothing", http.StatusNotFound, "nothing")
	s.refused(http.MethodGet, "/api/v1/stats?second=5", http.StatusBadRequest, "second", "seconds, rules, rule")
	s.refused(http.MethodGet, "/api/v1/stats?seconds=3601", http.StatusBadRequest, "3601", "1 to 3600")
	s.refused(http.MethodGet, "/api/v1/stats?seconds=5&seconds=6", http.StatusBadRequest, "once")
	s.refused(http.MethodGet, "/api/v1/stats?seconds=%zz", http.StatusBadRequest, "query")
	s.refused(http.MethodGet, "/api/v1/top?limit=0", http.StatusBadRequest, "1 to 100")
	s.refused(http.MethodGet, "/api/v1/denials?scope=some", http.StatusBadRequest, "some", "all or process")
	s.refused(http.MethodGet, "/api/v1/denials?before=5", http.StatusBadRequest, "scope=process")
	s.refused(http.MethodGet, "/api/v1/timeline", http.StatusBadRequest, "client")
	s.refused(http.MethodGet, "/api/v1/processes?x=1", http.StatusBadRequest, "none")
	s.refused(http.MethodHead, "/api/v1/events", http.StatusMethodNotAllowed, "HEAD", "GET")
	if w := s.ask(http.MethodHead, "/api/v1/processes"); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d %s", w.Code, w.Body)
	}
}
