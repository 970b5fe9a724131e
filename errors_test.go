package stint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stint-go/stint"
)

// A fault tells what came, and of what is long the beginning and how long it is: it ends in logs and in
// answers to whoever sent it.
func TestFaultOfALongValue(t *testing.T) {
	for _, value := range []string{strings.Repeat("x", 500_000), strings.Repeat("ä", 500_000), "x" + strings.Repeat("€", 500)} {
		err := stint.Invalid("key", value, "1 to 256 bytes")
		text := err.Error()
		if len(text) > 400 || !utf8.ValidString(text) || !strings.Contains(text, " bytes); allowed: 1 to 256 bytes") || !strings.Contains(err.Value, value[len(value)-1:]) {
			t.Errorf("%d bytes: %q", len(value), text)
		}
	}
	longest := strings.Repeat("k", stint.MaxKeyBytes)
	if text := stint.Invalid("key", longest, "another").Error(); text != `key is "`+longest+`"; allowed: another` {
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
