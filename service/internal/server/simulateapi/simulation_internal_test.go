package simulateapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// simulated sends a simulation, with a log if it is not empty.
func simulated(t *testing.T, s *Simulator, request string, log []byte) (status int, answer simulationAnswer, fault string) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part := must.Get(form.CreateFormField("request"))(t)
	_, _ = part.Write([]byte(request))
	if log != nil {
		part = must.Get(form.CreateFormFile("log", "access.log"))(t)
		_, _ = part.Write(log)
	}
	_ = form.Close()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	w := httptest.NewRecorder()
	if err := s.Serve(w, r); err != nil {
		p := problem.Of(err)
		return p.Status, answer, p.Detail
	}
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &answer))
	return w.Code, answer, ""
}

func newSimulator(t *testing.T, list ...rules.Rule) *Simulator {
	t.Helper()
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	s := New(Config{Stop: t.Context(), InForce: func() *rules.Set { return set }})
	s.most = 20_000
	return s
}

func TestSimulatePattern(t *testing.T) {
	status, answer, fault := simulated(t, newSimulator(t), `{"budget":"100/1m","pattern":{"name":"boundary-burst","clients":1,"rate":100,"length":"2m","window":"1m"}}`, nil)
	if status != http.StatusOK || len(answer.Candidates) != 5 {
		t.Fatalf("%d %s", status, fault)
	}
	for _, candidate := range answer.Candidates {
		if candidate.Name == "fixed_window" && candidate.Rules[0].Limits[0].Peak <= 100 || candidate.Name == "sliding_window_log" && candidate.Rules[0].Limits[0].Peak > 100 {
			t.Errorf("%s admits %d", candidate.Name, candidate.Rules[0].Limits[0].Peak)
		}
	}
}

func TestSimulateLog(t *testing.T) {
	line := `192.0.2.1 - - [01/Jan/2026:00:00:01 +0000] "GET /login HTTP/1.1" 200 5 "-" "-"` + "\n"
	login := rules.Rule{ID: "login", Match: rules.Match{Paths: []string{"/login"}}, Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(3, time.Minute)}}
	s := newSimulator(t, login)
	candidate := `{"name":"stricter","rules":"- {id: login, match: {path: /login}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 1, window: 1m}]}"}`
	status, answer, fault := simulated(t, s, `{"inForce":true,"candidates":[`+candidate+`]}`, []byte(strings.Repeat(line, 5)+"broken\n"))
	if status != http.StatusOK || answer.Input.Malformed != 1 || answer.Candidates[0].Total.Denied != 2 || answer.Candidates[1].Total.Denied != 4 {
		t.Errorf("%d %s: %+v", status, fault, answer.Report)
	}
}

func TestSimulateRecent(t *testing.T) {
	byUser := rules.Rule{ID: "user", Scope: []string{rules.PerUser}, Missing: rules.MissingSkip, Limits: []stint.Limit{stint.FixedWindow(10, time.Minute)}}
	byAddress := rules.Rule{ID: "address", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(10, time.Minute)}}
	s := newSimulator(t, byUser, byAddress)
	if status, _, fault := simulated(t, s, `{"inForce":true}`, nil); status != http.StatusBadRequest {
		t.Errorf("without recent decisions: %d %s", status, fault)
	}
	s.Recent = activity.New(activity.Config{})
	for i := range 6 {
		s.Recent.Observe(t.Context(), &stint.Event{Decision: stint.Decision{Allowed: true}, At: stint.Instant(1_800_000_000_000_000 + i), Rule: "user", Claim: stint.Claim{Key: "ann"}, Method: "GET", Path: "/"})
	}
	s.Recent.Observe(t.Context(), &stint.Event{Decision: stint.Decision{Allowed: true}, Rule: "gone"})
	candidate := `{"name":"two","rules":"- {id: user, scope: per_user, missing: skip, limits: [{algorithm: fixed_window, limit: 2, window: 1m}]}"}`
	status, answer, fault := simulated(t, s, `{"inForce":true,"candidates":[`+candidate+`]}`, nil)
	if status != http.StatusOK || answer.LeftOut != 1 || answer.Candidates[0].Total.Denied != 0 || answer.Candidates[1].Total.Denied != 4 {
		t.Errorf("%d %s: %+v", status, fault, answer)
	}
}

func TestSimulateRefuses(t *testing.T) {
	s := newSimulator(t)
	for request, want := range map[string]string{
		`{}`:                          "1 to 8",
		`{"budget":"x","pattern":{}}`: "allowed",
		`{"nothing":1}`:               "budget, inForce",
		`{"budget":"100/1m","pattern":{"name":"boundary-burst","length":"x"}}`:                          "pattern.length: duration is",
		`{"budget":"100/1m","pattern":{"length":"1m","hold":"x"}}`:                                      "pattern.hold: duration is",
		`{"budget":"100/1m","pattern":{"length":"1m","window":"x"}}`:                                    "pattern.window: duration is",
		`{"budget":"100/1m","pattern":{"name":"none","length":"1m","rate":1,"clients":1}}`:              "boundary-burst",
		`{"budget":"100/1m","pattern":{"name":"steady","length":"1d","rate":1000,"clients":1}}`:         "up to 20000 requests",
		`{"candidates":[{"name":"a","rules":"- {id: a, scope: global, limits: [{algorithm: none}]}"}]}`: "algorithm",
	} {
		if status, _, fault := simulated(t, s, request, nil); status != http.StatusBadRequest || !strings.Contains(fault, want) {
			t.Errorf("%s: %d %q, want %q", request, status, fault, want)
		}
	}
	s.busy <- struct{}{}
	if status, _, _ := simulated(t, s, `{}`, nil); status != http.StatusServiceUnavailable {
		t.Errorf("while another one runs: %d", status)
	}
}

// A body that ends early, in the request, in a log that is kept, or between the two, is a fault of the request.
func TestBodyOfASimulationEndsEarly(t *testing.T) {
	const head, request = "--b\r\nContent-Disposition: form-data; name=", "request\r\n\r\n{\"budget\":\"100/1m\",\"suggest\":{\"share\":1}}\r\n"
	for _, body := range []string{
		"--b", head, head + "request\r\n\r\n", head + "request\r\n\r\n{}",
		head + request + "--b", head + request + head, head + request + head + "log\r\n\r\n1",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path,
			io.MultiReader(strings.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF)))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		if p := problem.Of(newSimulator(t).Serve(httptest.NewRecorder(), r)); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "ended early") {
			t.Errorf("%s: %d %s", body, p.Status, p.Detail)
		}
	}
}

// slow is a body that stops coming for longer than a simulation may take.
type slow struct{}

func (slow) Read([]byte) (int, error) {
	<-time.After(2 * simulationTime)
	return 0, os.ErrDeadlineExceeded
}

// A log that does not come within the time of a simulation is told so, wherever it stops.
func TestSlowLogOfASimulation(t *testing.T) {
	const head = "--b\r\nContent-Disposition: form-data; name="
	for _, suggest := range []string{"", `,"suggest":{"share":1}`} {
		for _, log := range []string{"--b", head + "log\r\n\r\n1"} {
			synctest.Test(t, func(t *testing.T) {
				body := head + "request\r\n\r\n{\"budget\":\"100/1m\"" + suggest + "}\r\n" + log
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, io.MultiReader(strings.NewReader(body), slow{}))
				r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
				if p := problem.Of(newSimulator(t).Serve(httptest.NewRecorder(), r)); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "more than a minute") {
					t.Errorf("%s: %d %s", body, p.Status, p.Detail)
				}
			})
		}
	}
}

// TestSimulationEnds: a log in which no line is a request ends with the time of its simulation too, and one that needs more memory than there
// may be is refused.
func TestSimulationEnds(t *testing.T) {
	s := newSimulator(t, perAddress("login", "/login", 3))
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, part := range [][2]string{{"request", `{"inForce":true,"format":"combined"}`}, {"log", strings.Repeat("x\n", 1<<20)}} {
		must.Do(t, form.WriteField(part[0], part[1]))
	}
	_ = form.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, Path, &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	if err := s.Serve(httptest.NewRecorder(), r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	heap := uint64(0)
	s.heap = func() uint64 { heap += maxUnchecked; return heap }
	s.most = 1 << 20
	if status, _, fault := simulated(t, s, `{"inForce":true}`, []byte(logOf("/login", 200_000))); status != http.StatusBadRequest || !strings.Contains(fault, "more than 80 MiB") {
		t.Errorf("on a heap that only grows: %d %s", status, fault)
	}
}

// A simulation ends when its process is to stop, wherever it is by then: while requests are made, or while a search replays them.
func TestSimulationStops(t *testing.T) {
	for _, suggest := range []string{"", `,"suggest":{"share":0.9,"rate":true}`} {
		s := newSimulator(t)
		s.most = maxSimulatedEvents
		stop, cancel := context.WithCancel(t.Context())
		s.Stop = stop
		looks := 0
		s.heap = func() uint64 {
			if looks++; looks == 100 {
				cancel()
			}
			return 0
		}
		request := `{"budget":"100/1m","pattern":{"name":"poisson","clients":1000000,"rate":80000,"length":"1m"}` + suggest + `}`
		if suggest != "" {
			request = strings.ReplaceAll(strings.ReplaceAll(request, "80000", "10"), "1000000", "10")
		}
		status, _, fault := simulated(t, s, request, nil)
		if status != http.StatusServiceUnavailable || !strings.Contains(fault, "stopping") {
			t.Errorf("%q: %d %s", suggest, status, fault)
		}
		if looks > 110 {
			t.Errorf("%q: it went on for %d blocks", suggest, looks-100)
		}
	}
}

// What a simulation takes is bounded before it takes it: the clients of a pattern have no table but their weights, rules that no request
// meets take nothing, and tables that don't fit are refused by name.
func TestSimulationMemory(t *testing.T) {
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf(`{"id":"r%d","scope":"per_ip","limits":[{"algorithm":"fixed_window","limit":1,"window":"1h"}]}`, i)
	}
	encoded := must.Get(json.Marshal("[" + strings.Join(many, ",") + "]"))(t)
	var candidates []string
	for i := range 8 {
		candidates = append(candidates, fmt.Sprintf(`{"name":"c%d","rules":%s}`, i, encoded))
	}
	for _, test := range []struct {
		name, request string
		status        int
		says          string
		most          uint64 // MiB allocated in all
	}{
		{
			"a billion clients", `{"budget":"100/1m","pattern":{"name":"steady","clients":1000000000,"rate":1,"length":"1m"}}`,
			http.StatusBadRequest, "clients is 1000000000; allowed: 1 to 1000000", 4,
		},
		{"a million clients", `{"budget":"100/1m","pattern":{"name":"steady","clients":1000000,"rate":1,"length":"1m"}}`, http.StatusOK, "", 16},
		{
			"8 times 1,000 rules", `{"candidates":[` + strings.Join(candidates, ",") + `],"pattern":{"name":"steady","clients":1000000,"rate":100,"length":"2m"}}`,
			http.StatusBadRequest, "8 candidates with 8000 limits in use", 512,
		},
	} {
		s := newSimulator(t)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		status, _, fault := simulated(t, s, test.request, nil)
		runtime.ReadMemStats(&after)
		if status != test.status || !strings.Contains(fault, test.says) {
			t.Errorf("%s: %d %s", test.name, status, fault)
		}
		if spent := (after.TotalAlloc - before.TotalAlloc) >> 20; spent > test.most {
			t.Errorf("%s: %d MiB were allocated, more than %d", test.name, spent, test.most)
		}
	}
}

// A pattern meets the rules of the path, the method and the client that were asked for; the answer names the others.
func TestSimulatePatternOfRules(t *testing.T) {
	s := newSimulator(t, perAddress("login", "/login", 3), perAddress("orders", "/orders", 3))
	pattern := `{"name":"steady","rate":10,"clients":1,"length":"1m","client":"192.0.2.1","path":"/login","method":"POST","burst":2}`
	status, answer, fault := simulated(t, s, `{"inForce":true,"pattern":`+pattern+`}`, nil)
	if status != http.StatusOK {
		t.Fatal(fault)
	}
	c := answer.Candidates[0]
	if len(c.Rules) != 1 || c.Rules[0].Rule != "login" || c.Rules[0].Heaviest[0].Key != "192.0.2.1" || len(c.Unmet) != 1 || c.Unmet[0] != "orders" {
		t.Errorf("%+v, not met: %v", c.Rules, c.Unmet)
	}
	if !strings.Contains(strings.Join(answer.Notes, " "), "No request met these rules of in force: orders.") {
		t.Errorf("notes %q", answer.Notes)
	}
}

// What a pattern or a log says of holds is simulated; of recent decisions nothing is known, so that a concurrency limit is
// left out.
func TestSimulateHolds(t *testing.T) {
	places := rules.Rule{ID: "places", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.Concurrency(2)}}
	s := newSimulator(t, places)
	pattern := `{"name":"steady","rate":1,"clients":1,"length":"11s","hold":"HOLD"}`
	status, answer, fault := simulated(t, s, `{"inForce":true,"pattern":`+strings.Replace(pattern, "HOLD", "4s", 1)+`}`, nil)
	if status != http.StatusOK || answer.Candidates[0].Total.Admitted != 6 || answer.Candidates[0].Total.Denied != 4 { // 1, 2, 5, 6, 9, 10
		t.Errorf("%d %s: %+v", status, fault, answer.Report)
	}
	if status, _, fault = simulated(t, s, `{"inForce":true,"pattern":`+strings.Replace(pattern, "HOLD", "4", 1)+`}`, nil); status != http.StatusBadRequest || !strings.Contains(fault, "duration") {
		t.Errorf("%d %s", status, fault)
	}
	log := "time,key,hold\n1.0,a,5s\n2.0,a,5s\n3.0,a,"
	status, answer, fault = simulated(t, s, `{"inForce":true}`, []byte(log+"5s\n"))
	if status != http.StatusOK || answer.Candidates[0].Total.Denied != 1 {
		t.Errorf("%d %s: %+v", status, fault, answer.Report)
	}
	if status, _, fault = simulated(t, s, `{"inForce":true}`, []byte(log+"\n")); status != http.StatusBadRequest || !strings.Contains(fault, "missing in line 4") {
		t.Errorf("%d %s", status, fault)
	}
	s.Recent = activity.New(activity.Config{})
	s.Recent.Observe(t.Context(), &stint.Event{Decision: stint.Decision{Allowed: true}, At: 1_800_000_000_000_000, Rule: "places", Claim: stint.Claim{Key: "192.0.2.1"}, Method: "GET", Path: "/"})
	status, answer, fault = simulated(t, s, `{"inForce":true}`, nil)
	if status != http.StatusOK || answer.Candidates[0].Total.Admitted != 1 || !strings.Contains(strings.Join(answer.Notes, " "), "rules with a concurrency limit are left out. No request met these rules of in force: places.") {
		t.Errorf("%d %s: %+v", status, fault, answer)
	}
}

// The hops of a log that is uploaded are believed as those of requests are.
func TestSimulateBehindTrustedProxies(t *testing.T) {
	var log bytes.Buffer
	for i := range 6 {
		fmt.Fprintf(&log, "198.51.100.%d, 10.0.0.1 - - [26/Nov/2026:10:00:0%d +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n", i%3, i)
	}
	for want, trusted := range map[int64][]netip.Prefix{1: nil, 3: {netip.MustParsePrefix("10.0.0.0/8")}} {
		s := newSimulator(t)
		s.ClientIP = clientip.Config{TrustedProxies: trusted}
		status, answer, fault := simulated(t, s, `{"budget":"100/1m"}`, log.Bytes())
		if status != http.StatusOK || answer.Candidates[0].Rules[0].Clients != want {
			t.Errorf("%d %s: %+v; want %d clients", status, fault, answer.Report, want)
		}
	}
}
