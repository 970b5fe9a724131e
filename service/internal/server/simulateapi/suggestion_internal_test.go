package simulateapi

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
)

func perAddress(id, path string, most int64) rules.Rule {
	return rules.Rule{ID: id, Match: rules.Match{Paths: []string{path}}, Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(most, time.Minute)}}
}

// logOf has so many requests of each of three clients within one minute.
func logOf(path string, counts ...int) string {
	var text strings.Builder
	for i := range 50 {
		for client, count := range counts {
			if i < count {
				fmt.Fprintf(&text, "192.0.2.%d - - [01/Jan/2026:00:00:%02d +0000] \"GET %s HTTP/1.1\" 200 5 \"-\" \"-\"\n", client+1, i, path)
			}
		}
	}
	return text.String()
}

// The least limit that leaves clients alone is found of a log, of a pattern and of recent decisions, each read several times.
func TestSuggest(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := newSimulator(t, perAddress("login", "/login", 3), perAddress("other", "/other", 3))
	// The first three quarters of the time hold it; what follows is not used to find it.
	log := logOf("/login", 7, 9, 40) + `192.0.2.9 - - [01/Jan/2026:00:02:50 +0000] "GET /login HTTP/1.1" 200 5 "-" "-"` + "\n"
	status, answer, fault := simulated(t, s, `{"inForce":true,"suggest":{"share":0.6}}`, []byte(log))
	if status != http.StatusOK || len(answer.Suggestions) != 1 {
		t.Fatalf("%d %s: %+v", status, fault, answer)
	}
	if got := answer.Suggestions[0]; got.Candidate != "in force" || got.Rule != "login" || got.Values[0] != 9 || got.Clients != 3 || got.Untouched != 2 || got.UntouchedBelow[0] != 1 || got.RestClients != 1 {
		t.Errorf("the suggestion is %+v", got.Suggestion)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
	s.Recent = activity.New(activity.Config{})
	for i := range 8 {
		s.Recent.Observe(t.Context(), &stint.Event{Decision: stint.Decision{Allowed: true}, At: stint.Instant(1_800_000_000_000_000 + i*1_000_000), Rule: "other", Claim: stint.Claim{Key: "192.0.2.1"}, Method: "GET", Path: "/other"})
	}
	_, answer, fault = simulated(t, s, `{"inForce":true,"suggest":{"share":1,"rule":"other"}}`, nil)
	if len(answer.Suggestions) != 1 || answer.Suggestions[0].Values[0] != 6 || len(answer.Notes) != 2 {
		t.Errorf("of recent decisions: %s %+v", fault, answer)
	}
	_, answer, fault = simulated(t, s, `{"budget":"100/1m","suggest":{"share":0.9,"rate":true},"pattern":{"name":"steady","clients":5,"rate":50,"length":"2m"}}`, nil)
	if len(answer.Suggestions) != 2 || answer.Suggestions[0].Candidate != "token_bucket" || answer.Suggestions[1].Candidate != "leaky_bucket" {
		t.Errorf("of a pattern: %s %+v", fault, answer.Suggestions)
	}
	// Where nothing can be suggested the notes say so.
	_, answer, _ = simulated(t, s, `{"inForce":true,"suggest":{"share":1,"rule":"gone"}}`, nil)
	if len(answer.Suggestions) != 0 || !strings.Contains(strings.Join(answer.Notes, " "), "No rule with limits") {
		t.Errorf("of a rule that is not there: %+v", answer.Notes)
	}
	if status, _, fault := simulated(t, s, `{"inForce":true,"suggest":{"share":2}}`, nil); status != http.StatusBadRequest || !strings.Contains(fault, "above 0, up to 1") {
		t.Errorf("a share of 2: %d %s", status, fault)
	}
}

// A log that is made to exhaust the simulator is refused or bounded, whatever it is compressed by.
func TestHostileLogs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	zeros := make([]byte, 1<<20)
	var gzipped, zstandard bytes.Buffer
	g := must.Get(gzip.NewWriterLevel(&gzipped, gzip.BestSpeed))(t)
	z := must.Get(zstd.NewWriter(&zstandard))(t)
	unpacked, endless := 200, 30<<20 // MiB, and bytes
	if testing.Short() {
		unpacked, endless = 65, 4<<20 // still more than the bounds
	}
	for range unpacked {
		_, _ = g.Write(zeros)
		_, _ = z.Write(zeros)
	}
	_, _ = g.Close(), z.Close()
	crowd := new(bytes.Buffer) // a client a line
	clients := 300_000
	if testing.Short() {
		clients = 0 // they take a minute under the race detector
	}
	for i := range clients {
		fmt.Fprintf(crowd, "%d,10.%d.%d.%d,/login\n", 1_767_225_600+i/5000, i>>16, i>>8&255, i&255)
	}
	for _, suggest := range []string{"", `,"suggest":{"share":0.9}`} {
		for name, test := range map[string]struct {
			log    []byte
			status int
			says   string
			spent  uint64 // bytes, at most
		}{
			"a bomb by gzip":    {gzipped.Bytes(), http.StatusBadRequest, "longer than the bound", 128 << 20},
			"a bomb by zstd":    {zstandard.Bytes(), http.StatusBadRequest, "longer than the bound", 128 << 20},
			"one endless line":  {bytes.Repeat([]byte("x"), endless), http.StatusBadRequest, "longer than 1048576 bytes", 128 << 20},
			"300,000 clients":   {append([]byte("time,ip,path\n"), crowd.Bytes()...), http.StatusOK, "", 1 << 30},
			"a broken archive":  {gzipped.Bytes()[:1000], http.StatusBadRequest, "a whole file", 64 << 20},
			"an archive's head": {[]byte{0x1f, 0x8b}, http.StatusBadRequest, "a whole file", 64 << 20},
		} {
			if testing.Short() && (name == "300,000 clients" || suggest != "" && strings.HasPrefix(name, "a bomb")) {
				continue
			}
			t.Run(name+suggest, func(t *testing.T) {
				s := newSimulator(t, perAddress("login", "/login", 3))
				s.most = maxSimulatedEvents
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				status, answer, fault := simulated(t, s, `{"inForce":true`+suggest+`}`, test.log)
				runtime.ReadMemStats(&after)
				if answer.Report != nil && answer.Input != nil {
					fault += answer.Input.FirstMalformed
				}
				if status != test.status || !strings.Contains(fault, test.says) {
					t.Errorf("%d %s", status, fault)
				}
				if spent := after.TotalAlloc - before.TotalAlloc; spent > test.spent+4*uint64(len(test.log)) {
					t.Errorf("%d MiB were allocated", spent>>20)
				}
				if name == "300,000 clients" && status == http.StatusOK {
					if rule := answer.Candidates[0].Rules[0]; rule.Clients > maxSimulatedClients || rule.Sample < 2 {
						t.Errorf("%d clients were simulated, 1 in %d", rule.Clients, rule.Sample)
					}
					if said := strings.Contains(strings.Join(answer.Notes, " "), "up to 200000"); said != (suggest != "") {
						t.Errorf("the notes are %q", answer.Notes)
					}
				}
				if status, _, fault := simulated(t, s, `{"inForce":true}`, []byte(logOf("/login", 1))); status != http.StatusOK {
					t.Errorf("afterwards: %d %s", status, fault)
				}
			})
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}
