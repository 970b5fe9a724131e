package proc

import (
	"slices"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{
		"0":       {0},
		"0,1":     {0, 1},
		"2-4,8":   {2, 3, 4, 8},
		"":        nil,
		"4-2":     nil,
		"0,x":     nil,
		"0-1-2,3": nil,
	} {
		got, err := parseCPUs(list)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, error %v; want %v", list, got, err, want)
		}
	}
}
