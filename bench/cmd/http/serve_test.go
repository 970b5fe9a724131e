package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Every handler gives the same answer behind every gate, apart from the header fields. The constant
// fields are those that the rule sends.
func TestGatesLeadToTheHandler(t *testing.T) {
	for name, handler := range handlers {
		itself := httptest.NewRecorder()
		handler(itself, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/items/42", nil))
		sent := map[string][]string{}
		for gateName, gate := range gates {
			gated, err := gate(handler)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			gated.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/items/42", nil))
			if w.Code != http.StatusOK || w.Body.String() != itself.Body.String() {
				t.Errorf("%s, %s: %d %s", name, gateName, w.Code, w.Body)
			}
			for name := range w.Header() {
				if name != "Content-Type" {
					sent[gateName] = append(sent[gateName], name)
				}
			}
		}
		if len(sent["bare"])+len(sent["rule-silent"]) > 0 || len(sent["fields"]) != 5 || len(sent["rule"]) != 5 {
			t.Errorf("%s: fields %v", name, sent)
		}
	}
}
