// Package decisionlog writes what is decided into the log: a line per decision at debug, a sample of denials at info,
// and one line per minute about degraded answers.
//
// A [Log] observes decisions as a stint.Observer. It writes no client's name unless it is told to:
// an HMAC stands for it, which is the same for the same client as long as the secret is.
// [RequestID] ties a line to what proxies in front wrote about the same request.
package decisionlog

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/logsampler"
)

// A Config says what is logged. Logger has no default. Lines per time are bounded at info and
// above, whatever clients do. At debug they are not.
type Config struct {
	Logger *slog.Logger
	// Denials logs a sample of denials at info: 10 lines at once, then one per second; and of those in shadow as many.
	// Default: false.
	Denials bool
	// ShowClients logs clients as they are. Default: false, by an HMAC.
	ShowClients bool
	// Secret is the HMAC's key: processes with one secret log a client alike. Default: nil, one of
	// this process alone.
	Secret []byte
	// Now is the time for sampling. Default: nil, the process's clock.
	Now func() stint.Instant
}

// A Log is safe for concurrent use; make it with [New]. Degraded answers are counted by atomics and
// summed up once a minute: an outage makes one line at its start, and one for each minute.
type Log struct {
	config           Config
	denials, shadows *logsampler.Sampler

	// whether its first degraded answer was logged
	outage           atomic.Bool
	admitted, denied atomic.Uint64
	// of the first degraded answer since the last summary
	client atomic.Pointer[string]
}

// New makes a log.
func New(config Config) *Log {
	if config.Secret == nil {
		config.Secret = []byte(rand.Text())
	}
	sampler := func() *logsampler.Sampler { return logsampler.New(10, time.Second, config.Now) }
	return &Log{config: config, denials: sampler(), shadows: sampler()}
}

// Observe logs a decision, as a [stint.Observer]: each at debug, of denials a sample at info. Of rules
// in shadow it logs denials alone. It allocates nothing for a decision that is not logged.
func (l *Log) Observe(ctx context.Context, e *stint.Event) {
	message, sampler := "denied", l.denials
	switch {
	case e.Shadow && e.Decision.Allowed:
		return
	case e.Marked:
		message, sampler = "marked", l.shadows
	case e.Decision.Allowed:
		message = "allowed"
	case e.Shadow:
		message, sampler = "denied in shadow", l.shadows
	}
	switch {
	case l.config.Logger.Enabled(ctx, slog.LevelDebug):
		l.write(ctx, slog.LevelDebug, message, e, 0)
	case l.config.Denials && !e.Decision.Allowed && l.config.Logger.Enabled(ctx, slog.LevelInfo):
		if skipped, ok := sampler.Admit(); ok {
			l.write(ctx, slog.LevelInfo, message, e, skipped)
		}
	}
}

// write writes a line. What an event does not have is left out.
func (l *Log) write(ctx context.Context, level slog.Level, message string, e *stint.Event, skipped int64) {
	attributes := make([]slog.Attr, 0, 10)
	for _, a := range [...]struct{ name, value string }{
		{"rule", e.Rule},
		{"set", e.Set},
		{"class", e.Class},
		{"via", e.Via},
		{"client", l.Client(e.Claim.Key)},
		{"reason", string(e.Reason)},
		{"request_id", e.RequestID},
	} {
		if a.value != "" {
			attributes = append(attributes, slog.String(a.name, a.value))
		}
	}
	if e.Shadow {
		attributes = append(attributes, slog.Bool("shadow", true))
	}
	if level == slog.LevelDebug && !e.Shadow && e.Claim.Policy != nil && !e.Decision.Degraded {
		attributes = append(attributes, slog.Int64("remaining", e.Decision.Remaining))
	}
	if skipped > 0 {
		attributes = append(attributes, slog.Int64("skipped", skipped))
	}
	l.config.Logger.LogAttrs(ctx, level, message, attributes...)
}

// Client is a client as lines show it: the first 16 digits of its HMAC-SHA256, unless
// Config.ShowClients is set. The digits tell clients apart and can be found again by who has the
// secret; nobody else can try out addresses against them.
func (l *Log) Client(key string) string {
	if l.config.ShowClients || key == "" {
		return key
	}
	mac := hmac.New(sha256.New, l.config.Secret)
	_, _ = mac.Write([]byte(key)) // a hash does not fail
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Degraded counts an answer that a failure policy gave instead of the store. The first of an outage is logged, with its
// client and its cause. Only one client is named per line, so that the number of lines does not depend on the number of
// answers.
func (l *Log) Degraded(client string, allowed bool, cause error) {
	if l.client.Load() == nil {
		first := client // only this one is allocated
		l.client.CompareAndSwap(nil, &first)
	}
	if allowed {
		l.admitted.Add(1)
	} else {
		l.denied.Add(1)
	}
	if !l.outage.Load() && l.outage.CompareAndSwap(false, true) {
		l.config.Logger.Warn("answers are degraded: a failure policy decides instead of the store",
			"client", l.Client(client), "cause", document.Redact(cause.Error()))
	}
}

// Run logs the number of degraded answers each minute in which there were some, until the context ends, and then the
// rest. A minute without any ends the outage.
func (l *Log) Run(ctx context.Context) {
	sleep.Every(ctx, time.Minute, l.summarize)
	l.summarize()
}

// The three values are swapped one after another, while answers are counted: one may be named in a
// minute and counted in the next.
func (l *Log) summarize() {
	client := l.client.Swap(nil)
	admitted, denied := l.admitted.Swap(0), l.denied.Swap(0)
	if admitted+denied == 0 {
		l.outage.Store(false)
		return
	}
	attributes := []any{"admitted", admitted, "denied", denied}
	if client != nil { // nil if the answer is counted here, and its client was named by the summary before
		attributes = append(attributes, "client", l.Client(*client))
	}
	l.config.Logger.Warn("answers were degraded", attributes...)
}

const maxRequestID = 128

// RequestID is the ID that the sender gave a request: X-Request-ID if it is up to 128 characters of
// printable ASCII without a space, else the trace ID of traceparent (W3C Trace Context, section
// 3.2.2), else "". Of traceparent (version-traceid-parentid-flags) the trace ID is 32 hexadecimal
// digits in lower case, and not all of them 0. The field is longer in future versions, whose
// beginning is the same.
func RequestID(header http.Header) string {
	id := header.Get("X-Request-Id")
	if id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return id
	}
	trace, _ := TraceOf(header.Get("Traceparent"))
	return trace
}

// TraceOf is the trace of a value of traceparent, and whether its sender records it; "" if there is none.
func TraceOf(parent string) (id string, recorded bool) {
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return "", false
	}
	trace := parent[3:35]
	if strings.Trim(trace, "0") == "" || strings.Trim(trace, "0123456789abcdef") != "" {
		return "", false
	}
	flags, err := strconv.ParseUint(parent[53:55], 16, 8)
	return trace, err == nil && flags&1 == 1
}

// RecordedTrace is the trace of the lines of traceparent if its sender records it; "" if there is none.
func RecordedTrace(lines []string) string {
	if len(lines) > 0 {
		if id, recorded := TraceOf(lines[0]); recorded {
			return id
		}
	}
	return ""
}
