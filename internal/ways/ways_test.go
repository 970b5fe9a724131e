package ways_test

import (
	"slices"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/ways"
)

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		ways []stint.Way
		want []int
	}{
		{nil, []int{}},
		{[]stint.Way{stint.Must, stint.Must}, []int{0, 0}},
		{
			[]stint.Way{stint.Either, stint.With, stint.Else, stint.Must, stint.Either, stint.Else, stint.With},
			[]int{16, 16, 17, 0, 32, 33, 33},
		},
	} {
		if got := ways.Numbers(test.ways); !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.ways, got, test.want)
		}
	}
}
