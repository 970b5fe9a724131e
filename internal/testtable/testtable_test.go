package testtable_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
)

type row struct {
	Text string
	N    int
	Is   bool
}

func TestRows(t *testing.T) {
	want := []row{{"a b", 1, true}, {"", -2, false}, {"# \"x\"  y\n", 0, true}, {`'say "it"'`, 3, false}}
	if got := testtable.Rows[row](t, "testdata/rows.txt"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// ends is a test that panics where another ends.
type ends struct{ testing.TB }

func (ends) Helper() {}

func (ends) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func TestRowsThatDoNotFit(t *testing.T) {
	for want, read := range map[string]func(must.Test){
		"rows.txt:2: the row has 3 cells; want 1": func(t must.Test) { testtable.Rows[struct{ A string }](t, "testdata/rows.txt") },
		"invalid syntax":                          func(t must.Test) { testtable.Rows[struct{ A, B, C bool }](t, "testdata/rows.txt") },
		"field A is neither a text":               func(t must.Test) { testtable.Rows[struct{ A, B, C float64 }](t, "testdata/rows.txt") },
		"no such file":                            func(t must.Test) { testtable.Rows[row](t, "testdata/none.txt") },
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
