package alerts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/alerts"
)

// A receiver answers each attempt as the test says.
type receiver struct {
	answers []int // the last one again and again; 0 hangs

	mu       sync.Mutex
	attempts [][]alerts.Alert
	at       []time.Duration
	began    time.Time
}

func (r *receiver) RoundTrip(request *http.Request) (*http.Response, error) {
	var body struct{ Events []alerts.Alert }
	if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.attempts, r.at = append(r.attempts, body.Events), append(r.at, time.Since(r.began))
	attempt := len(r.attempts)
	r.mu.Unlock()
	status := r.answers[min(attempt, len(r.answers))-1]
	if status == 0 {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: http.NoBody, Request: request}, nil
}

// clients are those of all attempts, and whether all attempts about one had one ID.
func (r *receiver) clients(t *testing.T) (list []string) {
	t.Helper()
	ids := map[string]string{}
	for _, events := range r.attempts {
		for _, event := range events {
			if id, known := ids[event.Client]; known && id != event.ID || event.ID == "" {
				t.Errorf("%s is told of by the IDs %q and %q", event.Client, id, event.ID)
			}
			if ids[event.Client] == "" {
				list = append(list, event.Client)
			}
			ids[event.Client] = event.ID
		}
	}
	return list
}

func start(t *testing.T, config alerts.Config) (sender *alerts.Sender, stop func()) {
	t.Helper()
	if config.URL == "" {
		config.URL = "https://hooks.example.com/stint?token=hush"
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	config.Denials, config.NearLimit = true, 20
	sender = must.Get(alerts.New(config))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { sender.Run(ctx); close(ended) }()
	return sender, func() { cancel(); <-ended }
}

// receiving starts a sender whose receiver answers attempts with these statuses.
func receiving(t *testing.T, config alerts.Config, answers ...int) (r *receiver, sender *alerts.Sender, stop func()) {
	t.Helper()
	r = &receiver{began: time.Now(), answers: answers}
	asIs := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	config.Client = &http.Client{Transport: r, CheckRedirect: asIs}
	sender, stop = start(t, config)
	return r, sender, stop
}

func denied(client string) *stint.Event {
	return &stint.Event{Rule: "login", Claim: stint.Claim{Key: client}}
}

// near is an admission that leaves its client little.
func near(client string) *stint.Event {
	event := denied(client)
	event.Decision = stint.Decision{Allowed: true, Limit: 10, Remaining: 1}
	return event
}

// TestRetries: a receiver fails, hangs and returns; attempts carry the same IDs, at times that double.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sender, stop := receiving(t, alerts.Config{}, 500, 0, 302, 503, 204)
		sender.Observe(t.Context(), denied("ann"))
		sender.Observe(t.Context(), denied("bob"))
		<-time.After(30 * time.Second)
		sender.Observe(t.Context(), denied("cyd")) // later: a batch of its own
		<-time.After(30 * time.Second)
		stop()
		// Gathered for 1 s; then 1 s, 5 s of hanging and 2 s, 4 s, 8 s.
		var want []time.Duration
		for _, seconds := range []int{1, 2, 9, 13, 21, 31} {
			want = append(want, time.Duration(seconds)*time.Second)
		}
		if !slices.Equal(r.at, want) {
			t.Errorf("attempts at %v, want %v", r.at, want)
		}
		if got := r.clients(t); !slices.Equal(got, []string{"ann", "bob", "cyd"}) {
			t.Errorf("clients %v", got)
		}
		if got, want := sender.Stats(), (alerts.Stats{Sent: 3, Retries: 4}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

// TestNothingIsLostSilently: whatever becomes of events, each is sent, dropped or queued, and what is dropped is logged.
func TestNothingIsLostSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		_, sender, stop := receiving(t, alerts.Config{
			MaxQueue: 5, MaxBatch: 2, MaxTries: 3, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}, 500, 500, 500, 200, 0)
		for i := range 20 { // faster than they can be sent
			sender.Observe(t.Context(), denied(fmt.Sprint(i)))
		}
		synctest.Wait()
		<-time.After(20 * time.Second) // the first batch is given up, the second confirmed, the third hangs
		stop()
		s := sender.Stats()
		if s.Sent+s.Failed+s.OverflowedDenied+s.Repeated != 20 || s.Sent != 2 || s.Failed < 2 || s.OverflowedDenied == 0 || s.Queued != 0 && s.Failed < uint64(s.Queued) {
			t.Errorf("stats %+v of 20 events", s)
		}
		for _, line := range []string{"alerts are lost: too many wait", "alerts were lost: the receiver did not confirm them\" events=2 err=\"the receiver answered 500"} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("the log lacks %q:\n%s", line, log.String())
			}
		}
		if strings.Contains(log.String(), "hush") {
			t.Errorf("the log shows the address:\n%s", log.String())
		}
	})
}

// TestKindsWaitApart: a flood of one kind that fills its queue leaves the other's alone, and is counted by itself.
func TestKindsWaitApart(t *testing.T) {
	for _, flood := range []alerts.Kind{alerts.NearLimit, alerts.Denied} {
		flooding, other := near, denied
		if flood == alerts.Denied {
			flooding, other = denied, near
		}
		synctest.Test(t, func(t *testing.T) {
			r, sender, stop := receiving(t, alerts.Config{MaxQueue: 5, MaxBatch: 2, RetryMin: time.Minute}, 500, 204)
			for i := range 51 {
				sender.Observe(t.Context(), flooding(fmt.Sprint(i)))
			}
			sender.Observe(t.Context(), other("ann"))
			<-time.After(time.Hour)
			stop()
			s := sender.Stats()
			lost, spared := s.OverflowedDenied, s.OverflowedNearLimit
			if flood == alerts.NearLimit {
				lost, spared = spared, lost
			}
			if !slices.Contains(r.clients(t), "ann") || lost < 40 || spared != 0 || s.Sent+lost != 52 {
				t.Errorf("a flood of %s: stats %+v; clients %v", flood, s, r.clients(t))
			}
		})
	}
}

// TestOncePerWindow: a client is told of once for each kind, rule and window, which begin at multiples since the epoch.
func TestOncePerWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // at midnight, 2000-01-01
		_, sender, stop := receiving(t, alerts.Config{}, 200)
		<-time.After(59 * time.Minute)
		other := denied("ann")
		other.Rule = "search"
		for _, event := range []*stint.Event{denied("ann"), denied("ann"), near("ann"), other, denied("ann")} {
			sender.Observe(t.Context(), event)
		}
		<-time.After(59 * time.Second)
		sender.Observe(t.Context(), denied("ann"))
		<-time.After(2 * time.Second) // the next hour
		sender.Observe(t.Context(), denied("ann"))
		sender.Observe(t.Context(), denied("ann"))
		<-time.After(2 * time.Second)
		stop()
		if got, want := sender.Stats(), (alerts.Stats{Sent: 4, Repeated: 4}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

// TestLinger: what waits when the context ends is sent still, for so long, and in batches.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sender, stop := receiving(t, alerts.Config{MaxBatch: 2, Linger: 2 * time.Second}, 500, 204)
		for _, client := range []string{"ann", "bob", "cyd"} {
			sender.Observe(t.Context(), denied(client))
		}
		synctest.Wait() // ann and bob are under way
		stop()
		if got, want := sender.Stats(), (alerts.Stats{Sent: 3, Retries: 1}); got != want || len(r.clients(t)) != 3 {
			t.Errorf("stats %+v, want %+v; clients %v", got, want, r.clients(t))
		}
		r, sender, stop = receiving(t, alerts.Config{MaxBatch: 2, Linger: 2 * time.Second}, 0)
		for _, client := range []string{"ann", "bob", "cyd"} {
			sender.Observe(t.Context(), denied(client))
		}
		stop()
		if got, want := sender.Stats(), (alerts.Stats{Failed: 3}); got != want || time.Since(r.began) != 2*time.Second {
			t.Errorf("of a receiver that hangs: stats %+v, want %+v, after %v", got, want, time.Since(r.began))
		}
		r, sender, stop = receiving(t, alerts.Config{Linger: 2 * time.Second}, 500, 204)
		for i := range 500 {
			sender.Observe(t.Context(), denied(fmt.Sprint(i)))
		}
		synctest.Wait() // 100 are under way
		stop()
		if got, want := sender.Stats(), (alerts.Stats{Sent: 500, Retries: 1}); got != want || len(r.attempts) != 6 {
			t.Errorf("stats %+v, want %+v; %d requests, want 6", got, want, len(r.attempts))
		}
	})
}

// TestOnceOverProcesses: of two that share a Redis, one tells; when the claim fails, both do.
func TestOnceOverProcesses(t *testing.T) {
	redis := testredis.Start(t)
	var mu sync.Mutex
	received := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		var body struct{ Events []alerts.Alert }
		_ = json.NewDecoder(request.Body).Decode(&body)
		mu.Lock()
		defer mu.Unlock()
		for _, event := range body.Events {
			received[event.Client]++
		}
	}))
	t.Cleanup(server.Close)
	claim := func(_ context.Context, name string, life time.Duration) (bool, error) {
		if life <= time.Minute || life > time.Hour+time.Minute || strings.Contains(name, "ann") {
			t.Errorf("the claim of %q is for %s", name, life)
		}
		reply, err := redis.Do("SET", "rate_limiter:"+name, "1", "NX", "PX", life.Milliseconds())
		return reply != nil, err
	}
	broken := func(context.Context, string, time.Duration) (bool, error) { return false, errors.New("unreachable") }
	notify := func(client string, claim func(context.Context, string, time.Duration) (bool, error)) (repeated uint64) {
		for range 2 {
			sender, stop := start(t, alerts.Config{URL: server.URL, Claim: claim, Gather: time.Millisecond})
			sender.Observe(t.Context(), denied(client))
			for s := sender.Stats(); s.Sent+s.Repeated == 0; s = sender.Stats() {
				<-time.After(time.Millisecond)
			}
			stop()
			repeated += sender.Stats().Repeated
		}
		mu.Lock() // the last is confirmed, so nobody writes
		defer mu.Unlock()
		return repeated
	}
	if n := notify("ann", claim); n != 1 || received["ann"] != 1 {
		t.Errorf("two processes told of ann %d times, and kept still %d times", received["ann"], n)
	}
	if n := notify("bob", broken); n != 0 || received["bob"] != 2 {
		t.Errorf("without Redis two processes told of bob %d times, and kept still %d times", received["bob"], n)
	}
}

// TestSignature: the receiver can check a request by the secret, its timestamp and its body.
func TestSignature(t *testing.T) {
	secret := []byte("between us")
	checked := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		timestamp := request.Header.Get("Stint-Timestamp")
		if got, want := request.Header.Get("Stint-Signature"), alerts.Sign(secret, timestamp, body); err == nil && got != want {
			err = fmt.Errorf("the signature is %q, want %q", got, want)
		}
		if !bytes.Contains(body, []byte(`"kind":"denied","rule":"login","set":"web","client":"ann","limit":5,"remaining":0,"reason":"limit","requestId":"r-1","at":1790000000123456}`)) || timestamp != "1790000000" {
			err = errors.Join(err, fmt.Errorf("at %s: %s", timestamp, body))
		}
		checked <- err
	}))
	t.Cleanup(server.Close)
	sender, stop := start(t, alerts.Config{URL: server.URL, Secret: secret, Gather: time.Millisecond, Now: func() time.Time { return time.Unix(1_790_000_000, 0) }})
	event := denied("ann")
	event.Set, event.Decision.Limit, event.Reason, event.RequestID, event.At = "web", 5, "limit", "r-1", 1_790_000_000_123_456
	sender.Observe(t.Context(), event)
	if err := <-checked; err != nil {
		t.Error(err)
	}
	stop()
	// As `printf '%s' '1790000000.{}' | openssl dgst -sha256 -hmac 'between us'` has it.
	if got, want := alerts.Sign(secret, "1790000000", []byte("{}")), "sha256=98b2e5d097f1596216406a6409b8521f4138a4e82343fdf5aced9d2f42ff5a34"; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
}

// TestHashedClients: the receiver gets the HMAC of a client, and once.
func TestHashedClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sender, stop := receiving(t, alerts.Config{Secret: []byte("between us"), HashClients: true}, 200)
		sender.Observe(t.Context(), denied("ann"))
		sender.Observe(t.Context(), denied("ann"))
		<-time.After(2 * time.Second)
		stop()
		// As `printf '%s' ann | openssl dgst -sha256 -hmac 'between us'` has it.
		if got := r.clients(t); len(got) != 1 || got[0] != "4a1c3b43ea2e9502f986a91b85c3f1f1f3e01b5d4e58cb69b1b11704a2a2d009" {
			t.Errorf("clients %v", got)
		}
	})
}

// An alert says of which class the request was, and by what it was charged, if the rule has such.
func TestClassAndVia(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, sender, stop := receiving(t, alerts.Config{}, 200)
		late, some := denied("ann"), near("ben")
		late.Class, some.Class, some.Via = "batch", "critical", "borrowed"
		for _, event := range []*stint.Event{late, some, denied("cem")} {
			sender.Observe(t.Context(), event)
		}
		<-time.After(2 * time.Second)
		stop()
		said := map[string]string{}
		for _, event := range slices.Concat(r.attempts...) {
			text := must.Get(json.Marshal(event))(t)
			said[event.Client] = string(text)
		}
		for client, want := range map[string]string{
			"ann": `"rule":"login","class":"batch","client"`, "ben": `"rule":"login","class":"critical","via":"borrowed","client"`, "cem": `"rule":"login","client"`,
		} {
			if !strings.Contains(said[client], want) {
				t.Errorf("of %s it is told %s, want %s", client, said[client], want)
			}
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		config alerts.Config
		fault  string
	}{
		{alerts.Config{}, "alerts.url"},
		{alerts.Config{URL: "ftp://user:hunter2@host/"}, `alerts.url is "ftp://host"; allowed: an address by http or https`},
		{alerts.Config{URL: "https://host", MaxTries: -1}, "alerts.max_tries is -1; allowed: 0"},
	} {
		if _, err := alerts.New(test.config); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%+v: %v, want %q", test.config, err, test.fault)
		}
	}
}
