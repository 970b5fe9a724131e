package testtable_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
)

type row struct {
	Text string
	N    int
	Is   bool
	Past time.Duration
}

func TestRows(t *testing.T) {
	want := []row{{"a b", 1, true, 0}, {"", -2, false, time.Minute}, {"# \"x\"  y\n", 0, true, 0}, {`'say "it"'`, 3, false, 2 * time.Second}}
	if got := testtable.Rows[row](t, "testdata/rows.txt"); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// ends is a test that panics where another ends.
type ends struct{ testing.TB }

func (ends) Helper() {}

func (ends) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func TestRowsThatDoNotFit(t *testing.T) {
	for want, read := range map[string]func(must.Test){
		"rows.txt:2: the row has 4 cells; want 1": func(t must.Test) { testtable.Rows[struct{ A string }](t, "testdata/rows.txt") },
		"invalid syntax":            func(t must.Test) { testtable.Rows[struct{ A, B, C, D bool }](t, "testdata/rows.txt") },
		"field A is neither a text": func(t must.Test) { testtable.Rows[struct{ A, B, C, D float64 }](t, "testdata/rows.txt") },
		"no such file":              func(t must.Test) { testtable.Rows[row](t, "testdata/none.txt") },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("%s, want %s", got, want)
				}
			}()
			read(ends{t})
		}()
	}
}
