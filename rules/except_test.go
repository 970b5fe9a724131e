package rules_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// An exception is no way around a rule: a path is excepted if the rule excepts all variants of it that it would match.
func TestExceptions(t *testing.T) {
	for _, test := range testtable.Rows[struct {
		Paths, Except, Path string
		Want                bool
	}](t, "testdata/exceptions.txt") {
		r := onPath("a", test.Paths)
		r.Match.Except = []string{"/elsewhere", test.Except}
		if got := matched(t, compile(t, r), rules.Request{Path: test.Path}); (len(got) == 1) != test.Want {
			t.Errorf("%q without %q holds for %q: %v, want %v", test.Paths, test.Except, test.Path, !test.Want, test.Want)
		}
	}
}

// A rule holds once, however many of its paths and hosts match.
func TestSeveralPathsAndHosts(t *testing.T) {
	r := rule("a")
	r.Match.Paths = []string{"/a/**", "/a/b", "/*/b", "/c"}
	r.Match.Hosts = []string{"*.example.com", "api.example.com", "*.com", "example.org"}
	set := compile(t, r, rule("b"))
	for _, test := range []struct{ host, path, want string }{
		{"api.example.com", "/a/b", "a b"},
		{"www.example.com", "/c", "a b"},
		{"example.org", "/x/b", "a b"},
		{"example.com", "/c", "a b"},
		{"example.net", "/c", "b"},
		{"example.org", "/x", "b"},
		{"example.org", "//x//a%2Fb", "a b"},
	} {
		if got := matched(t, set, rules.Request{Host: test.host, Path: test.path}); !equalIDs(got, test.want) {
			t.Errorf("%s%s matches %v, want %s", test.host, test.path, got, test.want)
		}
	}
}

// A parameter may have another place in each path; the first path that matches tells it.
func TestAParameterOfSeveralPaths(t *testing.T) {
	r := rule("a")
	r.Match.Paths, r.Scope = []string{"/users/{id}/**", "/{id}/x/{of}", "/teams/{of}/{id}"}, []string{"custom:id"}
	set := compile(t, r)
	for path, want := range map[string]string{
		"/users/7": "7", "/users/7/9": "7", "/users/x/9": "x", "/teams/7/9": "9", "/b/x/9": "b", "/teams/x/9": "teams", "/teams/a%2Fb/9": "9", "/teams/7/8//": "8",
	} {
		if h := held(t, set, rules.Request{Path: path}); h.Claim.Key != want {
			t.Errorf("%s is counted as %q, want %q", path, h.Claim.Key, want)
		}
	}
}

// Texts of paths that several hosts have take memory for each.
func TestTooManyPathsAndHosts(t *testing.T) {
	r := rule("")
	for i := range 64 {
		r.Match.Paths = append(r.Match.Paths, fmt.Sprintf("/%d", i))
		r.Match.Hosts = append(r.Match.Hosts, fmt.Sprintf("%d.example", i))
	}
	var list []rules.Rule
	for i := range 600 {
		list = append(list, r)
		list[i].ID = fmt.Sprint(i)
	}
	const want = "stint: rules is more than 4194304 segments of paths, those of several hosts counted for each; allowed: fewer"
	if _, err := rules.Compile(list, rules.Options{}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := rules.Compile(slices.Clone(list[:1]), rules.Options{}); err != nil {
		t.Error(err)
	}
}
