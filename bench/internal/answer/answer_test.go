package answer

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFetchKeepsTheSpellingOfTheWire(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-RateLimit-Limit"] = []string{"100"}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte("no"))
	}))
	defer server.Close()
	a, err := Fetch(t.Context(), strings.TrimPrefix(server.URL, "http://"), "/")
	if err != nil {
		t.Fatal(err)
	}
	spelled := false
	for _, f := range a.Fields {
		spelled = spelled || f == Field{"X-RateLimit-Limit", "100"}
	}
	if a.Status != 429 || string(a.Body) != "no" || !spelled {
		t.Errorf("got %+v", a)
	}
}

func TestSameShape(t *testing.T) {
	a := Answer{200, []Field{{"A", "1"}}, []byte("body")}
	for name, b := range map[string]Answer{
		"status": {429, []Field{{"A", "1"}}, []byte("body")},
		"field":  {200, []Field{{"B", "1"}}, []byte("body")},
		"sizes":  {200, []Field{{"A", "1"}}, []byte("a longer body")},
	} {
		if err := SameShape(a, b); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := SameShape(a, Answer{200, []Field{{"A", "12"}}, []byte("BODY")}); err != nil {
		t.Error(err)
	}
}
