package server

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestLogIsClipped(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	for name, log := range map[string]func(*slog.Logger){
		"a text":          func(l *slog.Logger) { l.Info("m", "path", long) },
		"an error":        func(l *slog.Logger) { l.Info("m", "err", errors.New(long)) },
		"a group":         func(l *slog.Logger) { l.Info("m", slog.Group("g", "a", long, "b", long)) },
		"with":            func(l *slog.Logger) { l.With("a", long).Info("m") },
		"with a group":    func(l *slog.Logger) { l.WithGroup("g").With("a", long).Info("m", "b", long) },
		"a value of many": func(l *slog.Logger) { l.Info("m", "v", slog.AnyValue(valuer(long))) },
	} {
		var text strings.Builder
		logger := clipLog(clipLog(slog.New(slog.NewTextHandler(&text, nil))))
		log(logger)
		if len(text.String()) > 2*maxAttr+200 || !strings.Contains(text.String(), "xx…") {
			t.Errorf("%s: %d bytes: %.100s", name, text.Len(), text.String())
		}
	}
	var text strings.Builder
	logger := clipLog(slog.New(slog.NewTextHandler(&text, nil)))
	logger.Info(long, stackAttr, long)
	if text.Len() > 2*maxLongAttr+200 {
		t.Errorf("a message and a stack have %d bytes", text.Len())
	}
	text.Reset()
	logger.Info("m", "n", 1, "d", time.Second, "short", "a b", "err", errors.New("e"), "t", true)
	if want := ` msg=m n=1 d=1s short="a b" err=e t=true` + "\n"; !strings.HasSuffix(text.String(), want) {
		t.Errorf("%q, want %q", text.String(), want)
	}
}

type valuer string

func (v valuer) LogValue() slog.Value { return slog.StringValue(string(v)) }
