package server

import (
	"context"
	"log/slog"

	"github.com/stint-go/stint/internal/clip"
)

const (
	// maxAttr bounds a text in a line of the log, in bytes.
	maxAttr = 1 << 10
	// maxLongAttr bounds those that nobody else writes: messages of net/http, and stacks.
	maxLongAttr = 16 << 10
	// stackAttr is the attribute of a stack.
	stackAttr = "stack"
)

// A clippedLog shortens long texts. All lines of the service go through it.
type clippedLog struct{ slog.Handler }

// clipLog bounds what attributes of lines may be, whoever writes them; a logger that does so
// already stays as it is.
func clipLog(logger *slog.Logger) *slog.Logger {
	if _, clipped := logger.Handler().(clippedLog); clipped {
		return logger
	}
	return slog.New(clippedLog{logger.Handler()})
}

// Handle clips the record's message and attributes.
func (l clippedLog) Handle(ctx context.Context, r slog.Record) error {
	clipped := slog.NewRecord(r.Time, r.Level, clip.To(maxLongAttr, r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clipped.AddAttrs(clipAttr(a))
		return true
	})
	return l.Handler.Handle(ctx, clipped)
}

// WithAttrs clips the attributes.
func (l clippedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	clipped := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clipped[i] = clipAttr(a)
	}
	return clippedLog{l.Handler.WithAttrs(clipped)}
}

// WithGroup is a log in which the attributes have a group.
func (l clippedLog) WithGroup(name string) slog.Handler { return clippedLog{l.Handler.WithGroup(name)} }

// clipAttr cuts texts, the texts of errors, and those within groups. A stack may be longer, as its
// end is of use.
func clipAttr(a slog.Attr) slog.Attr {
	most := maxAttr
	if a.Key == stackAttr {
		most = maxLongAttr
	}
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); len(text) > most {
			a.Value = slog.StringValue(clip.To(most, text))
		}
	case slog.KindGroup:
		group := a.Value.Group()
		clipped := make([]slog.Attr, len(group))
		for i, member := range group {
			clipped[i] = clipAttr(member)
		}
		a.Value = slog.GroupValue(clipped...)
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(clip.To(most, err.Error()))
		}
	case slog.KindBool,
		slog.KindDuration,
		slog.KindFloat64,
		slog.KindInt64,
		slog.KindTime,
		slog.KindUint64,
		slog.KindLogValuer:
	}
	return a
}
