package stint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// A fault repeats the value that came. Of a long value it repeats the beginning, and says how long it is: it ends in
// logs and in answers to its sender.
func TestFaultOfALongValue(t *testing.T) {
	for _, value := range []string{strings.Repeat("x", 500_000), strings.Repeat("ä", 500_000), "x" + strings.Repeat("€", 500)} {
		err := stint.Invalid("key", value, "1 to 256 bytes")
		text := err.Error()
		if len(text) > 400 || !utf8.ValidString(text) || !strings.Contains(text, " bytes); allowed: 1 to 256 bytes") || !strings.Contains(err.Value, value[len(value)-1:]) {
			t.Errorf("%d bytes: %q", len(value), text)
		}
	}
	longest := strings.Repeat("k", bounds.MaxKeyBytes)
	if text := stint.Invalid("key", longest, "another").Error(); text != `stint: key is "`+longest+`"; allowed: another` {
		t.Errorf("the longest key: %q", text)
	}
}

// Neither a name, nor a value, nor what is allowed makes an error longer than anybody reads.
func TestInvalidClips(t *testing.T) {
	long := strings.Repeat("é", 30_000)
	for _, err := range []*stint.InvalidError{
		stint.Invalid(long, 1, "2"), stint.Invalid("a", long, "2"), stint.Invalid("a", 1, long), stint.Invalid(long, long, long),
	} {
		if text := err.Error(); len(text) > 1800 || !strings.Contains(text, "… (600") || !utf8.ValidString(text) {
			t.Errorf("%d bytes: %.100s", len(text), text)
		}
	}
}

// A caller that waits too long may be handled like any other deadline.
func TestErrDeadlineIsDeadlineExceeded(t *testing.T) {
	err := fmt.Errorf("waiting: %w", stint.ErrDeadline)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, stint.ErrDeadline) {
		t.Error("errors.Is does not find context.DeadlineExceeded and stint.ErrDeadline")
	}
	if errors.Is(context.DeadlineExceeded, stint.ErrDeadline) || errors.Is(err, context.Canceled) {
		t.Error("errors.Is finds too much")
	}
}

// What is wrong with an input is told with the package's name at its beginning.
func TestErrorsNameThePackage(t *testing.T) {
	store := memstore.New(memstore.Config{})
	limiter := must.Get(stint.New(store, "named", stint.TokenBucket(1, stint.PerSecond(1))))(t)
	ask := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"the name":        ask(stint.New(store, "", stint.TokenBucket(1, stint.PerSecond(1)))),
		"the store":       ask(stint.New(nil, "other", stint.TokenBucket(1, stint.PerSecond(1)))),
		"a limit":         ask(stint.New(store, "other", stint.TokenBucket(0, stint.PerSecond(1)))),
		"a policy":        ask(stint.NewPolicy("other")),
		"With":            ask(limiter.With(stint.TokenBucket(0, stint.PerSecond(1)))),
		"Allow":           ask(limiter.Allow(t.Context(), "")),
		"AllowN":          ask(limiter.AllowN(t.Context(), "key", 0)),
		"Peek":            ask(limiter.Peek(t.Context(), "")),
		"Wait":            ask(limiter.Wait(t.Context(), "")),
		"the zero limit":  ask(stint.New(store, "zero", stint.Limit{})),
		"none of a limit": ask(stint.New(store, "none")),
		"no store":        ask(stint.NewLimiter(stint.Config{Policy: limiter.Policy()})),
		"no policy":       ask(stint.NewLimiter(stint.Config{Store: store})),
	} {
		if !errors.Is(err, stint.ErrInvalid) || !strings.HasPrefix(err.Error(), "stint: ") || strings.Count(err.Error(), "stint: ") != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHowAHoldEnded(t *testing.T) {
	for end, want := range map[string]string{
		"committed": `stint: the hold "r-3" was committed at `,
		"cancelled": `stint: the hold "r-3" was cancelled at `,
		"expired":   `stint: the hold "r-3" expired at `,
	} {
		at := stint.Instant(1_700_000_000_000_000)
		if text := (&stint.ResolvedError{ID: "r-3", End: end, At: at}).Error(); text != want+at.String() {
			t.Errorf("%v: %s", end, text)
		}
	}
}
