package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// base is a RoundTripper that needs no network.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

// answers responds with a status and header fields, given as "Name: value".
func answers(status int, fields ...string) *http.Response {
	header := http.Header{}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		header.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody}
}

// fine is a base that answers everything with 200.
func fine(*http.Request) (*http.Response, error) { return answers(http.StatusOK), nil }

// once responds as told to the first call, and with 200 to the others.
func once(first *http.Response) base {
	var called atomic.Bool
	return func(r *http.Request) (*http.Response, error) {
		if called.Swap(true) {
			return fine(r)
		}
		return first, nil
	}
}

func transport(t testing.TB, config httplimit.TransportConfig) *httplimit.Transport {
	t.Helper()
	return must.Get(httplimit.NewTransport(config))(t)
}

func call(ctx context.Context, t testing.TB, tr http.RoundTripper, url string) error {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))(t)
	response, err := tr.RoundTrip(r)
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

// expectRefused compares the error of a call that is not made, which is stint.ErrDeadline if its context ends too soon.
func expectRefused(t *testing.T, err error, late bool, want httplimit.RefusedError) {
	t.Helper()
	got, ok := errors.AsType[*httplimit.RefusedError](err)
	if !ok || errors.Is(err, stint.ErrDeadline) != late || errors.Is(err, context.DeadlineExceeded) != late ||
		got.Host != want.Host || got.Server != want.Server || got.Rule != want.Rule || got.RetryAfter != want.RetryAfter {
		t.Errorf("the error is %v, want %+v, late %t", err, want, late)
	}
}

// The bubble's clock starts at midnight, 1 January 2000.
const bubbleStart = 946684800

func TestTransportHeedsServers(t *testing.T) {
	for _, test := range testtable.Rows[struct {
		Name   string
		Status int
		Want   time.Duration // how long the next call waits
		Fields string
	}](t, "testdata/servers.txt") {
		t.Run(test.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if time.Now().Unix() != bubbleStart {
					t.Fatal("the test's dates are not the bubble's")
				}
				tr := transport(t, httplimit.TransportConfig{MaxWait: 48 * time.Hour, Base: once(answers(test.Status, strings.Split(test.Fields, " | ")...))})
				for range 2 {
					must.Do(t, call(t.Context(), t, tr, "http://a.example/"))
				}
				if got := time.Since(time.Unix(bubbleStart, 0)); got != test.Want {
					t.Errorf("the second call was made after %v, want %v", got, test.Want)
				}
			})
		})
	}
}

// A pause is of one host, however it is spelled, and of no other.
func TestTransportTellsHostsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transport(t, httplimit.TransportConfig{Refuse: true, Base: once(answers(429, "Retry-After: 7"))})
		_ = call(t.Context(), t, tr, "http://a.example/")
		for url, held := range map[string]bool{
			"http://a.example/other": true, "http://A.Example:80/": true,
			"http://a.example:8080/": false, "https://a.example:443/": true, "http://b.example/": false,
		} {
			err := call(t.Context(), t, tr, url)
			if held {
				expectRefused(t, err, false, httplimit.RefusedError{Host: "a.example", Server: true, RetryAfter: 7 * time.Second})
			} else if err != nil {
				t.Errorf("%s: %v", url, err)
			}
		}
		<-time.After(7 * time.Second)
		if err := call(t.Context(), t, tr, "http://a.example/"); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
}

// A deadline that is nearer than the wait is told at once, and nothing is taken.
func TestTransportDeadlines(t *testing.T) {
	for name, config := range map[string]httplimit.TransportConfig{
		"limiter": {Limiter: nil}, "server": {Base: once(answers(429, "Retry-After: 60"))},
	} {
		synctest.Test(t, func(t *testing.T) {
			if name == "limiter" {
				config.Base = base(fine)
				config.Limiter = limiterOn(t, memstore.New(memstore.Config{}), stint.TokenBucket(1, stint.PerMinute(1)))
			}
			tr := transport(t, config)
			must.Do(t, call(t.Context(), t, tr, "http://a.example/"))
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
			defer cancel()
			err := call(ctx, t, tr, "http://a.example/")
			expectRefused(t, err, true, httplimit.RefusedError{
				Host: "a.example", Server: name == "server", RetryAfter: time.Minute,
			})
			if waited := time.Since(start); waited != 0 {
				t.Errorf("%s: told after %v", name, waited)
			}

			ended, end := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, end)
			if err := call(ended, t, tr, "http://a.example/"); !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
				t.Errorf("%s: a call given up after 1s returned %v after %v", name, err, time.Since(start))
			}
			for _, host := range []string{"a.example", "b.example"} { // the other one waits for nothing
				if err := call(t.Context(), t, tr, "http://"+host+"/"); err != nil || time.Since(start) != time.Minute {
					t.Errorf("%s: the next call to %s was made after %v (%v), want 1m", name, host, time.Since(start), err)
				}
			}
		})
	}
}

// A call that waits for the limiter keeps to a pause that the server asks for meanwhile. A call that waits for
// the server spends no permit in that time.
func TestTransportServerBeforeLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		limiter := limiterOn(t, memstore.New(memstore.Config{}), stint.TokenBucket(2, stint.Every(time.Second)))
		var made []time.Duration
		tr := transport(t, httplimit.TransportConfig{Limiter: limiter, Base: base(func(*http.Request) (*http.Response, error) {
			made = append(made, time.Since(start))
			if len(made) == 1 {
				<-time.After(500 * time.Millisecond)
				return answers(429, "Retry-After: 10"), nil
			}
			return answers(200), nil
		})})
		must.Get(limiter.Allow(t.Context(), "a.example"))(t)
		var calls sync.WaitGroup
		calls.Go(func() { _ = call(t.Context(), t, tr, "http://a.example/") })
		synctest.Wait()
		calls.Go(func() { _ = call(t.Context(), t, tr, "http://a.example/") }) // waits for a permit until 1s
		calls.Wait()
		if len(made) != 2 || made[1] != 10500*time.Millisecond {
			t.Errorf("calls were made at %v, want 0 and 10.5s", made)
		}
	})
}

// No host is granted a longer pause than MaxPause.
func TestTransportMaxPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transport(t, httplimit.TransportConfig{
			Refuse: true, MaxPause: 30 * time.Second,
			Base: base(func(r *http.Request) (*http.Response, error) {
				return answers(429, "Retry-After: "+r.URL.Query().Get("wait")), nil
			}),
		})
		for wait, want := range map[string]time.Duration{"20": 20 * time.Second, "99": 30 * time.Second} {
			host := wait + ".example"
			must.Do(t, call(t.Context(), t, tr, "http://"+host+"/?wait="+wait))
			err := call(t.Context(), t, tr, "http://"+host+"/")
			expectRefused(t, err, false, httplimit.RefusedError{Host: host, Server: true, RetryAfter: want})
		}
	})
}

// A call waits no longer than MaxWait, for a pause, a permit or a store that is away, though its context lasts.
func TestTransportMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limiterOn(t, memstore.New(memstore.Config{}), stint.TokenBucket(1, stint.Every(11*time.Second)))
		for name, config := range map[string]httplimit.TransportConfig{
			"a pause":  {Base: once(answers(429, "Retry-After: 11"))},
			"a permit": {Base: base(fine), Limiter: limiter},
		} {
			config.MaxWait = 10 * time.Second
			tr := transport(t, config)
			must.Do(t, call(t.Context(), t, tr, "http://a.example/"))
			start := time.Now()
			err := call(t.Context(), t, tr, "http://a.example/")
			expectRefused(t, err, false, httplimit.RefusedError{
				Host: "a.example", Server: name == "a pause", RetryAfter: 11 * time.Second,
			})
			if time.Since(start) != 0 {
				t.Errorf("%s: refused after %v, want at once", name, time.Since(start))
			}
			<-time.After(2 * time.Second)
			if err := call(t.Context(), t, tr, "http://a.example/"); err != nil || time.Since(start) != 11*time.Second {
				t.Errorf("%s: one that lasts is made after %v: %v", name, time.Since(start), err)
			}
		}
		away := failing{err: stint.ErrUnavailable}
		start := time.Now()
		tr := transport(t, httplimit.TransportConfig{Limiter: limiterOn(t, away, stint.FixedWindow(1, time.Minute)), Base: base(fine)})
		if err := call(t.Context(), t, tr, "http://a.example/"); !errors.Is(err, stint.ErrUnavailable) || time.Since(start) != time.Minute {
			t.Errorf("without a store: %v after %v, want a minute", err, time.Since(start))
		}
	})
}

// Key says for whom a call counts, whatever its host, and Cost what it takes: 0 is nothing. Pauses are of a key.
func TestTransportKeysAndCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noKey, noCost := errors.New("no account"), errors.New("no cost")
		tr := transport(t, httplimit.TransportConfig{
			Limiter: limiter(t, stint.FixedWindow(3, time.Minute)), Refuse: true,
			Key: func(r *http.Request) (string, error) {
				if key := r.URL.Query().Get("key"); key != "" {
					return key, nil
				}
				return "", noKey
			},
			Cost: func(r *http.Request) (int64, error) {
				if cost := r.URL.Query().Get("cost"); cost != "?" {
					return int64(len(cost)), nil
				}
				return 0, noCost
			},
			Base: once(answers(429, "Retry-After: 7")),
		})
		must.Do(t, call(t.Context(), t, tr, "http://a.example/?key=paused&cost=x"))
		server := &httplimit.RefusedError{Host: "a.example", Server: true, RetryAfter: 7 * time.Second}
		for _, test := range []struct {
			url     string
			refused *httplimit.RefusedError
		}{
			{"http://a.example/?key=paused", server},
			{"http://a.example/?key=k&cost=xx", nil},
			{"http://b.example/?key=k&cost=xx", &httplimit.RefusedError{Host: "b.example", RetryAfter: 40 * time.Second}},
			{"http://a.example/?key=k", nil},
			{"http://a.example/?key=k&cost=x", nil},
			{"http://a.example/?key=k&cost=x", &httplimit.RefusedError{Host: "a.example", RetryAfter: 40 * time.Second}},
			{"http://a.example/?key=other&cost=xx", nil},
		} {
			err := call(t.Context(), t, tr, test.url)
			if test.refused != nil {
				expectRefused(t, err, false, *test.refused)
			} else if err != nil {
				t.Errorf("%s: %v", test.url, err)
			}
		}
		if err := call(t.Context(), t, tr, "http://a.example/"); !errors.Is(err, noKey) {
			t.Errorf("without a key: %v", err)
		}
		if err := call(t.Context(), t, tr, "http://a.example/?key=new&cost=?"); !errors.Is(err, noCost) {
			t.Errorf("without a cost: %v", err)
		}
	})
}

// A request is sent once, whatever comes back, and its body is closed when it is not
// sent at all.
func TestTransportSendsOnce(t *testing.T) {
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "later")
	}))
	defer server.Close()
	client := &http.Client{Transport: transport(t, httplimit.TransportConfig{Refuse: true})}
	defer client.CloseIdleConnections()
	for attempt := range 2 {
		body := &closing{Reader: strings.NewReader("body")}
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body))(t)
		response, err := client.Do(r)
		if attempt == 0 {
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if response.StatusCode != http.StatusServiceUnavailable || string(text) != "later" {
				t.Errorf("the answer is %d %q", response.StatusCode, text)
			}
			continue
		}
		if _, ok := errors.AsType[*httplimit.RefusedError](err); !ok {
			t.Errorf("the second call: %v", err)
		}
		if !body.closed.Load() {
			t.Error("the body of a call that was refused is open")
		}
	}
	if sent.Load() != 1 {
		t.Errorf("%d requests were sent, want 1", sent.Load())
	}
}

type closing struct {
	io.Reader
	closed atomic.Bool
}

func (c *closing) Close() error { c.closed.Store(true); return nil }

// Many call at once while hosts ask for pauses; the race detector watches.
func TestTransportConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int64
		tr := transport(t, httplimit.TransportConfig{Base: base(func(*http.Request) (*http.Response, error) {
			if made.Add(1)%3 == 0 {
				return answers(429, "Retry-After: 1"), nil
			}
			return answers(200), nil
		})})
		var calls sync.WaitGroup
		for i := range 64 {
			calls.Go(func() {
				for range 10 {
					if err := call(t.Context(), t, tr, fmt.Sprintf("http://host%d/", i%8)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		calls.Wait()
		if made.Load() != 640 {
			t.Errorf("%d calls were made, want 640", made.Load())
		}
	})
}

func TestTransportErrors(t *testing.T) {
	broken := errors.New("broken")
	tr := transport(t, httplimit.TransportConfig{Base: base(func(*http.Request) (*http.Response, error) { return nil, broken })})
	if err := call(t.Context(), t, tr, "http://a.example/"); !errors.Is(err, broken) {
		t.Errorf("the base's error became %v", err)
	}
	if _, err := transport(t, httplimit.TransportConfig{}).RoundTrip(new(http.Request)); err == nil {
		t.Error("a request without a URL was sent")
	}
}

func TestNewTransportRefuses(t *testing.T) {
	cost := func(*http.Request) (int64, error) { return 1, nil }
	describe := func(*http.Request, *rules.Request) error { return nil }
	for want, config := range map[string]httplimit.TransportConfig{
		"Limiter is \"the zero":                    {Limiter: new(stint.Limiter)},
		"Limiter is \"one with a":                  {Limiter: limiter(t, stint.Concurrency(1))},
		"Cost is & MaxWait is -1 & MaxPause is -1": {Cost: cost, MaxWait: -1, MaxPause: -1},
		"Rules is":    {Limiter: limiter(t, stint.FixedWindow(1, time.Minute)), Rules: standing(t)},
		"Describe is": {Describe: describe},
	} {
		_, err := httplimit.NewTransport(config)
		for param := range strings.SplitSeq(want, " & ") {
			if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), param) {
				t.Errorf("the error does not say what the %s: %v", param, err)
			}
		}
	}
}
