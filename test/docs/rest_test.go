package docs_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const restPage = "docs/reference/rest.md"

// settled is an answer without what depends on the time at which it was given.
func settled(t *testing.T, answer string) any {
	t.Helper()
	answer = regexp.MustCompile(`"(at|windowStart|\w+Micros|\w+Seconds)": ?[1-9]\d*`).ReplaceAllString(answer, `"$1":1`)
	var value any
	if err := json.Unmarshal([]byte(answer), &value); err != nil {
		t.Fatalf("%v in %s", err, answer)
	}
	return value
}

// The page's checks, by the policy that it shows, are answered as it says.
func TestREST(t *testing.T) {
	configurations, answers := blocks(t, restPage, "yaml"), blocks(t, restPage, "json")
	detailed := groups("`GET (check[^`]*details=true)`", read(t, restPage)[restPage])
	if len(configurations) != 1 || len(answers) != 2 || len(detailed) == 0 {
		t.Fatalf("%d configurations, %d answers and %d checks with details", len(configurations), len(answers), len(detailed))
	}
	s := serve(t, configurations[0], nil)
	const check = "localhost:8080/api/v1/rate-limit/"
	for i, request := range []string{"check?key=user:123&permits=5", detailed[0]} {
		got, want := settled(t, s.shell(t, "curl -s '"+check+request+"'")), settled(t, answers[i])
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is answered\n%v\nand the page says\n%v", request, got, want)
		}
	}
	if n := s.session(t, blocks(t, restPage, "console")...); n != 1 {
		t.Errorf("%d commands were found", n)
	}

	// A look at what remains says what a check of its permits would be answered.
	const log = "key=user:10&algorithm=SLIDING_WINDOW_LOG&permits="
	s.shell(t, "curl -s '"+check+"check?"+log+"90'")
	for permits, answer := range map[string]string{"10": `{…"allowed":true,"retryAfterSeconds":0,…`, "11": `{…"allowed":false,"retryAfterSeconds":60,…`} {
		s.expect(t, "curl -s '"+check+"remaining?"+log+permits+"'", answer)
	}
	// A bad element is named, and nothing is taken.
	const faulty = `check -d '[{"key": "user:9", "policy": "api"}, {"key": "user:9", "policy": "none"}]'`
	s.expect(t, "curl -si "+check+faulty, "HTTP/1.1 400 Bad Request\n{…element 1: policy is…")
	s.expect(t, "curl -s '"+check+"remaining?policy=api&key=user:9'", `{…"remaining":20,…`)
	// An array has no field of a limit, and an X-Request-ID.
	array := s.shell(t, `curl -si `+check+`check -d '[{"key": "user:9"}]'`)
	if strings.Contains(strings.ToLower(array), "ratelimit") || !strings.Contains(array, "\nX-Request-Id: ") {
		t.Errorf("an array is answered %s", array)
	}
}
