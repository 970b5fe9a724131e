package rules_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// FuzzPath holds the canonical form of paths against an independent way to it, every other spelling
// of a path against the first, and the rules of a path against what a router sees in it.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"", "/", "a", "/a/b/", "//a/./b/../c", `\a%2Fb%5c`, "/%2e%2E/x", "/%252e", "/a?b/..", "/%", "/%g1/%4", "/a/..", "/...", "*", "/a#", "/\xff", "/a/../%2e%2e/b%2F../c%5C", "/a%2F..%5C%2e/.%2e/b", "/a//../b", "//x/a", `/\u@h\a`, "////h#/a", "//%2Fh/../a%2Fb", `/a\b%5Cc`, "/a#/b", "/a/..%2fb", "/a/.%2fb/../c%2f", "//a//..//b", "/login;x", "/a;b/..;c/d", "/a/%2e%2e;b%2fc/d;e", "/a;b%2f../c%3Bd", `/x\..%3by\z;#/;a`, "//u;h/a;b/.", "/;a//b;", `/\0/\`, `/\h/a\b`, `//a\b\h/a\b`, "//a%2Fh/a%2F../b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got := string(rules.AppendPath(nil, path))
		if want := naivePath(path); got != want {
			t.Fatalf("%q becomes %q, want %q", path, got, want)
		}
		if got[0] != '/' || strings.Contains(got, "//") || strings.Contains(got, `\`) {
			t.Fatalf("%q becomes %q", path, got)
		}
		for _, segment := range strings.Split(got, "/") {
			if segment == "." || segment == ".." {
				t.Fatalf("%q becomes %q", path, got)
			}
		}
		if after := string(rules.AppendPath([]byte("x/../"), path)); after != "x/../"+got {
			t.Fatalf("behind other text %q becomes %q, want %q", path, after, got)
		}
		var all, some strings.Builder
		for i := range len(got) {
			fmt.Fprintf(&all, "%%%02x", got[i])
			if i%2 == 0 || strings.IndexByte("%?#", got[i]) >= 0 {
				fmt.Fprintf(&some, "%%%02X", got[i])
			} else {
				some.WriteByte(got[i])
			}
		}
		some2 := strings.ReplaceAll(some.String(), "/", `/.\x/..//`)
		for _, other := range []string{all.String(), some.String(), some2, "/.." + all.String(), all.String() + "?" + path} {
			if again := string(rules.AppendPath(nil, other)); again != got {
				t.Fatalf("%q becomes %q, want %q as of %q", other, again, got, path)
			}
		}
		mustHold(t, literally.Replace(got), path, all.String(), some.String())
		for _, view := range views(path) {
			mustHold(t, patternOf(view), path)
		}
		for i, unresolved := 0, views(path)[0]; i < len(unresolved); i++ {
			mustHold(t, patternOf(unresolved[:i])+"/**", path)
		}
	})
}

// patternOf is a pattern for what a router sees in a path. It may be longer than a pattern may be.
func patternOf(segments []string) (pattern string) {
	for i, segment := range segments {
		if segment == "" && i < len(segments)-1 || segment == "." || segment == ".." || strings.ContainsAny(segment, `/\*{}`) {
			segment = "*" // which no pattern names
		}
		pattern += "/" + literally.Replace(segment)
	}
	return pattern
}

// literally writes text so that a pattern stands for it.
var literally = strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23")

// mustHold fails unless the rule on a path, if there can be one, holds for all of the spellings.
func mustHold(t *testing.T, pattern string, spellings ...string) {
	t.Helper()
	for _, strict := range []bool{false, true} {
		set, err := rules.Compile([]rules.Rule{onPath("a", pattern)}, rules.Options{StrictSlash: strict})
		if err != nil {
			return // too long, or with what a pattern reads as its own
		}
		for _, spelling := range spellings {
			if ids := matched(t, set, rules.Request{Path: spelling}); len(ids) != 1 {
				t.Fatalf("the rule on %q does not hold for %q (strict: %v)", pattern, spelling, strict)
			}
		}
	}
}

// FuzzCompile makes rules of whatever texts: what is accepted can be matched and decided, and its
// pattern matches as one made by splitting does.
func FuzzCompile(f *testing.F) {
	f.Add("/users/{id}", "*.example.com", "per_user|custom:id", "X-Plan", "free", "a|b", byte(1), "/users/7", "api.example.com:80", "7")
	f.Add("/**", "", "global", "", "", "*", byte(2), "//", "", "")
	f.Add("/a/*/b/**", "[::1]", "per_ip|per_api_key", "x", "*", `a\|b|c`, byte(3), "/a/%2e%2e/b", "[::1]", "x")
	f.Add("/{a}/../b", "a..b", "per_moon", "a b", " ", `\`, byte(9), "", "", "1e3")
	f.Fuzz(func(t *testing.T, path, host, scope, name, value, client string, missing byte, asked, at, cost string) {
		r := rule("fuzzed")
		r.Match = rules.Match{Paths: one(path), Hosts: one(host)}
		r.Scope, r.Missing = strings.Split(scope, "|"), rules.Missing(missing)
		if name != "" {
			r.Match.Headers = map[string]string{name: value}
			r.Cost.Header = name
		}
		r.Overrides = []rules.Override{{Key: client, Limits: []stint.Limit{stint.FixedWindow(1, 1e9)}}}
		set, err := rules.Compile([]rules.Rule{r}, rules.Options{})
		if err != nil {
			if !errors.Is(err, stint.ErrInvalid) {
				t.Fatalf("%v is not a fault of the input", err)
			}
			return
		}
		request := rules.Request{
			Host: at, Path: asked, Address: value, User: client, APIKey: cost,
			Header: http.Header{http.CanonicalHeaderKey(name): {value, cost}}, Attributes: map[string]string{client: asked},
		}
		var m rules.Matches
		if err := set.Match(&request, &m); err != nil {
			if !errors.Is(err, stint.ErrInvalid) || host == "" && len(asked) <= bounds.MaxOddPathCuts/16 {
				t.Fatal(err)
			}
			return
		}
		if host == "" && name == "" && (m.Len() == 1) != (path == "" || slices.ContainsFunc(naiveVariants(asked), func(v naiveVariant) bool { return naiveWants([]string{path}, false).match(v, false) })) {
			t.Fatalf("%q matches %q: %v", path, asked, m.Len() == 1)
		}
		store := memstore.New(memstore.Config{})
		for i := range m.Len() {
			matched, err := m.AtTake(i)
			if err != nil && !errors.Is(err, stint.ErrInvalid) {
				t.Fatal(err)
			}
			if err != nil || matched.Outcome != rules.Limited {
				continue
			}
			if _, err := store.Decide(context.Background(), stint.Op{Claim: matched.Claim}); err != nil {
				t.Fatalf("%+v can't be decided: %v", matched.Claim, err)
			}
		}
	})
}
