package docs_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
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
	if len(configurations) != 1 || len(answers) != 2 {
		t.Fatalf("%d configurations and %d answers", len(configurations), len(answers))
	}
	s := serve(t, configurations[0], nil)
	const check = "localhost:8080/api/v1/rate-limit/"
	first := s.shell(t, "curl -s '"+check+"check?key=user:123&permits=5'")
	if got, want := settled(t, first), settled(t, answers[0]); !reflect.DeepEqual(got, want) {
		t.Errorf("a check is answered\n%v\nand the page says\n%v", got, want)
	}
	text := must.Get(os.ReadFile(restPage))(t)
	request := regexp.MustCompile("`GET (check[^`]*details=true)`").FindStringSubmatch(string(text))
	if request == nil {
		t.Fatal("the page has no check with details")
	}
	detailed := s.shell(t, "curl -s '"+check+request[1]+"'")
	if got, want := settled(t, detailed), settled(t, answers[1]); !reflect.DeepEqual(got, want) {
		t.Errorf("a check with details is answered\n%v\nand the page says\n%v", got, want)
	}
	if n := s.session(t, blocks(t, restPage, "console")...); n != 1 {
		t.Errorf("%d commands were found", n)
	}

	// A look at what remains says what a check of its permits would be answered.
	const log = "key=user:10&algorithm=SLIDING_WINDOW_LOG&permits="
	s.shell(t, "curl -s '"+check+"check?"+log+"90'")
	for permits, answer := range map[string]string{"10": `{…"allowed":true,"retryAfterSeconds":0,…`, "11": `{…"allowed":false,"retryAfterSeconds":60,…`} {
		expectLines(t, "remaining", s.shell(t, "curl -s '"+check+"remaining?"+log+permits+"'"), answer)
	}
	// A bad element is named, and nothing is taken.
	bad := s.shell(t, `curl -si `+check+`check -d '[{"key": "user:9", "policy": "api"}, {"key": "user:9", "policy": "none"}]'`)
	expectLines(t, "an array with a fault", bad, "HTTP/1.1 400 Bad Request\n{…element 1: policy is…")
	expectLines(t, "nothing was taken", s.shell(t, "curl -s '"+check+"remaining?policy=api&key=user:9'"), `{…"remaining":20,…`)
	// An array has no field of a limit, and an X-Request-ID.
	array := s.shell(t, `curl -si `+check+`check -d '[{"key": "user:9"}]'`)
	if strings.Contains(strings.ToLower(array), "ratelimit") || !strings.Contains(array, "\nX-Request-Id: ") {
		t.Errorf("an array is answered %s", array)
	}
}

// The settings leave out the fields that the page says, and no other.
func TestHeaderSettings(t *testing.T) {
	const all = "X-Ratelimit-Limit X-Ratelimit-Remaining X-Ratelimit-Reset Ratelimit-Policy Ratelimit Retry-After X-Request-Id"
	for setting, without := range map[string]string{
		"x_ratelimit": "X-Ratelimit-Limit X-Ratelimit-Remaining X-Ratelimit-Reset", "ietf": "Ratelimit-Policy Ratelimit", "retry_after": "Retry-After",
	} {
		s := serve(t, "headers: {"+setting+": false}\ndefaults: {token_bucket: {capacity: 1, refill: 1/1h}}\n", nil)
		const check = "curl -si 'localhost:8080/api/v1/rate-limit/check?key=a'"
		s.shell(t, check)
		denied := s.shell(t, check)
		for field := range strings.FieldsSeq(all) {
			has := strings.Contains(denied, "\n"+field+": ")
			left := strings.Contains(" "+without+" ", " "+field+" ")
			if has == left {
				t.Errorf("headers.%s: false, and %s is there: %t\n%s", setting, field, has, denied)
			}
		}
	}
}
