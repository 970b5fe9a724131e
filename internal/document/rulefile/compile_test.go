package rulefile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
)

// Faults that only the compiler sees are told with the rule's place in the file, all at once.
func TestCompileTellsWhere(t *testing.T) {
	_, _, err := rulefile.ParseSet("rules.yaml", []byte(`
- {id: a, scope: per_user, limits: [{algorithm: fixed_window, limit: 1, window: 1s}]}
- {id: b, scope: global, banned: true}
- id: c
  match: {path: "no-slash"}
  scope: global
  banned: true
`), rules.Options{})
	if !errors.Is(err, stint.ErrInvalid) {
		t.Fatalf("the error is %v", err)
	}
	lines := strings.Split(strings.TrimPrefix(err.Error(), "stint: "), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d faults, want 2:\n%v", len(lines), err)
	}
	for i, want := range []struct{ at, param string }{{"rules.yaml:2:", "missing"}, {"rules.yaml:5:", "path"}} {
		if !strings.HasPrefix(lines[i], want.at) || !strings.Contains(lines[i], want.param) {
			t.Errorf("fault %d is %q, want it at %s and about %s", i, lines[i], want.at, want.param)
		}
	}
}

// Rules of which one request would meet too many limits are a fault of the last of them.
func TestCompileTellsWhereLimitsAreTooMany(t *testing.T) {
	var text strings.Builder
	for i := range bounds.MaxOpLimits/bounds.MaxLimits + 1 {
		fmt.Fprintf(&text, "- {id: r%d, scope: global, limits: [", i)
		for j := range bounds.MaxLimits {
			fmt.Fprintf(&text, "{algorithm: fixed_window, name: n%d, limit: 1, window: 1s}, ", j)
		}
		fmt.Fprintln(&text, "]}")
	}
	_, _, err := rulefile.ParseSet("rules.yaml", []byte(text.String()), rules.Options{})
	if err == nil || !strings.HasPrefix(err.Error(), `stint: rules.yaml:16:`) || !strings.Contains(err.Error(), "1024 together, ") {
		t.Errorf("the error is %v", err)
	}
}
