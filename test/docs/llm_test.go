package docs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

const llmPage, llmRESTPage = "docs/llm-gateway.md", "docs/llm-gateway-rest.md"

type chat struct {
	Model     string `json:"model"`
	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"max_tokens"`
}

type chatKey struct{} // of a context

// readChat reads the request's body, and knows the caller.
func readChat(known func(key string) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := &chat{MaxTokens: 1000}
		if key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !known(key) {
			http.Error(w, "no such API key", http.StatusUnauthorized)
			return
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(asked); err != nil || asked.MaxTokens < 1 {
			http.Error(w, "no such request", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), chatKey{}, asked)))
	})
}

func stream(generate model) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cost, said := httplimit.Cost(r.Context()), false
		cost.Set(0)
		tokens, err := generate(r.Context(), func(word string) error {
			said = true
			cost.Add(1) // as far as we know, until the model tells
			if _, err := io.WriteString(w, word+"\n"); err != nil {
				return err
			}
			return http.NewResponseController(w).Flush()
		})
		switch {
		case err == nil:
			cost.Set(tokens)
		case !said && r.Context().Err() == nil:
			cost.Cancel() // nothing ran: the request comes back, too
			http.Error(w, "the model refused", http.StatusBadGateway)
		default: // the client hung up, or the model stopped: what was said is charged
		}
	})
}

// An llmGateway is the page's, whose model a test replaces.
type llmGateway struct {
	*httptest.Server
	generate model
	ended    chan struct{} // a value for each request that is over
	limiter  *enforce.Limiter
}

func newLLMGateway(t *testing.T) *llmGateway {
	t.Helper()
	limiter, _ := byRules(t, shownRules(t, llmPage, 0))
	g := &llmGateway{ended: make(chan struct{}, 10), limiter: limiter}
	known := func(key string) bool { return strings.HasPrefix(key, "key-of-") }
	generate := func(ctx context.Context, say func(string) error) (int64, error) { return g.generate(ctx, say) }
	limits := must.Get(httplimit.New(httplimit.Config{
		Rules: limiter, // an enforce.Limiter with the rules
		Describe: func(r *http.Request, q *rules.Request) error {
			asked, _ := r.Context().Value(chatKey{}).(*chat)
			q.APIKey, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			most := int64(len(asked.Prompt)) + asked.MaxTokens // a token is a byte or more
			q.Attributes = map[string]string{"model": asked.Model, "tokens": strconv.FormatInt(most, 10)}
			return nil
		},
		Reserve: &stint.Hold{TTL: 2 * time.Minute, OnExpiry: stint.ChargeOnExpiry},
	}))(t)
	handler := readChat(known, limits.Wrap(stream(generate)))
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { g.ended <- struct{}{} }()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

// ask begins a stream, whose body is read by read.
func (g *llmGateway) ask(t *testing.T, key, body string, read func(io.Reader)) *http.Response {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response := must.Get(http.DefaultClient.Do(request))(t)
	read(response.Body)
	_ = response.Body.Close()
	return response
}

// left is what remains of each limit of a client, named as overrides name it: tokens, places and requests of the rule llm,
// or tokens of the rule large.
func (g *llmGateway) left(t *testing.T, client string) string {
	t.Helper()
	list, err := g.limiter.ExplainClient(t.Context(), client)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d rules count %s, %v", len(list), client, err)
	}
	var left []string
	for _, claim := range append([]stint.Claim{list[0].Claim}, list[0].And...) {
		for _, limit := range claim.Policy.Limits() {
			left = append(left, fmt.Sprint(limit.Name, " ", list[0].Each[len(left)].Remaining))
		}
	}
	return strings.Join(left, ", ")
}

// words is a model that says so many words, and knows that they were so many tokens.
func words(n int, tokens int64) model {
	return func(_ context.Context, say func(string) error) (int64, error) {
		for range n {
			if err := say("word"); err != nil {
				return 0, err
			}
		}
		return tokens, nil
	}
}

// The page's gateway charges what a stream used: to its end, until its client hung up, and nothing if nothing ran.
func TestLLMGateway(t *testing.T) {
	g := newLLMGateway(t)
	expect := func(after, want string) {
		t.Helper()
		if got := g.left(t, "key-of-ann"); got != want {
			t.Errorf("after %s ann has %s, want %s", after, got, want)
		}
	}
	ask := func(want int, key, body string, read func(io.Reader)) http.Header {
		t.Helper()
		response := g.ask(t, key, body, read)
		<-g.ended
		if response.StatusCode != want {
			t.Errorf("%s of %s: status %d, want %d", body, key, response.StatusCode, want)
		}
		return response.Header
	}
	const small = `{"model": "small", "prompt": "once upon a time", "max_tokens": 500}`
	g.generate = words(30, 40)
	header := ask(http.StatusOK, "key-of-ann", small, drain)
	if got, want := header.Get("RateLimit-Policy"), `"at-once";q=2`; !strings.HasPrefix(got, want) {
		t.Errorf("RateLimit-Policy is %q", got)
	}
	expect("a whole stream", "tokens 99960, at-once 2, requests 19")

	g.generate = func(ctx context.Context, say func(string) error) (int64, error) {
		if err := say("one"); err != nil {
			return 0, err
		}
		<-ctx.Done() // the client hangs up
		return 0, ctx.Err()
	}
	ask(http.StatusOK, "key-of-ann", small, func(r io.Reader) { _, _ = r.Read(make([]byte, 1)) })
	expect("a client that hung up", "tokens 99959, at-once 2, requests 18")

	g.generate = func(context.Context, func(string) error) (int64, error) { return 0, errors.New("no") }
	ask(http.StatusBadGateway, "key-of-ann", small, drain)
	expect("a model that refused", "tokens 99959, at-once 2, requests 18")

	g.generate = words(1, 7000)
	ask(http.StatusOK, "key-of-ann", `{"model": "large", "max_tokens": 7000}`, drain)
	ask(http.StatusOK, "key-of-ann", `{"model": "large", "max_tokens": 7000}`, drain)
	ask(http.StatusTooManyRequests, "key-of-ann", `{"model": "large", "max_tokens": 7000}`, drain)
	expect("two streams of the large model", "tokens 85959, at-once 2, requests 16")
	if got := g.left(t, "key-of-ann|large"); got != "tokens 6000" {
		t.Errorf("of the large model ann has %s", got)
	}
	ask(http.StatusOK, "key-of-ann", `{"model": "small", "max_tokens": 7000}`, drain)

	if header := ask(http.StatusTooManyRequests, "key-of-ann", `{"model": "small", "max_tokens": 200000}`, drain); header.Get("Retry-After") != "" {
		t.Errorf("who asks for more than there can be is told to come again: %v", header)
	}
	ask(http.StatusOK, "key-of-a-pro", `{"model": "small", "max_tokens": 200000}`, drain)
	ask(http.StatusUnauthorized, "somebody", small, drain)
	ask(http.StatusBadRequest, "key-of-ann", "{", drain)
}

// The page's commands print what it says, and what it says of an end in another order and of a renewal is so.
func TestLLMByREST(t *testing.T) {
	s := serve(t, "rules_from: rules.yaml\n", map[string]string{"rules.yaml": blocks(t, llmPage, "yaml")[0]})
	consoles := blocks(t, llmRESTPage, "console")
	if n := s.session(t, consoles...); n != 4 {
		t.Errorf("the page has %d commands", n)
	}
	reserve, _, _ := strings.Cut(strings.ReplaceAll(consoles[0], "\\\n", ""), "\n")
	reserve = strings.Replace(strings.TrimPrefix(reserve, "$ "), "7f3a", "e5d0", 1)
	commit, _, _ := strings.Cut(strings.ReplaceAll(consoles[1], "\\\n", ""), "\n")
	commit = strings.Replace(strings.TrimPrefix(commit, "$ "), "7f3a", "e5d0", 1)
	cancel := strings.NewReplacer("/commit", "/cancel", `, "permits": 120`, "").Replace(commit)
	for _, step := range []struct{ command, want string }{
		{reserve, `…"replayed":false,…`},
		{reserve, `…"replayed":true,…`},
		{"stint holds key-of-ann", "…e5d0…"},
		{strings.Replace(cancel, `"large", "llm"`, `"llm", "large"`, 1), `…"matched":["large","llm"],…"applied":-4000,…`},
		{"curl -s localhost:8079/api/v1/clients/key-of-ann", `…"remaining":99880,…"remaining":2,…"remaining":19,…`},
	} {
		s.expect(t, step.command, step.want)
	}
}

// The page's gateway in Python charges streams what they used, also one whose client hangs up, and is denied what is too much.
func TestLLMInPython(t *testing.T) {
	s := serve(t, "rules_from: rules.yaml\n", map[string]string{"rules.yaml": blocks(t, llmPage, "yaml")[0]})
	program := strings.Replace(blocks(t, llmRESTPage, "python")[0], "127.0.0.1:8080", s.api, 1)
	program = strings.Replace(program, "timeout=0.2", "timeout=60", 1) // since the machine that runs this may be busy
	s.write(t, "gateway.py", program+`

def generate():
    for i in range(1, 101):
        yield "word", i

print(len(list(stream("key-of-ann", "large", 4000, generate))))
half = stream("key-of-ann", "large", 4000, generate)
print([next(half) for _ in range(20)][-1])
half.close()  # as the client hangs up
try:
    next(stream("key-of-ann", "large", 19900, generate))
except Denied as denied:
    status, body = denied.args
    print(status, body["reason"], body["remaining"])
`)
	s.expect(t, "python3 gateway.py 2>&1", "100\nword\n429 limit 19880")
	s.expect(t, "curl -s localhost:8079/api/v1/clients/key-of-ann", `…"name":"tokens",…"remaining":99880,…"name":"at-once",…"remaining":2,…`)
}
