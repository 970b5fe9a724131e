package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/service/internal/logsampler"
)

// logFaults makes faults and warnings of OpenTelemetry's SDK lines of the log. It is the SDK's own, of the whole
// process.
func logFaults(logger *slog.Logger) {
	l := &lines{logger: logger, samplers: map[string]*logsampler.Sampler{}}
	otel.SetLogger(logr.FromSlogHandler(l))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		kind, _, _ := strings.Cut(err.Error(), ":") // what follows may differ each time, as a port does
		l.warn(kind, "telemetry was lost", slog.String("err", err.Error()))
	}))
}

// interval is how often one message is logged.
const interval = time.Minute

// lines is a [slog.Handler] for the SDK, which logs each message of it once per interval,
// as a warning.
type lines struct {
	logger *slog.Logger

	mu       sync.Mutex
	samplers map[string]*logsampler.Sampler // by message
}

// maxMessages bounds the messages that are sampled apart.
const maxMessages = 100

// warn writes a line of a kind, at most one in each interval, with the number of those
// left out. Kinds past maxMessages share one sampler, so that messages that differ each time are
// bounded as well. Values are cleaned of passwords, as endpoints may have some.
func (l *lines) warn(kind, message string, attributes ...slog.Attr) {
	l.mu.Lock()
	if len(l.samplers) >= maxMessages && l.samplers[kind] == nil {
		kind = "" // of all others
	}
	sampler := l.samplers[kind]
	if sampler == nil {
		sampler = logsampler.New(1, interval, nil)
		l.samplers[kind] = sampler
	}
	l.mu.Unlock()
	var redacted []any
	for _, a := range attributes {
		redacted = append(redacted, a.Key, document.Redact(a.Value.String()))
	}
	sampler.Warn(l.logger, message, redacted...)
}

// Enabled implements [slog.Handler]: for errors and, at logr's level 1, the SDK's warnings.
func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= -1 }

// Handle implements [slog.Handler].
//
//nolint:gocritic // by value, as the interface has it
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	var attributes []slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		attributes = append(attributes, a)
		return true
	})
	l.warn(r.Message, "OpenTelemetry: "+r.Message, attributes...)
	return nil
}

// WithAttrs implements [slog.Handler]; the SDK uses none.
func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements [slog.Handler]; the SDK uses none.
func (l *lines) WithGroup(string) slog.Handler { return l }
