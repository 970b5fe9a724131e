package httplimit

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// grammar is the list of RFC 9651 (sections 3 and 4.2) as a regular expression, which
// it can be, since inner lists do not nest. It knows neither base64 nor UTF-8.
func grammar() *regexp.Regexp {
	const (
		item = `(?:-?[0-9]{1,15}|-?[0-9]{1,12}\.[0-9]{1,3}|"(?:[ !#-\[\]-~]|\\["\\])*"|[A-Za-z*][!#$%&'*+.^_|~0-9A-Za-z:/` + "`" + `-]*` +
			`|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}|%"(?:[ !#$&-~]|%[0-9a-f]{2})*")`
		parameters = `(?:; *[a-z*][a-z0-9_.*-]*(?:=` + item + `)?)*`
		inner      = `\( *(?:` + item + parameters + `(?: +` + item + parameters + `)*)? *\)`
		member     = `(?:` + item + `|` + inner + `)` + parameters
	)
	return regexp.MustCompile(`^ *(?:` + member + `(?:[ \t]*,[ \t]*` + member + `)*[ \t]*)?$`)
}

// Where the grammar alone does not decide.
var opaque = regexp.MustCompile(`:[A-Za-z0-9+/=]*:|%"`)

func TestParseQuotas(t *testing.T) {
	for _, test := range []struct {
		field string
		want  []quota
		ok    bool
	}{
		{``, nil, true},
		{`"default";r=50;t=30`, []quota{{50, 30}}, true},
		{`  "a";r=0;t=1 ,	"b";t=2 `, []quota{{0, 1}, {-1, 2}}, true},
		{`"a";r=1;r=2; t=3`, []quota{{2, 3}}, true}, // the last one counts, section 4.2.3.2
		{`"a";r=1;r=x`, []quota{{-1, -1}}, true},
		{`"a\"\\";r=1;pk=:cGs=:;u;v=?0;w=1.5;x=@9;y=%"f%c3%bc"`, []quota{{1, -1}}, true},
		{`"a";a=0;w=7, "b";w=2;a=0;a=5`, []quota{{0, 7}, {5, 2}}, true},       // as the proposal 166 spells it
		{`"a";r=1;t=2;w=60, "b";a=0;w=9;r=3`, []quota{{1, 2}, {3, -1}}, true}, // r is the draft's, whatever else there is
		{`"a";w=9;t=1, "b";a=x;w=1`, []quota{{-1, 1}, {-1, -1}}, true},
		{`tok;r=1, 5;r=1, ("a" b;c);r=1, ();r=2, "a";r=3`, []quota{{3, -1}}, true},
		{`"a";r=999999999999999`, []quota{{999999999999999, -1}}, true},
		{`"a";r=1000000000000000`, nil, false}, // 16 digits
		{`"a";r=-0`, []quota{{0, -1}}, true},
		{`limit=10, remaining=0, reset=5`, nil, false}, // of older drafts
		{`"a";r=1,`, nil, false},
		{`"a";r=1, , "b"`, nil, false},
		{`"a" "b"`, nil, false},
		{`"a";R=1`, nil, false},
		{`"a";r=`, nil, false},
		{`"a`, nil, false},
		{`"\a"`, nil, false},
		{"\"\x7f\"", nil, false},
		{`("a""b")`, nil, false},
		{`("a"`, nil, false},
		{`:AA:`, nil, true},
		{`:A:`, nil, false},
		{`:AA===:`, nil, false},
		{":AA\n:", nil, false},
		{`%"%c3"`, nil, false},
		{`%"%C3%BC"`, nil, false},
		{`?2`, nil, false},
		{`1.`, nil, false},
		{`1.2345`, nil, false},
		{`@1.5`, nil, false},
		{"\t\"a\"", nil, false},
		{`"a;r=0";r=1;x=";r=5";t=2, "b,\"";r=3`, []quota{{1, 2}, {3, -1}}, true},
		{`:AAA:, :AAAA:, :AAA=:, :AA:`, nil, true},
		{`:AAA==:`, nil, false},
		{`%"%e2%82%ac%f0%9f%98%80"`, nil, true},
		{`%"%e2%82"`, nil, false},
	} {
		got, ok := parseQuotas(test.field)
		if ok != test.ok || !slices.Equal(got, test.want) {
			t.Errorf("%q: %v, %v; want %v, %v", test.field, got, ok, test.want, test.ok)
		}
	}
}

// FuzzParseQuotas holds the reader to the grammar, and to section 4.2: a list joined
// to itself by a comma is its members twice.
func FuzzParseQuotas(f *testing.F) {
	for _, seed := range []string{
		`"default";r=50;t=30`, `"a";a=0;w=3;c=1`, `"a";r=0;t=1, "b";r=5;pk=:cGs=:`, `("a" b;c=1.5);d, ?1, @5`, `%"f%c3%bc";x`, `*a/b:c;*=-1`,
	} {
		f.Add(seed)
	}
	list := grammar()
	f.Fuzz(func(t *testing.T, field string) {
		got, ok := parseQuotas(field)
		if fits := list.MatchString(field); ok && !fits || !ok && fits && !opaque.MatchString(field) {
			t.Fatalf("%q: read %v, by the grammar %v", field, ok, fits)
		}
		for _, q := range got {
			if q.remaining < -1 || q.grows < -1 {
				t.Errorf("%q: %v", field, q)
			}
		}
		if !ok || strings.Trim(field, " ") == "" || field[0] == ' ' {
			return
		}
		if twice, ok := parseQuotas(field + ", " + field); !ok || !slices.Equal(twice, append(got, got...)) {
			t.Errorf("%q: %v; twice: %v, %v", field, got, twice, ok)
		}
	})
}
