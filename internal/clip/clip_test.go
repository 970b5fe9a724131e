package clip_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/clip"
)

func TestTo(t *testing.T) {
	for _, c := range []struct {
		most       int
		text, want string
	}{
		{3, "", ""},
		{3, "abc", "abc"},
		{3, "abcd", "abc…"},
		{3, "aé€", "aé…"},
		{4, "aé€", "aé…"},
		{5, "aé€", "aé…"},
		{6, "aé€", "aé€"},
		{1, "€", "…"},
		{0, "a", "…"},
		{9, strings.Repeat("\x80", 10), strings.Repeat("\x80", 5) + "…"},
	} {
		if got := clip.To(c.most, c.text); got != c.want {
			t.Errorf("%q to %d bytes is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
