package storetest

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// Property tests of broken stores keep no files, don't shrink for long, and are the same each time.
func TestMain(m *testing.M) {
	if err := errors.Join(flag.Set("rapid.nofailfile", "true"), flag.Set("rapid.seed", "1"), flag.Set("rapid.shrinktime", "5m")); err != nil {
		panic(err)
	}
	m.Run()
}

// A recorder is a TB that records what a test reports.
type recorder struct {
	testing.TB
	text   strings.Builder
	failed bool
}

func (r *recorder) Logf(format string, args ...any)   { fmt.Fprintf(&r.text, format+"\n", args...) }
func (r *recorder) Errorf(format string, args ...any) { r.failed = true; r.Logf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); r.FailNow() }
func (r *recorder) Fail()                             { r.failed = true }
func (r *recorder) FailNow()                          { r.failed = true; runtime.Goexit() }
func (r *recorder) Failed() bool                      { return r.failed }

// watch runs a test that may fail.
func record(t *testing.T, test func(t testing.TB)) *recorder {
	seen := &recorder{TB: t}
	var group sync.WaitGroup
	group.Go(func() { test(seen) })
	group.Wait()
	return seen
}

// A store that takes the name of a policy for a pattern resets other policies, too.
func TestResetsByPatternAreCaught(t *testing.T) {
	pattern := &reference{reset: func(name string) string { return strings.ReplaceAll(name, "*", "a") }}
	if seen := record(t, func(t testing.TB) { testIdentity(t, like(pattern)) }); !strings.Contains(seen.text.String(), `reset of policy "rule/*"`) {
		t.Errorf("not caught: %s", seen.text.String())
	}
}

// The random sequences of a broken store are cut down to the operations that matter, and printed.
func TestRandomShrinks(t *testing.T) {
	for _, row := range []struct {
		name  string
		store *reference
		most  int // operations
		says  string
	}{
		{"resets that peek", &reference{before: func(op *stint.Op) {
			if op.Verb == stint.VerbReset {
				op.Verb, op.Permits = stint.VerbPeek, 1
			}
		}}, 8, "reset 0 of key"},
		{"a wait a microsecond too long", &reference{after: func(d *stint.Decision) {
			if d.RetryAfter > 0 && d.RetryAfter != stint.Never {
				d.RetryAfter += time.Microsecond
			}
		}}, 8, "RetryAfter: got "},
		{"resets of no policy", &reference{reset: func(string) string { return "nobody" }}, 8, "reset of policy"},
	} {
		t.Run(row.name, func(t *testing.T) {
			seen := record(t, func(t testing.TB) { testRandom(t, like(row.store), stint.AlgorithmFixedWindow, 5000) })
			text := seen.text.String()
			if n := strings.Count(text, "Z batch "); !seen.failed || n == 0 || n > row.most || !strings.Contains(text, row.says) || !strings.Contains(text, "-rapid.seed=") {
				t.Errorf("failed: %t with %d operations, expected at most %d, of which one is %q, and how to repeat it:\n%s", seen.failed, n, row.most, row.says, text)
			}
		})
	}
}
