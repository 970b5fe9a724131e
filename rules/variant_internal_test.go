package rules

import (
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// TestReadings counts the normalisations that a path's features leave open, as they are told in
// docs/adr/0010-every-reading-of-a-path.md.
func TestReadings(t *testing.T) {
	for path, want := range map[string]int{
		"/a/b": 1, "/a%20b": 1, "/a.b/...": 1, "/a/": 1,
		"/a#b": 2, "/a%2Fb": 2, `/a\b`: 2, "/a%5Cb": 2, `/a\b%5C`: 3, "/a//b": 2,
		"//a": 2 * 2, `/\a`: 2 * 2 * 2, "///a": 2 * 3, `//\a`: 2*(2*2+1) + 2, "/%2Fa": 2*2*2 + 2, "//#": 2*2 + 2, "/.//a": 2 + 3,
		"/a/../b": 2, "/a/%2e": 2, "/./%2e": 3,
		"/a%2Fc/../b": 2 + 3, "/a%2F/../b": 2*2 + 3*3, "/a//../b": 2 + 3, "/a//%2e%2e/../b": 2 + 3 + 3,
		"/a;b": 3, "/a;b/c": 3, "/a%3Bb": 5, "/a;b%2F": 2 * 5, "/..;a/b": 3 + 5, "/a/../b;c": 3 + 5, "/;a/b": 3 * 2,
		`/a;//./%2e/%2f\%5c#`: 2 * 3 * (2*2*5 + 2*3*(2*7+5)),
		`///./%2e;/%2f\%5c#`:  2*3*(2*2*5+2*3*(2*7+5)) + (3+2)*(2*(2*5+5)+2*3*(2*7+5)) + 2*(2*(2*5+5)+2*3*(2*7+5)) + 2*5 + 2*3*7,
		`/a//./%2e/%2f\%5c#`:  2 * 3 * (2*2 + 3*3 + 3*3),
		`//a//./%2e/%2f\%5c#`: 2*3*(2*2+3*3+3*3) + 3*(3*2+3*3+3*3) + 2*(3*2+3*3+3*3) + 2 + 3 + 3,
		`///./%2e/%2f\%5c#`:   2*3*(2*2+3*3+3*3) + (3+2)*(3*2+3*3+3*3) + 2*(3*2+3*3+3*3) + 2 + 3 + 3,
	} {
		var p decoded
		must.Do(t, p.decode(path, true))
		n, last := 1, canonical
		for as := canonical.after(p.features); as != canonical; as = as.after(p.features) {
			if as <= last {
				t.Fatalf("%q: %b follows on %b", path, as, last)
			}
			n, last = n+1, as
		}
		if n != want {
			t.Errorf("%q has %d variants, want %d", path, n, want)
		}
	}
}

// A variant from which several rules take parameters is made once.
func TestAReadingIsKept(t *testing.T) {
	r := Rule{Match: Match{Paths: []string{"/users/{id}"}}, Scope: []string{"custom:id"}, Banned: true}
	a, b := r, r
	a.ID, b.ID = "a", "b"
	set := must.Get(Compile([]Rule{a, b}, Options{}))(t)
	var m Matches
	must.Do(t, set.Match(&Request{Path: "/users/a%2Fb"}, &m))
	for i := range m.rules {
		if got := m.parameter(&m.rules[i], "id"); got != "a/b" {
			t.Errorf("rule %d has %q, want a/b", i, got)
		}
		m.decoded.pieces = nil // nothing is left to read again
	}
}
