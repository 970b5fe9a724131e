package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Every handler answers the same behind every gate, but for the fields; the constant ones are
// those that the rule sends.
func TestGatesLeadToTheHandler(t *testing.T) {
	for _, handler := range handlers {
		var bare string
		sent := map[string][]string{}
		for _, gate := range gates {
			gated, err := gate.make(handler.make)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			gated.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/items/42", nil))
			if gate.name == "bare" {
				bare = w.Body.String()
			}
			if w.Code != http.StatusOK || w.Body.String() != bare {
				t.Errorf("%s, %s: %d %s", handler.name, gate.name, w.Code, w.Body)
			}
			for name := range w.Header() {
				if name != "Content-Type" {
					sent[gate.name] = append(sent[gate.name], name)
				}
			}
		}
		if len(sent["bare"])+len(sent["rule-silent"]) > 0 || len(sent["fields"]) != 5 || len(sent["rule"]) != 5 {
			t.Errorf("%s: fields %v", handler.name, sent)
		}
	}
}
