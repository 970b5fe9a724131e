package problem

import (
	"fmt"
	"strings"
	"testing"
)

func TestDetailIsClipped(t *testing.T) {
	line := strings.Repeat("a", 100)
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprint(i, line))
	}
	for name, c := range map[string]struct {
		detail string
		most   int
		end    string
	}{
		"short":     {"key is missing", 14, "key is missing"},
		"one line":  {strings.Repeat("é", 30_000), maxFault + 3, "é…"},
		"two lines": {strings.Repeat("x", 60_000) + "\n" + strings.Repeat("y", 60_000), 2*maxFault + 7, "yy…"},
		"many":      {strings.Join(many, "\n"), maxDetail + 20, "\nand 842 more"},
		"no UTF-8":  {strings.Repeat("\xff", 60_000), 3*maxFault + 3, "…"},
	} {
		if got := Clip(c.detail); len(got) > c.most || !strings.HasSuffix(got, c.end) {
			t.Errorf("%s: %d bytes that end in %q, want %d at most that end in %q", name, len(got), got[max(0, len(got)-20):], c.most, c.end)
		}
	}
}
