package served

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// Every handler gives the same answer behind every gate, apart from the header fields. The constant
// fields are those that the rule sends.
func TestGatesLeadToTheHandler(t *testing.T) {
	for name, handler := range handlers {
		itself := httptest.NewRecorder()
		handler(itself, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/items/42", nil))
		sent := map[string][]string{}
		for _, gate := range gates {
			w := httptest.NewRecorder()
			gate.wrap(t, handler).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/items/42", nil))
			if w.Code != http.StatusOK || w.Body.String() != itself.Body.String() {
				t.Errorf("%s, %s: %d %s", name, gate.name, w.Code, w.Body)
			}
			for field := range w.Header() {
				if field != "Content-Type" {
					sent[gate.name] = append(sent[gate.name], field)
				}
			}
		}
		if len(sent["bare"])+len(sent["rule-silent"]) > 0 || len(sent["fields"]) != 5 || len(sent["rule"]) != 5 {
			t.Errorf("%s: fields %v", name, sent)
		}
	}
}

// What `stint bench` prints is summed over the servers, and the longest latency counts.
func TestFiguresAdd(t *testing.T) {
	old := program
	defer func() { program = old }()
	program = written(t, "stint", "#!/bin/sh\necho '"+`{"targets": [{"decisions": 10, "admitted": 7, "denied": 3, "failed": 1, "perSecond": 100.5,
		"latencyMicros": {"p99": 5}, "findings": {"admittedBeyond": 2, "deniedTooMuch": 1}}]}`+"'\nexit 1\n")
	if err := os.Chmod(program, 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	sum := load(t)
	sum.add(figures{Decisions: 5, PerSecond: 9.5, Latency: map[string]float64{"p99": 4, "p50": 1}})
	if sum.Decisions != 15 || sum.Admitted != 7 || sum.Denied != 3 || sum.Failed != 1 || sum.PerSecond != 110 || sum.differ() != 3 ||
		sum.Latency["p99"] != 5 || sum.Latency["p50"] != 1 {
		t.Errorf("%+v", sum)
	}
}
