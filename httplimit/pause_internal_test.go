package httplimit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testtable"
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
	for _, test := range testtable.Rows[struct {
		Field string
		OK    bool
		Want  string
	}](t, "testdata/quotas.txt") {
		list, ok := parseQuotas(test.Field)
		got := ""
		if list != nil {
			got = fmt.Sprint(list)
		}
		if ok != test.OK || got != test.Want {
			t.Errorf("%q: %v, %v; want %v, %v", test.Field, got, ok, test.Want, test.OK)
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
