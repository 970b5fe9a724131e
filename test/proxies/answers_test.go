//go:build linux

package proxies

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// answerInstead takes the place of stint: it answers as the target of the request says that it is asked about, with ?stint=STATUS,
// and with Retry-After, unless that is 200.
func (s *stack) answerInstead() {
	s.t.Helper()
	s.kill("stint")
	s.serveAt(stintPort, func(w http.ResponseWriter, r *http.Request) {
		target, err := url.Parse(r.Header.Get("X-Original-Uri") + r.Header.Get("X-Forwarded-Uri"))
		if err != nil {
			s.t.Error(err)
			return
		}
		status, err := strconv.Atoi(target.Query().Get("stint"))
		if err != nil {
			s.t.Error(err)
			return
		}
		if status != http.StatusOK {
			w.Header().Set("Retry-After", "7")
		}
		w.WriteHeader(status)
	})
}

// Clients get the statuses of stint, and when to come back: nginx's auth_request knows no others than 2xx, 401 and 403, and
// makes 500 of them.
func TestAnswersOfStint(t *testing.T) {
	for example, statuses := range map[string]map[int]int{
		"nginx": {200: 200, 400: 400, 403: 429, 429: 503, 500: 503, 503: 503},
		"caddy": {200: 200, 400: 400, 403: 403, 429: 429, 500: 500, 503: 503},
	} {
		t.Run(example, func(t *testing.T) {
			s := start(t, example)
			before := s.served()
			s.answerInstead()
			for answer, status := range statuses {
				retry := "7"
				if answer == 200 {
					retry = ""
				}
				if r := s.answered(status, call{target: "/?stint=" + strconv.Itoa(answer)}); r.header.Get("Retry-After") != retry {
					t.Errorf("of %d the client is told %d %v", answer, r.status, r.header)
				}
			}
			if n := s.served() - before; n != 1 {
				t.Errorf("the application saw %d requests, want 1", n)
			}
		})
	}
}

// Without its two places for refusals, nginx makes 403 and 500 of all that.
func TestAnswersOfStintAreLost(t *testing.T) {
	plain := read(t, asItStands("nginx"))
	for _, line := range []string{"error_page 403 = @denied;", "error_page 500 = @undecided;"} {
		if !strings.Contains(plain, line) {
			t.Fatalf("nginx.conf has no %q", line)
		}
		plain = strings.Replace(plain, line, "", 1)
	}
	s := start(t, "nginx", write(t, "nginx.conf", patient(plain)))
	s.answerInstead()
	for answer, status := range map[int]int{400: 500, 403: 403, 429: 500, 503: 500} {
		s.answered(status, call{target: "/?stint=" + strconv.Itoa(answer)})
	}
}

// A request with an ambiguous path is the client's mistake, and it is told so.
func TestAmbiguousPaths(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := startWith(t, []string{bin(), "STINT_AMBIGUOUS_PATHS=reject"}, example, patiently(t, example))
		ordinary := []string{"/login", "/%6cogin/", "/login?next=//x/../y%2Fz", "/caf%C3%A9", "/a%20b/"}
		for _, target := range ordinary {
			if r := s.answered(200, call{method: http.MethodPost, target: target}); r.seen.URI != target {
				t.Errorf("of %s the application saw %s", target, r.seen.URI)
			}
		}
		for _, target := range []string{"//login", "//x/login", `/\x/login`, "/x/%2e%2e/login", "/login%2F", "/a//b"} {
			s.answered(400, call{method: http.MethodPost, target: target})
		}
		if n := s.served(); n != len(ordinary) {
			t.Errorf("the application saw %d requests, want %d", n, len(ordinary))
		}
	})
}

// A rule that is closed while the store is unreachable answers 503, which is the client's too.
func TestStoreAwayClosed(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := startWith(t, []string{
			bin(), "STINT_STORE=redis://127.0.0.1:1", "STINT_ON_STORE_FAILURE=closed", // where nobody listens
		}, example, patiently(t, example))
		for range 5 {
			s.answered(503, login)
		}
		if n := s.served(); n != 0 {
			t.Errorf("the application saw %d requests, want none", n)
		}
	})
}
