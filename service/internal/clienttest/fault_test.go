package clienttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/storetest"
)

// answer always says the same.
func answer(status int, media, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

const good = `{"allowed":true,"key":"k","algorithm":"TOKEN_BUCKET","limit":100,"remaining":99,"source":"store"}`

// TestStrangeAnswers: what no service would say is an error, never a decision.
func TestStrangeAnswers(t *testing.T) {
	const json = "application/json"
	with := func(old, replacement string) string { return strings.Replace(good, old, replacement, 1) }
	for name, row := range map[string]struct {
		status      int
		media, text string
	}{
		"html":               {200, "text/html", "<html>"},
		"html, denied":       {429, "text/html", "<html>"},
		"broken":             {200, json, good[:len(good)-1]},
		"two":                {200, json, good + good},
		"nothing":            {200, json, ""},
		"another object":     {200, json, "{}"},
		"a list":             {200, json, "[]"},
		"null":               {200, json, "null"},
		"created":            {201, json, good},
		"moved":              {302, json, good},
		"allowed, 429":       {429, json, good},
		"denied, 200":        {200, json, with("true", "false")},
		"algorithm":          {200, json, with("TOKEN", "SAND")},
		"source":             {200, json, with(`"store"`, `"thin air"`)},
		"limit":              {200, json, with(":100", ":0")},
		"remaining":          {200, json, with(":99", ":-1")},
		"reset":              {200, json, with("{", `{"resetAfterMicros":-1,`)},
		"reset overflows":    {200, json, with("{", `{"resetAfterMicros":9223372036854776,`)},
		"delay":              {200, json, with("{", `{"delayMicros":-1,`)},
		"retry":              {429, json, with("{", `{"retryAfterMicros":-2,`)},
		"allowed, but later": {200, json, with("{", `{"retryAfterMicros":1,`)},
		"broken problem":     {400, apipath.ProblemType, "{"},
		"error page":         {503, "text/plain", "away"},
		"too long":           {200, json, good + strings.Repeat(" ", 4<<20)},
	} {
		c := open(t, handle(t, answer(row.status, row.media, row.text)).URL, client.Options{})
		if a, err := c.Check(t.Context(), api.Request{Key: "k"}); !errors.Is(err, stint.ErrUnavailable) || !reflect.ValueOf(a).IsZero() {
			t.Errorf("%s: %+v, %v, want ErrUnavailable", name, a, err)
		}
	}
	if a, err := open(t, handle(t, answer(200, json+"; charset=utf-8", good)).URL, client.Options{}).Check(t.Context(), api.Request{Key: "k"}); err != nil || !a.Allowed {
		t.Errorf("the answer that they are made from: %+v, %v", a, err)
	}
	ctx, one := t.Context(), api.Request{Key: "k"}
	remaining := func(c *client.Client) error { _, err := c.Remaining(ctx, one); return err }
	settle := func(c *client.Client) error { _, err := c.Settle(ctx, api.Request{Key: "k", Permits: 1}); return err }
	both := func(c *client.Client) error { _, err := c.CheckAll(ctx, make([]api.Request, 2)); return err }
	const bucket = `{"algorithm":"TOKEN_BUCKET","limit":1`
	for text, ask := range map[string]func(*client.Client) error{
		`{"key":"k"}`: func(c *client.Client) error { _, err := c.Reset(ctx, one); return err },
		bucket + `,"resetAfterSeconds":9223372037}`:                              remaining,
		bucket + `,"at":1,"allowed":true,"source":"thin air"}`:                   remaining,
		bucket + `,"at":1,"allowed":true,"retryAfterMicros":1,"source":"store"}`: remaining,
		bucket + `,"at":1,"resetAfterMicros":-1,"applied":1}`:                    settle,
		bucket + `,"remaining":1,"applied":1}`:                                   settle, // at no time
		`{"applied":1}`:                                                          settle,
		"[" + good + "]":                                                         both,
		"[" + good + ",{}]":                                                      both,
	} {
		if err := ask(open(t, handle(t, answer(200, json, text)).URL, client.Options{})); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", text, err)
		}
	}
}

// TestEndlessAnswer: no more of an answer is read than one may have.
func TestEndlessAnswer(t *testing.T) {
	s := handle(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for {
			if _, err := io.WriteString(w, good); err != nil {
				return // the client is gone
			}
		}
	})
	c := open(t, s.URL, client.Options{})
	if _, err := c.Check(t.Context(), api.Request{Key: "k"}); !errors.Is(err, stint.ErrUnavailable) || !strings.Contains(err.Error(), "is longer than 4194304 bytes") {
		t.Errorf("Check: %v", err)
	}
}

// TestProblems: a problem document is in the error, its kind follows its status, and
// its length is bounded.
func TestProblems(t *testing.T) {
	for status, want := range map[int]error{
		400: stint.ErrInvalid, 413: stint.ErrInvalid, 401: stint.ErrUnavailable, 403: stint.ErrUnavailable, 404: stint.ErrUnavailable,
		429: stint.ErrUnavailable, 500: stint.ErrUnavailable, 503: stint.ErrUnavailable,
	} {
		text := `{"type":"about:blank","title":"T","status":200,"detail":"` + strings.Repeat("é", 5000) + `"}`
		c := open(t, handle(t, answer(status, apipath.ProblemType, text)).URL, client.Options{})
		_, err := c.Check(t.Context(), api.Request{Key: "k"})
		var problem *api.Problem
		if !errors.Is(err, want) || !errors.As(err, &problem) || problem.Status != status || len(err.Error()) > 1000 {
			t.Errorf("%d: %v, want %v", status, err, want)
		}
	}
}

// TestStoreUnreachable: a service whose store is unreachable answers 503.
func TestStoreUnreachable(t *testing.T) {
	store := storetest.NewFaulty(memstore.New(memstore.Config{}))
	store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
	url := serve(t, storetest.NewClock(start), func(c *server.Config) { c.Store = store })
	c, policy := open(t, url, client.Options{}), bucket(t)
	for _, verb := range []stint.Verb{stint.VerbTake, stint.VerbPeek, stint.VerbReset, stint.VerbSettle} {
		_, err := c.Decide(t.Context(), operation(verb, "k", policy, 1))
		if problem, ok := errors.AsType[*api.Problem](err); !errors.Is(err, stint.ErrUnavailable) || !ok || problem.Status != 503 {
			t.Errorf("%s: %v, want ErrUnavailable with the problem", verb, err)
		}
	}
}

// TestNobodyThere: the error shows neither password nor token nor key, and a batch
// asks once.
func TestNobodyThere(t *testing.T) {
	s := handle(t, answer(200, "", ""))
	base := strings.TrimPrefix(s.URL, "http://")
	s.Close()
	policy := bucket(t)
	for url, options := range map[string]client.Options{
		"http://u:hunter2@" + base: {},
		"http://" + base:           {Token: "hunter2"},
	} {
		c := open(t, url, options)
		for _, verb := range []stint.Verb{stint.VerbTake, stint.VerbPeek, stint.VerbReset, stint.VerbSettle} {
			_, err := c.Decide(t.Context(), operation(verb, "secret-key", policy, 1))
			if !errors.Is(err, stint.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "secret-key") || !strings.Contains(err.Error(), base) {
				t.Errorf("%s: %v", verb, err)
			}
		}
	}
	dials := 0
	failing := &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
		dials++
		return nil, errors.New("nobody there")
	})}
	c := open(t, "http://"+base, client.Options{HTTPClient: failing})
	ops, results := make([]stint.Op, 3000), make([]stint.Result, 3000)
	for i := range ops {
		ops[i] = operation(stint.VerbTake, "k", policy, 1)
		if i%2 == 1 {
			ops[i].Verb = stint.VerbPeek
		}
	}
	c.DecideAll(t.Context(), ops, results)
	for i, r := range results {
		if !errors.Is(r.Err, stint.ErrUnavailable) {
			t.Fatalf("operation %d: %+v", i, r)
		}
	}
	if dials != 1 {
		t.Errorf("asked %d times, want once", dials)
	}
}

// transport carries requests by a function.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSentOnce: a take whose answer is lost, on a connection that served before, is
// not sent again, by whatever transport.
func TestSentOnce(t *testing.T) {
	policy := bucket(t)
	for _, options := range []client.Options{{}, {HTTPClient: &http.Client{Transport: &http.Transport{}}}} {
		var requests atomic.Int64
		url := hangUpOnSecond(t, &requests)
		c := open(t, url, options)
		must.Get(c.Decide(t.Context(), operation(stint.VerbTake, "k", policy, 1)))(t)
		if _, err := c.Decide(t.Context(), operation(stint.VerbTake, "k", policy, 1)); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("a lost answer: %v, want ErrUnavailable", err)
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%d requests arrived, want 2", n)
		}
		if options.HTTPClient != nil {
			options.HTTPClient.CloseIdleConnections()
		}
	}
}

// hangUpOnSecond serves connections that answer their first request, and end when
// they have read the second.
func hangUpOnSecond(t *testing.T, requests *atomic.Int64) string {
	t.Helper()
	ln := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			read := bufio.NewReader(conn)
			for i := range 2 {
				r, err := http.ReadRequest(read)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, r.Body)
				requests.Add(1)
				if i == 0 {
					_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(good), good)
				}
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-ended
	})
	return "http://" + ln.Addr().String()
}

// TestSilence: the caller's context passes through, and without it the client's own
// timeout makes the service unavailable.
func TestSilence(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 10)
	var head atomic.Bool
	s := handle(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if head.Load() {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, good[:10])
			_ = http.NewResponseController(w).Flush()
		}
		asked <- struct{}{}
		<-release
	})
	t.Cleanup(func() { close(release) })
	policy := bucket(t)
	op := operation(stint.VerbTake, "k", policy, 1)
	for _, half := range []bool{false, true} {
		head.Store(half)
		for len(asked) > 0 {
			<-asked // of the questions before
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		c := open(t, s.URL, client.Options{Timeout: patience})
		if _, err := c.Decide(ctx, op); !errors.Is(err, context.Canceled) || errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("half an answer %t, cancelled: %v", half, err)
		}
		short, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := c.Decide(short, op); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("half an answer %t, past the deadline: %v", half, err)
		}
		end()
		c = open(t, s.URL, client.Options{Timeout: 20 * time.Millisecond})
		if _, err := c.Decide(t.Context(), op); !errors.Is(err, stint.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer in time, 20ms") {
			t.Errorf("half an answer %t, past the timeout: %v", half, err)
		}
	}
}

// TestEndedContext: nothing is sent.
func TestEndedContext(t *testing.T) {
	s := handle(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	c := open(t, s.URL, client.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	policy := bucket(t)
	ops, results := []stint.Op{operation(stint.VerbTake, "k", policy, 1), operation(stint.VerbTake, "k", policy, 1), operation(stint.VerbPeek, "k", policy, 1)}, make([]stint.Result, 3)
	if _, err := c.Decide(ctx, ops[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("Decide: %v", err)
	}
	c.DecideAll(ctx, ops, results)
	for i, r := range results {
		if !errors.Is(r.Err, context.Canceled) {
			t.Errorf("DecideAll: operation %d: %+v", i, r)
		}
	}
}

// TestRedirectsAreNotFollowed: neither token nor take goes elsewhere.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := handle(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	s := handle(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	for _, options := range []client.Options{{Token: "t"}, {HTTPClient: &http.Client{}}} {
		c := open(t, s.URL, options)
		if _, err := c.Check(t.Context(), api.Request{Key: "k"}); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("Check: %v", err)
		}
		if _, err := c.Remaining(t.Context(), api.Request{Key: "k"}); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("Remaining: %v", err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestConnectionIsKept: requests one after another, whatever is answered, use one connection. net/http itself leaves one
// whose request was not known to be written 50 ms after its answer; an answer that is never read to its end costs one of
// each kind.
func TestConnectionIsKept(t *testing.T) {
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case apipath.Check:
			answer(200, "application/json", good)(w, r)
		case apipath.Reset:
			answer(503, apipath.ProblemType, `{"detail":"away"}`)(w, r)
		default:
			answer(200, "text/html", strings.Repeat("x", 1<<20))(w, r)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c := open(t, s.URL, client.Options{Timeout: patience})
	const each = 50
	for range each {
		_, _ = c.Check(t.Context(), api.Request{Key: "k"})
		_, _ = c.Reset(t.Context(), api.Request{Key: "k"})
		_, _ = c.Remaining(t.Context(), api.Request{Key: "k"})
	}
	if n := connections.Load(); n >= each {
		t.Errorf("%d connections, want 1", n)
	}
}
