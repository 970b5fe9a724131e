package rulefile

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-go/stint"
)

// Files are read again until nothing changes meanwhile: not one reading may be of two states.
func TestSettled(t *testing.T) {
	of := func(texts ...string) []Text {
		return []Text{{Name: "1.yaml", Data: []byte(texts[0])}, {Name: "2.yaml", Data: []byte(texts[1])}}
	}
	gone := errors.New("gone")
	for name, test := range map[string]struct {
		reads []any
		want  string // "" is an error
		asked int
	}{
		"nothing changes":      {[]any{of("a", "a"), of("a", "a")}, "aa", 2},
		"between two files":    {[]any{of("a", "b"), of("b", "b"), of("b", "b")}, "bb", 3},
		"twice":                {[]any{of("a", "b"), of("b", "c"), of("c", "c"), of("c", "c")}, "cc", 4},
		"missing for a moment": {[]any{gone, of("b", "b"), of("b", "b")}, "bb", 3},
		"missing":              {[]any{of("a", "a"), gone, gone}, "", 3},
		"less files":           {[]any{of("a", "a"), of("a", "a")[:1], of("a", "a")[:1]}, "a", 3},
	} {
		asked := 0
		sources, err := settled("rules", func() ([]Text, error) {
			asked++
			if err, failed := test.reads[asked-1].(error); failed {
				return nil, err
			}
			return test.reads[asked-1].([]Text), nil
		})
		got := ""
		for _, s := range sources {
			got += string(s.Data)
		}
		if got != test.want || asked != test.asked || (err != nil) != (test.want == "") {
			t.Errorf("%s: %q, %v after %d readings; want %q after %d", name, got, err, asked, test.want, test.asked)
		}
	}
	text := "a"
	_, err := settled("rules", func() ([]Text, error) {
		text += "a"
		return of(text, text), nil
	})
	if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "rules: what is there is changed whenever") {
		t.Errorf("files that never settle: %v", err)
	}
}
