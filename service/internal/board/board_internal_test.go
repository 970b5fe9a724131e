package board

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/activity"
)

// A sentEvent is one that a service sends.
type sentEvent struct {
	kind string
	data []byte
}

// sent is an event with a document.
func sent(t *testing.T, kind string, document any) sentEvent {
	t.Helper()
	data := must.Get(json.Marshal(document))(t)
	return sentEvent{kind: kind, data: data}
}

// boardOf is a board after a snapshot and a second.
func boardOf(t *testing.T) *Board {
	t.Helper()
	series := func(from int64, admitted, denied, shadow uint32) activity.Series {
		return activity.Series{From: from, Step: 1, Admitted: []uint32{admitted}, Denied: []uint32{denied}, ShadowDenied: []uint32{shadow}}
	}
	b := &Board{}
	for _, e := range []sentEvent{
		sent(t, "snapshot", activity.Snapshot{
			Stats:   activity.Stats{Process: "a", At: 1_790_000_000_000_000, Store: activity.Store{State: "up"}},
			Denials: []activity.Denial{{Seq: 1, Rule: "login", Client: "mallory", Reason: "limit"}},
			Shared: activity.Shared{
				Processes: activity.Processes{Scope: activity.ScopeAll, Processes: []activity.ProcessStatus{{}, {Rates: activity.Rates{Admitted: 70}}}},
				Top: activity.Top{
					Scope: activity.ScopeAll, Processes: 2, Clients: []activity.TopItem{{Rule: "api", Client: "alice", Count: 77}},
					Denied:       []activity.TopItem{{Rule: "login", Client: "mall\x1b[2Jory", Count: 33}},
					ShadowDenied: []activity.TopItem{{Rule: "trial", Client: "carol", Count: 21}},
				},
			},
		}),
		sent(t, "second", activity.Tick{
			At: 1_790_000_001_000_000, Store: activity.Store{State: "unreachable", Since: stint.Instant(1_790_000_000_000_000)},
			Totals: activity.Totals{Series: series(1_790_000_000, 50, 25, 5), Degraded: []uint32{4}, StoreMicros: []uint32{1500}},
			Rules: []activity.RuleSeries{
				{Rule: "api", Seconds: series(1_790_000_000, 40, 5, 0)},
				{Rule: "login", Seconds: series(1_790_000_000, 10, 20, 0)},
				{Rule: "trial", Seconds: series(1_790_000_000, 30, 0, 5)},
			},
			Denials: []activity.Denial{{Seq: 2, At: 1_790_000_000_500_000, Rule: "api", Client: "bob", Reason: "banned"}, {Seq: 3, Rule: "trial", Client: "dave", Shadow: true}, {Seq: 1, Rule: "login", Client: "mallory", Reason: "limit", Count: 7, Method: "POST", Path: "/login"}},
			Changes: []activity.Change{{Seq: 1, Kind: "store", State: "unreachable", Detail: "no connection"}},
		}),
	} {
		must.Do(t, b.Apply(e.kind, e.data, nil))
	}
	return b
}

// rulesOf are the first words of the lines of rules, as they are drawn; > marks the one that is selected.
func rulesOf(screen string) string {
	var found []string
	for _, match := range regexp.MustCompile(`(?m)^([> ]) ([a-z]+)(?: \(shadow\))? +[0-9.]+ +[0-9.]+ +[0-9.]+ %`).FindAllStringSubmatch(screen, -1) {
		found = append(found, strings.TrimSpace(match[1])+match[2])
	}
	return strings.Join(found, " ")
}

func TestBoard(t *testing.T) {
	b := boardOf(t)
	screen := b.Draw(120, 40)
	for _, want := range []string{
		"this process (a): 10/s admitted, 5/s denied (33.3 %), 4/s degraded", "all 2 processes: 70/s admitted", "store unreachable since ", "1.5 ms",
		"no connection", "trial (shadow)", "TOP CLIENTS of 5 minutes (all 2 processes)", "77 api", "33 login            mall?[2Jory", "sort: denied", "█",
		"21 trial (shadow)   carol", "trial (shadow)           dave",
		"7 login                    mallory                        limit        POST /login",
	} {
		if !strings.Contains(screen, want) {
			t.Errorf("it does not say %q:\n%s", want, screen)
		}
	}
	if strings.Count(screen, "mallory") != 1 || strings.Index(screen, "bob") > strings.Index(screen, "mallory") {
		t.Errorf("the denials are not those of the events, the newest first:\n%s", screen)
	}
	for _, line := range strings.Split(b.Draw(40, 12), "\n") {
		if n := len([]rune(line)); n > 40 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if n := strings.Count(b.Draw(40, 12), "\n"); n > 11 {
		t.Errorf("%d lines, want 12", n+1)
	}
	if want := regexp.MustCompile(`^20\S+Z process=a admitted=50 denied=25 degraded=4 store=unreachable store_ms=1.5 processes=2 top_denied="mall\\x1b\[2Jory" `); !want.MatchString(b.Line()) {
		t.Errorf("the line is %s", b.Line())
	}
}

func TestBoardKeys(t *testing.T) {
	b := boardOf(t)
	const up, down = 'A' | 0x80, 'B' | 0x80
	for _, step := range []struct {
		keys  string
		want  Action
		rules string
	}{
		{"", None, ">login api trial"},
		{"s", None, ">api trial login"},
		{"s", None, ">api login trial"},
		{"s" + string([]byte{down, down, down}), None, "login api >trial"},
		{string([]byte{up}), None, "login >api trial"},
		{"/quilogin", None, ""},
		{"\r", None, ""},
		{"/lof" + string([]byte{127}), None, ">login"},
		{"\re", Explain, ">login"},
		{"/\r", None, ">login api trial"},
		{"q", Quit, ">login api trial"},
		{"/" + string([]byte{3}), Quit, ">login api trial"},
	} {
		done := None
		drawn := rulesOf(b.Draw(120, 40))
		for _, key := range []byte(step.keys) {
			done = b.Key(key)
			drawn = rulesOf(b.Draw(120, 40))
		}
		if drawn != step.rules {
			t.Errorf("after %q the rules are %q, want %q", step.keys, drawn, step.rules)
		}
		if done != step.want {
			t.Errorf("%q asks for %v, want %v", step.keys, done, step.want)
		}
	}
	// Rules that decided nothing for so long are gone.
	late := activity.Tick{Totals: activity.Totals{Series: activity.Series{From: 1_790_000_100, Step: 1, Admitted: []uint32{0}, Denied: []uint32{0}, ShadowDenied: []uint32{0}}}}
	e := sent(t, "second", late)
	if err := b.Apply(e.kind, e.data, nil); err != nil || len(b.rules) != 0 {
		t.Errorf("%v, rules %v", err, b.rules)
	}
	if err := b.Apply("second", []byte("{"), nil); err == nil {
		t.Error("an event that is no JSON is no error")
	}
}
