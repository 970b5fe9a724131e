package must_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// A record is a test that remembers how it was ended.
type record struct {
	testing.TB
	ended []any
}

func (*record) Helper() {}

func (r *record) Fatal(args ...any) { r.ended = append(r.ended, args...) }

func TestMust(t *testing.T) {
	fails := errors.New("no")
	for err, want := range map[error]string{nil: "[]", fails: "[no no no]"} {
		var r record
		must.Do(&r, err)
		one := must.Get(1, err)(&r)
		two, three := must.Two(2, "three", err)(&r)
		if got := fmt.Sprint(r.ended); got != want || one != 1 || two != 2 || three != "three" {
			t.Errorf("with %v: ended by %s, want %s; values %v %v %v", err, got, want, one, two, three)
		}
	}
}
