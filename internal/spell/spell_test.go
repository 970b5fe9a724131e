package spell_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/spell"
)

// What the library says of an option of a limit names it as documents do.
func TestDocument(t *testing.T) {
	bucket := stint.TokenBucket(1, stint.PerSecond(1))
	for want, limit := range map[string]stint.Limit{
		"stint: max_debt is -2; allowed: 0 to 1000000000":                                      bucket.WithMaxDebt(-2),
		"stint: min_interval is 1ns; allowed: only with SLIDING_WINDOW_LOG":                    bucket.WithMinInterval(1),
		"stint: count_denied is true; allowed: only with SLIDING_WINDOW_LOG":                   bucket.CountingDenied(),
		`stint: timezone is "Local"; allowed: an IANA time zone such as Europe/Berlin, or UTC`: stint.CalendarWindow(1, stint.CalendarDay, "Local"),
	} {
		if got := spell.Document(limit.Validate().Error()); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"url", "username", "timeout", "tls", "key_prefix"}
	for text, want := range map[string]string{
		"urll": "url", "ulr": "url", "usrname": "username", "keyprefix": "key_prefix", "timeuot": "timeout",
		"t": "", "xx": "", "password": "", "": "", "tsl": "tls", "Timeout": "timeout", "timout": "timeout",
		strings.Repeat("u", 65): "",
	} {
		if got := spell.Nearest(text, names); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := spell.Nearest("url", nil); got != "" {
		t.Errorf("of no names: %q", got)
	}
}
