package prefix_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// Trim leaves what callers wrote, and Join nothing of nothing.
func TestTrim(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "stint: a": "a", "a": "a", "stint: stint: a": "a", "stint: a: stint: b\nstint: c": "a: b\nc", `stint: key is "stint: x"`: `key is "stint: x"`, "http://stint: a": "http://stint: a",
	} {
		if got := prefix.Trim(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if prefix.Join(nil, nil) != nil {
		t.Error("no errors are joined to one")
	}
	err := prefix.Join(io.EOF, prefix.Errorf("b: %w", stint.Invalid("a", 1, "2")))
	var invalid *stint.InvalidError
	if err.Error() != "stint: EOF\nb: a is 1; allowed: 2" || !errors.Is(err, io.EOF) || !errors.Is(err, stint.ErrInvalid) || !errors.As(err, &invalid) {
		t.Errorf("%v", err)
	}
}
