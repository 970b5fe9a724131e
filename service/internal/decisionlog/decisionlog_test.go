package decisionlog_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/decisionlog"
)

// logger logs without times, which tests can't know.
func logger(out io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// lines are what goroutines log.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(line)
}

// take returns what was logged since it was called last.
func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.out.Reset()
	return l.out.String()
}

func TestDecided(t *testing.T) {
	policy := must.Get(stint.NewPolicy("", stint.FixedWindow(10, time.Hour)))(t)
	claim := stint.Claim{Key: "ann", Policy: policy, Permits: 1}
	events := []*stint.Event{
		{Rule: "login", Set: "web", Claim: claim, Reason: "limit", RequestID: "r-1"},
		{Claim: claim, Via: "borrowed", Decision: stint.Decision{Allowed: true, Remaining: 7}},
		{Shadow: true, Rule: "trial", Class: "batch"},
		{Shadow: true, Rule: "trial", Class: "batch", Decision: stint.Decision{Allowed: true}}, // which is not logged
	}
	// As `printf '%s' ann | openssl dgst -sha256 -hmac s` begins.
	const hashed, shadow = "3a96c6610ff1bf4e", "level=INFO msg=\"denied in shadow\" rule=trial class=batch shadow=true\n"
	for name, test := range map[string]struct {
		config decisionlog.Config
		level  slog.Level
		want   string
	}{
		"a denial at info": {decisionlog.Config{Denials: true}, slog.LevelInfo, "level=INFO msg=denied rule=login set=web client=" + hashed + " reason=limit request_id=r-1\n" + shadow},
		"with its client":  {decisionlog.Config{Denials: true, ShowClients: true}, slog.LevelInfo, "level=INFO msg=denied rule=login set=web client=ann reason=limit request_id=r-1\n" + shadow},
		"denials not":      {decisionlog.Config{}, slog.LevelInfo, ""},
		"above info":       {decisionlog.Config{Denials: true}, slog.LevelWarn, ""},
		"all at debug": {decisionlog.Config{}, slog.LevelDebug, "level=DEBUG msg=denied rule=login set=web client=" + hashed +
			" reason=limit request_id=r-1 remaining=0\nlevel=DEBUG msg=allowed via=borrowed client=" + hashed + " remaining=7\nlevel=DEBUG msg=\"denied in shadow\" rule=trial class=batch shadow=true\n"},
	} {
		var out bytes.Buffer
		test.config.Logger, test.config.Secret = logger(&out, test.level), []byte("s")
		log := decisionlog.New(test.config)
		for _, event := range events {
			log.Observe(t.Context(), event)
		}
		if out.String() != test.want {
			t.Errorf("%s: logged\n%swant\n%s", name, out.String(), test.want)
		}
	}
}

// TestSampled: ten denials at once, then one per second, with the number of those between.
func TestSampled(t *testing.T) {
	now := stint.Instant(1_790_000_000_000_000)
	var out bytes.Buffer
	log := decisionlog.New(decisionlog.Config{Logger: logger(&out, slog.LevelInfo), Denials: true, Now: func() stint.Instant { return now }})
	for range 25 {
		log.Observe(t.Context(), &stint.Event{Rule: "a"})
	}
	for range 12 { // of which there is a sample apart
		log.Observe(t.Context(), &stint.Event{Shadow: true, Rule: "s"})
	}
	now = now.Add(time.Second)
	log.Observe(t.Context(), &stint.Event{Rule: "b"})
	log.Observe(t.Context(), &stint.Event{Shadow: true, Rule: "s"})
	const inShadow = "level=INFO msg=\"denied in shadow\" rule=s shadow=true"
	if want := strings.Repeat("level=INFO msg=denied rule=a\n", 10) + strings.Repeat(inShadow+"\n", 10) +
		"level=INFO msg=denied rule=b skipped=15\n" + inShadow + " skipped=2\n"; out.String() != want {
		t.Errorf("logged\n%s", out.String())
	}
	for name, e := range map[string]*stint.Event{
		"a denial that is skipped": {Rule: "a"},
		"an admission":             {Claim: stint.Claim{Key: "ann"}, Decision: stint.Decision{Allowed: true}},
	} {
		if n := testing.AllocsPerRun(100, func() { log.Observe(t.Context(), e) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestDegraded: the first answer of an outage names its client and cause, a summary follows each minute, and a minute without ends it.
func TestDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		log := decisionlog.New(decisionlog.Config{Logger: logger(&out, slog.LevelInfo), Secret: []byte("s")})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { log.Run(ctx); close(ended) }()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := out.take(); got != want {
				t.Errorf("logged\n%swant\n%s", got, want)
			}
		}
		first := "level=WARN msg=\"answers are degraded: a failure policy decides instead of the store\" client=3a96c6610ff1bf4e cause=\"connection refused\"\n"
		refused := errors.New("connection refused")
		log.Degraded("ann", true, refused)
		log.Degraded("bob", true, errors.New("another"))
		log.Degraded("ann", false, refused)
		expect(first)
		<-time.After(61 * time.Second)
		expect("level=WARN msg=\"answers were degraded\" admitted=2 denied=1 client=3a96c6610ff1bf4e\n")
		log.Degraded("ann", false, refused)
		<-time.After(time.Minute)
		expect("level=WARN msg=\"answers were degraded\" admitted=0 denied=1 client=3a96c6610ff1bf4e\n")
		<-time.After(time.Minute)
		expect("")
		log.Degraded("ann", true, refused) // the next outage
		expect(first)
		cancel()
		<-ended
		expect("level=WARN msg=\"answers were degraded\" admitted=1 denied=0 client=3a96c6610ff1bf4e\n")
	})
}

func TestRequestID(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, test := range []struct{ id, parent, want string }{
		{"", "", ""},
		{"r-1", parent, "r-1"},
		{"", parent, "4bf92f3577b34da6a3ce929d0e0e4736"},
		{"two words", parent, "4bf92f3577b34da6a3ce929d0e0e4736"},
		{"line\nbreak", "", ""},
		{"ümlaut", "", ""},
		{strings.Repeat("x", 128), "", strings.Repeat("x", 128)},
		{strings.Repeat("x", 129), "", ""},
		{"", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", ""},
		{"", "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", ""},
		{"", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", ""},
		{"", "4bf92f3577b34da6a3ce929d0e0e4736", ""},
	} {
		header := http.Header{"X-Request-Id": {test.id}, "Traceparent": {test.parent}}
		if got := decisionlog.RequestID(header); got != test.want {
			t.Errorf("of %q and %q it is %q, want %q", test.id, test.parent, got, test.want)
		}
	}
}
