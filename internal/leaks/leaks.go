// Package leaks finds the goroutines that tests leave behind. goleak gives them 0.4 s to end, for which a busy machine
// may not let them run; here they have minutes.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end, which only a test that fails waits for.
const patience = 2 * time.Minute

// None fails a test if goroutines go on that the options don't excuse.
func None(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := find(options); err != nil {
		t.Error(err)
	}
}

// Main runs the tests of a package, which fail if they leave goroutines behind.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := find(nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func find(options []goleak.Option) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err
}
