package server_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/service/internal/simulate"
)

var answers = flag.Int("answers", 3000, "requests whose simulation is compared with the service's answers")

// An answer is what both say of a request, times in microseconds.
type answer struct {
	Allowed    bool     `json:"allowed"`
	Rule       string   `json:"rule"`
	Limit      int64    `json:"limit"`
	Remaining  int64    `json:"remaining"`
	RetryAfter int64    `json:"retryAfterMicros"`
	ResetAfter int64    `json:"resetAfterMicros"`
	Delay      int64    `json:"delayMicros"`
	Shadowed   []string `json:"shadowed"`
	// Waited is how long a rule had the request wait.
	Waited int64 `json:"-"`
}

// answerRules have limits of all algorithms, several for a request, one in shadow, one that bans, two that have requests
// wait, and two of which requests reserve.
func answerRules() []rules.Rule {
	at := func(id, path, scope string, limits ...stint.Limit) rules.Rule {
		return rules.Rule{ID: id, Match: rules.Match{Paths: []string{path}}, Scope: []string{scope}, Limits: limits}
	}
	shadow := at("shadow", "/a/**", rules.PerIP, stint.SlidingWindowLog(3, time.Second))
	shadow.OnExceed = rules.Shadow
	own := at("own", "/b/**", rules.PerIP, stint.FixedWindow(4, 2*time.Second))
	own.Overrides = []rules.Override{{Key: "192.0.2.1", Banned: true}, {Key: "192.0.2.2", Unlimited: true}}
	extra := at("extra", "/c/**", rules.PerIP, stint.FixedWindow(5, 10*time.Second))
	extra.Otherwise = "spare"
	waits := at("waits", "/d/**", rules.PerIP, stint.TokenBucket(1, stint.PerSecond(1)))
	waits.OnExceed, waits.MaxWait, waits.MaxWaiters = rules.Wait, time.Second, 1
	queue := at("queue", "/e/**", rules.Global, stint.SlidingWindowLog(25, 2*time.Second))
	queue.OnExceed, queue.MaxWait, queue.MaxWaiters = rules.Wait, 500*time.Millisecond, 20
	places := at("places", "/f/**", rules.PerIP, stint.Concurrency(2), stint.SlidingWindowCounter(40, 10*time.Second))
	places.Costs = []rules.Cost{{Permits: 1}, {Attribute: simulate.CostAttribute}}
	tokens := at("tokens", "/g/**", rules.PerIP, stint.TokenBucket(30, stint.PerSecond(8)), stint.FixedWindow(90, 9*time.Second))
	tokens.Cost = rules.Cost{Attribute: simulate.CostAttribute}
	return []rules.Rule{
		at("all", "/**", rules.Global, stint.TokenBucket(60, stint.PerSecond(80))), shadow, own, extra,
		at("bucket", "/a/**", rules.PerIP, stint.TokenBucket(3, stint.PerSecond(1)), stint.SlidingWindowCounter(20, 9*time.Second)),
		at("turns", "/b/**", rules.PerIP, stint.LeakyBucket(1, stint.PerSecond(1))),
		at("spare", "/z", rules.Global, stint.FixedWindow(30, 10*time.Second)),
		at("log", "/c/**", rules.PerIP, stint.SlidingWindowLog(6, 5*time.Second)),
		waits, queue, places, tokens,
	}
}

// TestSimulationAnswersAsTheService replays a log by a service, in the time of a bubble that is the log's, and by a
// simulation: requests that are decided at once, that wait, and that hold what they take for a while.
func TestSimulationAnswersAsTheService(t *testing.T) {
	set := compile(t, answerRules())
	simulated := make([]answer, *answers)
	sim := must.Get(simulate.New(simulate.Config{
		Candidates: []simulate.Candidate{{Name: "rules", Set: set}},
		Decided: func(v *simulate.Verdict) error {
			d := &v.Decision
			simulated[v.Line-2] = answer{
				v.Allowed, v.Rule, d.Limit, d.Remaining, d.RetryAfter.Microseconds(), d.ResetAfter.Microseconds(),
				d.Delay.Microseconds(), slices.Clone(v.Shadowed), v.Waited.Microseconds(),
			}
			return nil
		},
	}))(t)
	reader := must.Get(simulate.NewReader(simulate.ReaderOptions{}))(t)
	var events []simulate.Event
	must.Do(t, reader.Read(strings.NewReader(answerLog(*answers)), func(ev *simulate.Event) error {
		events = append(events, *ev)
		return sim.Add(ev)
	}))
	if report, err := sim.Finish(); err != nil || report.Events != int64(*answers) {
		t.Fatalf("%d of %d requests are decided: %v", report.Events, *answers, err)
	}
	var served []answer
	synctest.Test(t, func(t *testing.T) { served = servedAnswers(t, set, events) })
	denied, waited, held := map[string]int{}, map[string]int{}, 0
	for i := range events {
		got, want := served[i], simulated[i]
		if slices.Contains([]string{"all", "places", "tokens"}, want.Rule) {
			want.ResetAfter = got.ResetAfter // which is of what is held, and no part of a simulated decision
		}
		switch {
		case want.RetryAfter == stint.Never.Microseconds() && want.Rule == "own": // a ban, of which both say no more
			want = answer{Rule: want.Rule, RetryAfter: got.RetryAfter, ResetAfter: got.ResetAfter, Shadowed: want.Shadowed}
		case want.RetryAfter == time.Minute.Microseconds() && got.RetryAfter > 0 && got.RetryAfter <= want.RetryAfter:
			want.RetryAfter = got.RetryAfter // what a hold takes comes back within its TTL, whoever renews it
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("request %d, %+v, at %s: the service says %+v, the simulation %+v",
				i, events[i].Request, events[i].Time, got, want)
		}
		if !got.Allowed {
			denied[got.Rule]++
		}
		if got.Waited > 0 {
			waited[got.Rule]++
		}
		if got.Allowed && events[i].Hold != nil {
			held++
		}
	}
	for _, rule := range []string{"all", "own", "bucket", "turns", "log", "waits", "queue", "places", "tokens"} {
		if denied[rule] == 0 {
			t.Errorf("rule %s denied nothing: %v", rule, denied)
		}
	}
	t.Logf("denied %v, waited %v, %d held", denied, waited, held)
	if waited["waits"] == 0 || waited["queue"] == 0 || held == 0 {
		t.Errorf("waited %v, %d held", waited, held)
	}
}

// answerLog is a log of so many requests, about 100 in a second from the begin of a bubble's time, of clients some of
// which ask much more often. Those for /f and /g hold what they take.
func answerLog(n int) string {
	rng, at := rand.New(rand.NewPCG(1, 2)), 946_684_800_000_000
	var log strings.Builder
	log.WriteString("time,client,method,path,cost,hold,actual\n")
	for i := range n {
		at += 1 + rng.IntN(20_000)
		client, path := min(rng.IntN(60), rng.IntN(60)), 'a'+rng.IntN(7)
		fmt.Fprintf(&log, "%d,192.0.2.%d,GET,/%c/%d,", at, client, path, i)
		if path < 'f' {
			log.WriteString("1,,\n")
			continue
		}
		cost := 1 + rng.IntN(20)
		fmt.Fprintf(&log, "%d,%dus,%d\n", cost, rng.IntN(1_500_000), rng.IntN(2*cost))
	}
	return log.String()
}

// servedAnswers are those of a service to requests that come at their times. Those that hold end when they say. A
// request may wait while later ones are answered.
func servedAnswers(t *testing.T, set *rules.Set, events []simulate.Event) []answer {
	f := newFixture(t, func(c *server.Config) { c.Store, c.Rules = memstore.New(memstore.Config{}), set })
	served := make([]answer, len(events))
	type end struct {
		at     stint.Instant
		commit map[string]any
	}
	var ends []end
	until := func(at stint.Instant) {
		time.Sleep(time.Until(at.Time())) //nolint:forbidigo // the bubble's time
		synctest.Wait()                   // for requests that wait until then
	}
	endHolds := func(at stint.Instant) {
		for len(ends) > 0 && ends[0].at <= at {
			time.Sleep(time.Until(ends[0].at.Time())) //nolint:forbidigo // the bubble's time
			var answer struct{ Late bool }
			if askService(t, f, apipath.Commit, ends[0].commit, &answer); answer.Late {
				t.Errorf("the hold %v is lost", ends[0].commit)
			}
			ends = ends[1:]
		}
	}
	var asked sync.WaitGroup
	for i := range events {
		ev := &events[i]
		q := &ev.Request
		endHolds(ev.Time)
		until(ev.Time)
		body := map[string]any{"method": q.Method, "path": q.Path, "ip": q.Address}
		if ev.Hold == nil {
			asked.Go(func() {
				begun := time.Now()
				askService(t, f, apipath.Evaluate, body, &served[i])
				served[i].Waited = time.Since(begun).Microseconds()
			})
			synctest.Wait()
			continue
		}
		body["id"], body["attributes"] = fmt.Sprint(i), map[string]string{simulate.CostAttribute: cmp.Or(q.Attributes[simulate.CostAttribute], "1")}
		var reserved struct {
			answer
			ExpiresAt int64
			Matched   []string
		}
		askService(t, f, apipath.Reserve, body, &reserved)
		if served[i] = reserved.answer; !reserved.Allowed {
			continue
		}
		body["permits"], body["rules"], body["expiresAt"], body["ttl"] = ev.Hold.Actual, reserved.Matched, reserved.ExpiresAt, "1m"
		e := end{ev.Time.Add(ev.Hold.For), body}
		at, _ := slices.BinarySearchFunc(ends, e, func(a, b end) int { return cmp.Or(cmp.Compare(a.at, b.at), -1) })
		ends = slices.Insert(ends, at, e)
	}
	asked.Wait()
	return served
}

// askService asks the service, and decodes what it answers.
func askService(t *testing.T, service http.Handler, path string, body, answer any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Error(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	service.ServeHTTP(recorder, r)
	err = json.Unmarshal(recorder.Body.Bytes(), answer)
	if status := recorder.Code; err != nil || status != http.StatusOK && status != http.StatusTooManyRequests {
		t.Errorf("%s %s: %d %s %v", path, text, status, recorder.Body, err)
	}
}
