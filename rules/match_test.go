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

func TestBadPatterns(t *testing.T) {
	for _, pattern := range []string{
		"users", "*", "/a*", "/{", "/{}", "/{a}b", "/{a}/{a}", "/a/**/b", "/**/", "/a?b", "/a#b", "/{a}{b}", "/{a*}",
		"/%2A", "/a/%7bid%7D", "/*/../%2A", "/*/..", "/{a}/../b", "/a/%2a/../b",
	} {
		r := onPath("a", pattern)
		if r.Validate() == nil {
			t.Errorf("%q is accepted", pattern)
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
	for _, bad := range []string{"*", "*.", "a..b", ".a", "a/b", "a b", "*.*.a", "a*", "a:80", "[::1]", "%61.b", "b\u00fccher.example", "a@b"} {
		r := rule("a")
		r.Match.Hosts = []string{bad}
		if r.Validate() == nil {
			t.Errorf("%q is accepted", bad)
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
	for _, host := range []string{
		"%61dmin.example.com", "admin%2Eexample.com", "admin.example.com%00", "admin.example.com:%38", "%", "\xaadmin.example.com", "a\u00addmin.example.com",
		"\uff41dmin.example.com", "x@admin.example.com", "x:y@admin.example.com", `admin.example.com\x`, "admin.example.com/x", "admin.example.com?x",
		"admin.example.com#x", "admin.example.com ", "admin.exam\tple.com", "[::1]@admin.example.com", "[::1]admin.example.com", "[::1", "[a@b]", "::1]",
		"[fe80::1%25%61]", "[fe80::1%eth0]", "a\x00b", "[[::1]]",
	} {
		for i, set := range sets {
			err := set.Match(&rules.Request{Host: host}, &m)
			if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "host is") || m.Len() != 0 {
				t.Errorf("host %q, set %d: %d rules, %v", host, i, m.Len(), err)
			}
		}
		if err := anyHost.Match(&rules.Request{Host: host}, &m); err != nil || m.Len() != 1 {
			t.Errorf("host %q, rules of any host: %d rules, %v", host, m.Len(), err)
		}
	}
	for _, host := range []string{"", "a_b-c.example.com:80", "xn--bcher-kva.example", "[2001:db8::1]:443", "[fe80::1%25eth0]", "192.0.2.1", "a~!$&'()*+,;=b:", "::1"} {
		if err := sets[0].Match(&rules.Request{Host: host}, &m); err != nil {
			t.Errorf("host %q: %v", host, err)
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

// An attribute is what the program gave, and never a header field of its name.
func TestAttributes(t *testing.T) {
	for _, test := range []struct {
		name       string
		match      map[string][]string
		attributes map[string]string
		want       bool
	}{
		{"value", map[string][]string{"plan": {"free"}}, map[string]string{"plan": "free"}, true},
		{"another value", map[string][]string{"plan": {"free"}}, map[string]string{"plan": "Free"}, false},
		{"one of several", map[string][]string{"plan": {"gold", "free"}}, map[string]string{"plan": "free"}, true},
		{"none there", map[string][]string{"plan": {"free"}}, nil, false},
		{"any", map[string][]string{"plan": {"*"}}, map[string]string{"plan": ""}, true},
		{"any of none", map[string][]string{"plan": {"*"}}, map[string]string{"tenant": "a"}, false},
		{"both", map[string][]string{"plan": {"free"}, "tenant": {"a"}}, map[string]string{"plan": "free", "tenant": "a"}, true},
		{"one of two", map[string][]string{"plan": {"free"}, "tenant": {"a"}}, map[string]string{"plan": "free"}, false},
	} {
		r := rule("a")
		r.Match.Attributes = test.match
		request := rules.Request{Attributes: test.attributes, Header: http.Header{"Plan": {"free"}, "plan": {"free"}}}
		if got := matched(t, compile(t, r), request); (len(got) == 1) != test.want {
			t.Errorf("%s: matched are %v, want a match: %v", test.name, got, test.want)
		}
	}
}

func TestMethodsAndHeaders(t *testing.T) {
	for _, test := range []struct {
		name   string
		match  rules.Match
		method string
		header http.Header
		want   bool
	}{
		{"method", rules.Match{Methods: []string{"GET", "PUT"}}, "PUT", nil, true},
		{"other method", rules.Match{Methods: []string{"GET", "PUT"}}, "POST", nil, false},
		{"HEAD as GET, RFC 9110 9.3.2", rules.Match{Methods: []string{"PUT", "GET"}}, "HEAD", nil, true},
		{"HEAD without GET", rules.Match{Methods: []string{"PUT"}}, "HEAD", nil, false},
		{"GET is not HEAD", rules.Match{Methods: []string{"HEAD"}}, "GET", nil, false},
		{"method's case", rules.Match{Methods: []string{"GET"}}, "get", nil, false},
		{"field", rules.Match{Headers: map[string]string{"x-plan": "free"}}, "GET", http.Header{"X-Plan": {"free"}}, true},
		{"field's case", rules.Match{Headers: map[string]string{"x-plan": "free"}}, "GET", http.Header{"X-Plan": {"Free"}}, false},
		{"no field", rules.Match{Headers: map[string]string{"x-plan": "free"}}, "GET", nil, false},
		{"second line", rules.Match{Headers: map[string]string{"x-plan": "free"}}, "GET", http.Header{"X-Plan": {"paid", "free", "free"}}, true},
		{"any value", rules.Match{Headers: map[string]string{"x-plan": "*"}}, "GET", http.Header{"X-Plan": {""}}, true},
		{"any of none", rules.Match{Headers: map[string]string{"x-plan": "*"}}, "GET", http.Header{"X-Plan": {}}, false},
		{"both", rules.Match{Headers: map[string]string{"a": "*", "b": "2"}}, "GET", http.Header{"A": {"1"}, "B": {"2"}}, true},
		{"one of two", rules.Match{Headers: map[string]string{"a": "*", "b": "2"}}, "GET", http.Header{"A": {"1"}}, false},
	} {
		r := rule("a")
		r.Match = test.match
		if got := matched(t, compile(t, r), rules.Request{Method: test.method, Header: test.header}); (len(got) == 1) != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
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

func TestZeroSetMatchesNothing(t *testing.T) {
	if got := matched(t, new(rules.Set), rules.Request{}); len(got) != 0 {
		t.Errorf("got %v", got)
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
	for _, path := range []string{
		"", "/", "*", "/login", "/login/", "/a/b/c.d/", "/.well-known/x", "/...", "/a/..b/c.", "/a%20b", "/a+b", "/caf%C3%A9", "/\u00e9", "/%6cogin", "/a%2eb", "/%252F", "/a%25",
		"/100%", "/%zz", "/a:b@c", "/~u/a,b", "/a?b;c", "/login?next=//x/../y%2F#z", "/a?b\\c", "/" + strings.Repeat("a/", 2000),
	} {
		check(path, false)
	}
	for _, path := range []string{
		"//", "//login", "/login//", "/a//b", "///", "/a%2Fb", "/a%2fb", "/%2F", `/a\b`, `/\x/login`, "/a%5Cb", "/a%5cb", "/a#b", "/login#", "/.", "/..", "/a/.", "/a/..", "/./a",
		"/a/../b", "/%2e/a", "/a/%2E%2e/b", "/a/.%2e", `\login`, "//x?y", "/x/.?y",
		"/a;x=1", "/a;", "/a;x/b", "/..;/a", "/a%3bx", "/a%3Bx?y",
		"/" + strings.Repeat("a/", 2000) + "/", "//" + strings.Repeat("x", 1<<20),
	} {
		check(path, true)
	}
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
