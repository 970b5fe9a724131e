package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
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
}

// answerRules have limits of all algorithms that take, several for a request, one in shadow and one that bans.
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
	return []rules.Rule{
		at("all", "/**", rules.Global, stint.TokenBucket(60, stint.PerSecond(72))), shadow, own, extra,
		at("bucket", "/a/**", rules.PerIP, stint.TokenBucket(3, stint.PerSecond(1)), stint.SlidingWindowCounter(20, 9*time.Second)),
		at("turns", "/b/**", rules.PerIP, stint.LeakyBucket(1, stint.PerSecond(1))),
		at("spare", "/d", rules.Global, stint.FixedWindow(30, 10*time.Second)),
		at("log", "/c/**", rules.PerIP, stint.SlidingWindowLog(6, 5*time.Second)),
	}
}

// TestSimulationAnswersAsTheService replays a log by a service, whose clock is the log's, and by a simulation.
func TestSimulationAnswersAsTheService(t *testing.T) {
	set, now := compile(t, answerRules()), time.UnixMicro(1_790_000_000_000_000)
	f := newFixture(t, func(c *server.Config) {
		c.Store, c.Rules = memstore.New(memstore.Config{Now: func() time.Time { return now }}), set
	})
	service := httptest.NewServer(f.Handler)
	defer service.Close()

	var simulated []answer
	sim, err := simulate.New(simulate.Config{
		Candidates: []simulate.Candidate{{Name: "rules", Set: set}},
		Decided: func(v *simulate.Verdict) error {
			d := &v.Decision
			simulated = append(simulated, answer{
				v.Allowed, v.Rule, d.Limit, d.Remaining, d.RetryAfter.Microseconds(), d.ResetAfter.Microseconds(),
				d.Delay.Microseconds(), slices.Clone(v.Shadowed),
			})
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := simulate.NewReader(simulate.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var events []simulate.Event
	err = reader.Read(strings.NewReader(answerLog(*answers)), func(ev *simulate.Event) error {
		events = append(events, *ev)
		return sim.Add(ev)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Finish(); err != nil || len(simulated) != *answers {
		t.Fatalf("%d of %d requests are decided: %v", len(simulated), *answers, err)
	}
	denied := map[string]int{}
	for i := range events {
		now = events[i].Time.Time()
		got, want := serviceAnswer(t, service, &events[i].Request), simulated[i]
		if want.RetryAfter == stint.Never.Microseconds() { // a ban, of which both say no more
			want = answer{Rule: want.Rule, RetryAfter: got.RetryAfter, ResetAfter: got.ResetAfter, Shadowed: want.Shadowed}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("request %d at %s: the service says %+v, the simulation %+v", i, events[i].Time, got, want)
		}
		if denied[got.Rule]++; got.Allowed {
			denied[got.Rule]--
		}
	}
	for _, rule := range []string{"all", "own", "bucket", "turns", "log"} {
		if denied[rule] == 0 {
			t.Errorf("rule %s denied nothing: %v", rule, denied)
		}
	}
}

// answerLog is a log of so many requests, about 100 in a second, of clients some of which ask much more often.
func answerLog(n int) string {
	rng, at := rand.New(rand.NewPCG(1, 2)), 1_790_000_000_000_000
	var log strings.Builder
	log.WriteString("time,client,method,path\n")
	for i := range n {
		at += rng.IntN(20_000)
		client := min(rng.IntN(60), rng.IntN(60))
		fmt.Fprintf(&log, "%d,192.0.2.%d,GET,/%c/%d\n", at, client, 'a'+rng.IntN(3), i)
	}
	return log.String()
}

func serviceAnswer(t *testing.T, service *httptest.Server, r *rules.Request) (got answer) {
	t.Helper()
	body, err := json.Marshal(api.EvaluateRequest{Method: r.Method, Path: r.Path, IP: r.Address})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, service.URL+evaluate, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := service.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil || response.StatusCode != http.StatusOK && response.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("%s: %s %v", response.Status, text, err)
	}
	return got
}
