package rules_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

func TestPathPatterns(t *testing.T) {
	for _, test := range testtable.Rows[struct {
		Pattern, Path string
		Want, Strict  bool
	}](t, "testdata/paths.txt") {
		for _, strict := range []bool{false, true} {
			want := test.Want
			if strict {
				want = test.Strict
			}
			set := must.Get(rules.Compile([]rules.Rule{onPath("a", test.Pattern)}, rules.Options{StrictSlash: strict}))(t)
			if got := matched(t, set, rules.Request{Path: test.Path}); (len(got) == 1) != want {
				t.Errorf("%q matches %q: %v, want %v (strict: %v)", test.Pattern, test.Path, !want, want, strict)
			}
		}
	}
}

func TestHostPatterns(t *testing.T) {
	for _, test := range testtable.Rows[struct {
		Pattern, Host string
		Want          bool
	}](t, "testdata/hosts.txt") {
		r := rule("a")
		r.Match.Hosts = one(test.Pattern)
		if got := matched(t, compile(t, r), rules.Request{Host: test.Host}); (len(got) == 1) != test.Want {
			t.Errorf("%q matches %q: %v, want %v", test.Pattern, test.Host, !test.Want, test.Want)
		}
	}
}

// What programs may take for another host is refused, where a rule asks for a host.
func TestHostsThatAreRefused(t *testing.T) {
	exact, below := rule("a"), rule("b")
	exact.Match.Hosts, below.Match.Hosts = []string{"admin.example.com"}, []string{"*.example.org"}
	sets := []*rules.Set{compile(t, exact), compile(t, below), compile(t, exact, below)}
	anyHost := compile(t, rule("c"))
	var m rules.Matches
	for _, test := range testtable.Rows[struct {
		Host    string
		Refused bool
	}](t, "testdata/refused_hosts.txt") {
		for i, set := range sets {
			err := set.Match(&rules.Request{Host: test.Host}, &m)
			refused := errors.Is(err, stint.ErrInvalid) && strings.Contains(err.Error(), "host is") && m.Len() == 0
			if refused != test.Refused || err != nil && !refused {
				t.Errorf("host %q, set %d: %d rules, %v", test.Host, i, m.Len(), err)
			}
		}
		if err := anyHost.Match(&rules.Request{Host: test.Host}, &m); err != nil || m.Len() != 1 {
			t.Errorf("host %q, rules of any host: %d rules, %v", test.Host, m.Len(), err)
		}
	}
}

// A path may begin with an authority, whose host a program may go by.
func TestHostOfAPath(t *testing.T) {
	exact, below, path := rule("a"), rule("b"), onPath("c", "/login")
	exact.Match.Hosts, below.Match.Hosts = []string{"admin.example.com"}, []string{"*.example.org"}
	set := compile(t, exact, below, path)
	for target, want := range map[string]string{
		"//admin.example.com/x": "a", `/\ADMIN.example.com.:80/login`: "a c", "/////admin.example.com": "a", "//u:p@admin.example.com/login": "a c",
		"//%61dmin.example.com": "a", "//a.b.example.org/login": "b c", "//example.org/login": "c", "/admin.example.com/x": "", "/x//admin.example.com": "",
	} {
		if got := matched(t, set, rules.Request{Host: "www.example.com", Path: target}); !equalIDs(got, want) {
			t.Errorf("%q matches %v, want %s", target, got, want)
		}
	}
	if got := matched(t, set, rules.Request{Host: "admin.example.com", Path: "//admin.example.com//login"}); !equalIDs(got, "a c") {
		t.Errorf("matched are %v, each rule once", got)
	}
}

// A rule matches methods, header fields and attributes. An attribute is what the program gave, and never a header field
// of its name.
func TestMatch(t *testing.T) {
	for _, test := range testtable.Rows[struct {
		Name, Match, Request string
		Want                 bool
	}](t, "testdata/match.txt") {
		r, request := rule("a"), rules.Request{Header: http.Header{"Plan": {"free"}, "plan": {"free"}}}
		patch(t, &r.Match, test.Match)
		patch(t, &request, test.Request)
		if got := matched(t, compile(t, r), request); (len(got) == 1) != test.Want {
			t.Errorf("%s: matched are %v, want a match: %v", test.Name, got, test.Want)
		}
	}
}

func TestOrder(t *testing.T) {
	low, b, a, off := rule("low"), onPath("b", "/*"), onPath("a", "/x"), rule("off")
	b.Priority, a.Priority, low.Priority, off.Priority, off.Disabled = 5, 5, -1, 9, true
	everywhere := rule("zero")
	everywhere.Match.Hosts = []string{"*.example"}
	set := compile(t, low, b, off, everywhere, a)
	if got := matched(t, set, rules.Request{Host: "x.example", Path: "/x"}); !equalIDs(got, "a b zero low") {
		t.Errorf("matched are %v, want by priority and ID", got)
	}
	if set.Len() != 5 || set.Rules()[0].ID != "off" {
		t.Errorf("the set has %d rules, the first %q; want 5 with the disabled one", set.Len(), set.Rules()[0].ID)
	}
	if _, ok := set.Rule("off"); !ok {
		t.Error("the disabled rule is not found by its ID")
	}
	var many []rules.Rule
	for i := range 40 {
		r := rule(string(rune('z'-i%26)) + string(rune('A'+i%26)) + string(rune('0'+i/26)))
		r.Priority, r.Match.Paths = i%7, one([]string{"", "/x", "/*", "/x/**"}[i%4])
		many = append(many, r)
	}
	ids := matched(t, compile(t, many...), rules.Request{Path: "/x"})
	for i, r := range compile(t, many...).Rules() {
		if len(ids) != 40 || ids[i] != r.ID {
			t.Fatalf("matched are %v, want by priority and ID", ids)
		}
	}
}

func TestASetIsItsOwn(t *testing.T) {
	r := onPath("a", "/x")
	r.Match.Methods, r.Limits = []string{"GET"}, []stint.Limit{ten}
	list := []rules.Rule{r}
	set := compile(t, list...)
	list[0].Match.Methods[0], list[0].Limits[0].Capacity, list[0].Scope[0] = "PUT", 99, "?"
	if got := matched(t, set, rules.Request{Method: "GET", Path: "/x"}); !equalIDs(got, "a") {
		t.Error("who changes the list changes the set")
	}
	if own, _ := set.Rule("a"); own.Limits[0].Capacity != 10 || own.Scope[0] != rules.PerIP {
		t.Error("who changes the list changes the set's rules")
	}
}

// Ambiguous paths are those of more than one variant; MatchUnambiguous refuses them, with and without rules.
func TestAmbiguousPaths(t *testing.T) {
	sets := []*rules.Set{compile(t, onPath("a", "/**")), new(rules.Set)}
	check := func(path string, ambiguous bool) {
		t.Helper()
		for _, set := range sets {
			var m rules.Matches
			err := set.MatchUnambiguous(&rules.Request{Path: path}, &m)
			switch {
			case !ambiguous && (err != nil || m.Len() != set.Len()), ambiguous && (!errors.Is(err, stint.ErrInvalid) || m.Len() > 0):
				t.Errorf("%.80q, of %d rules: %d match, %v", path, set.Len(), m.Len(), err)
			case ambiguous && len(err.Error()) > 500:
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		}
	}
	for _, test := range testtable.Rows[struct {
		Path      string
		Ambiguous bool
	}](t, "testdata/ambiguous.txt") {
		check(test.Path, test.Ambiguous)
	}
	long := strings.Repeat("a/", 2000)
	check("/"+long, false)
	check("/"+long+"/", true)
	check("//"+strings.Repeat("x", 1<<20), true)
}

// A path that can be read in several ways is refused when it is long, since each of them costs what it
// is long; one of one variant is not, nor a query, nor anything where there are no rules.
func TestOddPathBound(t *testing.T) {
	set, none := compile(t, onPath("a", "/**")), new(rules.Set)
	long := func(n int, odd string) string { return "/x" + odd + strings.Repeat("y", n-2-len(odd)) }
	var m rules.Matches
	check := func(path string, fits bool) {
		t.Helper()
		err := set.Match(&rules.Request{Path: path}, &m)
		if fits != (err == nil) || fits != (m.Len() == 1) || err != nil && !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%.20q, %d bytes: %d rules, %v", path, len(path), m.Len(), err)
		}
		if err := none.Match(&rules.Request{Path: path}, &m); err != nil || m.Len() != 0 {
			t.Errorf("%.20q, %d bytes, no rules: %v", path, len(path), err)
		}
	}
	for _, odd := range []string{"//", "/./", "/../x/", "/%2e/", "/%2F", `/\`, "/%5c", "#"} {
		for n, fits := range map[int]bool{bounds.MaxOddPathBytes: true, bounds.MaxOddPathBytes + 1: false, 1 << 20: false} {
			check(long(n, odd), fits)
			check(long(n, odd)+"?"+strings.Repeat("q", bounds.MaxOddPathBytes), fits)
		}
	}
	for _, cut := range []string{"/", `\`, "%2f", "%5C", "/y", "%2Fy", "/.", "/.."} {
		check("/x%2F"+strings.Repeat(cut, bounds.MaxOddPathCuts-1), true)
		check("/x%2F"+strings.Repeat(cut, bounds.MaxOddPathCuts), false)
		check("/x"+strings.Repeat(cut, bounds.MaxOddPathCuts-1)+"#", true)
		check("/x"+strings.Repeat(cut, bounds.MaxOddPathCuts)+"#", false)
	}
	for _, lead := range []string{"//y", `/\y`, "/%2Fy"} {
		check(lead+strings.Repeat("/y", bounds.MaxOddPathCuts/2-1), true)
		check(lead+strings.Repeat("/y", bounds.MaxOddPathCuts/2), false)
		check(lead+strings.Repeat("/;", bounds.MaxOddPathCuts/16-1), true)
		check(lead+strings.Repeat("/;", bounds.MaxOddPathCuts/16), false)
	}
	for _, params := range []string{";", "%3b", ";a;b", "..;"} {
		check("/x"+strings.Repeat("/y", bounds.MaxOddPathCuts/8)+params, true)
		check("/x"+strings.Repeat("/y", bounds.MaxOddPathCuts/8+1)+params, false)
	}
	check(strings.Repeat("/y", bounds.MaxOddPathBytes), true)
	for _, one := range []string{"/", "/%41", "/%C3%A4/"} {
		if err := set.Match(&rules.Request{Path: long(1<<20, one)}, &m); err != nil || m.Len() != 1 {
			t.Errorf("%q: %d rules, %v", one, m.Len(), err)
		}
	}
	if err := set.Match(&rules.Request{Path: long(1<<20, "//")}, &m); err == nil || m.Len() != 0 {
		t.Errorf("after others: %d rules, %v", m.Len(), err)
	}
}
