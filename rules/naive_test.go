package rules_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// naiveLetters are what a path is written in.
func naiveLetters(text string) (list []string) {
	for text != "" {
		n := 1
		if text[0] == '%' && len(text) > 2 {
			if _, err := url.PathUnescape(text[:3]); err == nil {
				n = 3
			}
		}
		list, text = append(list, text[:n]), text[n:]
	}
	return list
}

// naiveNormalisation is how a program takes a path apart.
type naiveNormalisation struct {
	hash       bool   // whether # is a character as others
	separators string // the letters that end a segment, encoded ones in small letters
	late       string // those that do once dots are resolved
	dots       string // which are resolved: none, plain or all
	runs       string // empty segments: merged, kept, or late: once dots are resolved
	authority  string // what begins one, which is left out: nothing, two slashes, or more; rfc: two, and / alone ends it
	params     string // whose are cut: none, all or last
	cut        string // when they are: raw, decoded or late
}

// naiveNormalisations are all of them, the canonical one first.
var naiveNormalisations = sync.OnceValue(func() (list []naiveNormalisation) {
	for _, hash := range []bool{false, true} {
		for _, separators := range [][2]string{{"/ %2f"}, {"/"}, {"/", "%2f"}} {
			for _, backslashes := range []string{` \ %5c`, ` \`, ""} {
				for _, dots := range []string{"all", "none", "plain"} {
					for _, runs := range []string{"merged", "kept", "late"} {
						for _, authority := range []string{"none", "two", "more", "rfc"} {
							if authority == "none" || !hash && (authority != "more" || backslashes != "") {
								as := naiveNormalisation{hash, separators[0] + backslashes, separators[1], dots, runs, authority, "none", ""}
								list = append(list, naiveParams(as)...)
							}
						}
					}
				}
			}
		}
	}
	return list
})

// naiveParams are a normalisation and those that cut parameters as well.
func naiveParams(as naiveNormalisation) []naiveNormalisation {
	list := []naiveNormalisation{as}
	for _, as.params = range []string{"all", "last"} {
		for _, as.cut = range []string{"raw", "decoded", "late"} {
			if as.cut != "decoded" || as.late == "" { // what is decoded then is so for slashes as well
				list = append(list, as)
			}
		}
	}
	return list
}

// cutParams cuts the parameters of segments, if that is to be done now. They begin at one of some letters.
func (as naiveNormalisation) cutParams(segments []string, now, begin string) []string {
	if as.params == "none" || as.cut != now {
		return segments
	}
	segments = slices.Clone(segments)
	for i := range segments {
		if as.params == "all" || i == len(segments)-1 {
			segments[i] = naiveSplit(segments[i], begin)[0]
		}
	}
	return segments
}

// naiveBehind is what is behind so many of the parts of a text.
func naiveBehind(text, separators string, parts int) string {
	for _, letter := range naiveLetters(text) {
		if parts == 0 {
			break
		}
		text = text[len(letter):]
		if slices.Contains(strings.Fields(separators), strings.ToLower(letter)) {
			parts--
		}
	}
	return text
}

func naiveDecode(text string) (decoded string) {
	if !strings.Contains(text, "%") {
		return text
	}
	for _, letter := range naiveLetters(text) {
		if len(letter) > 1 {
			letter, _ = url.PathUnescape(letter)
		}
		decoded += letter
	}
	return decoded
}

// naiveAuthority leaves out of what is split at slashes what an authority is, and returns that too. slashes are those that
// were left out before.
func naiveAuthority(parts []string, slashes int, as naiveNormalisation) (rest []string, authority string) {
	if slashes == 0 {
		return parts, "" // a reference to what is beside a URL
	}
	for rest = parts; len(rest) > 1 && rest[0] == "" && (slashes < 2 || as.authority == "more"); slashes++ {
		rest = rest[1:]
	}
	if slashes < 2 || as.authority == "none" {
		return parts, ""
	}
	return rest[1:], naiveDecode(rest[0])
}

// naiveSegments takes a path apart by splitting, with a stack of segments. The last one is empty
// if the path ends in a slash.
func naiveSegments(path string, as naiveNormalisation) (segments []string, authority string) {
	path, _, _ = strings.Cut(path, "?")
	if !as.hash {
		path, _, _ = strings.Cut(path, "#")
	}
	if behind, named := strings.CutPrefix(path, "//"); named && as.authority == "rfc" {
		authority, rest, _ := strings.Cut(behind, "/")
		as.authority = "none"
		segments, _ = naiveSegments("/"+rest, as)
		return segments, naiveDecode(authority)
	}
	unrooted := strings.TrimPrefix(path, "/")
	whole := naiveSplit(unrooted, as.separators)
	parts, authority := naiveAuthority(whole, len(path)-len(unrooted), as)
	if as.cut == "raw" && len(parts) > 0 {
		rest := naiveBehind(unrooted, as.separators, len(whole)-len(parts))
		parts = naiveSplit(strings.Join(as.cutParams(strings.Split(rest, "/"), "raw", ";"), "/"), as.separators)
	}
	parts = as.cutParams(parts, "decoded", "; %3b")
	if as.runs == "merged" {
		parts = naiveMerge(parts)
	}
	var kept []string
	for i, part := range parts {
		dots := naiveDecode(part)
		if as.dots == "none" || as.dots == "plain" && dots != part || dots != "." && dots != ".." {
			kept = append(kept, part)
			continue
		}
		if dots == ".." {
			kept = kept[:max(len(kept)-1, 0)]
		}
		if i == len(parts)-1 {
			kept = append(kept, "")
		}
	}
	for _, part := range kept {
		segments = append(segments, naiveSplit(part, as.late)...)
	}
	segments = as.cutParams(segments, "late", "; %3b")
	if as.runs != "kept" {
		segments = naiveMerge(segments)
	}
	if len(segments) == 1 && segments[0] == "" {
		return nil, authority
	}
	for i := range segments {
		segments[i] = naiveDecode(segments[i])
	}
	return segments, authority
}

// naiveSplit splits a text at some letters.
func naiveSplit(text, separators string) (parts []string) {
	start, at, ends := 0, 0, strings.Fields(separators)
	for _, letter := range naiveLetters(text) {
		if slices.Contains(ends, strings.ToLower(letter)) {
			parts = append(parts, text[start:at])
			start = at + len(letter)
		}
		at += len(letter)
	}
	return append(parts, text[start:])
}

// naiveMerge leaves out empty segments, except for one at the end.
func naiveMerge(segments []string) (merged []string) {
	for i, segment := range segments {
		if segment != "" || i == len(segments)-1 {
			merged = append(merged, segment)
		}
	}
	return merged
}

// A naiveVariant is a path's segments, and the authority that was before them.
type naiveVariant struct {
	segments  []string
	authority string
}

// naiveVariants are those of a path in every normalisation, each once.
func naiveVariants(path string) (variants []naiveVariant) {
	seen := map[string]bool{}
	mayName, hash := twoSlashes.MatchString(path), strings.Contains(path, "#")
	params := strings.Contains(naiveDecode(path), ";")
	for _, as := range naiveNormalisations() {
		if as.hash && !hash || as.authority != "none" && !mayName || as.params != "none" && !params {
			continue // as another one
		}
		segments, authority := naiveSegments(path, as)
		if text := fmt.Sprintf("%q %q", segments, authority); !seen[text] {
			seen[text] = true
			variants = append(variants, naiveVariant{segments, authority})
		}
	}
	return variants
}

var twoSlashes = regexp.MustCompile(`^(?i:[/\\]|%2f|%5c){2}`)

// naivePath is the canonical form of a path.
func naivePath(path string) string {
	segments, _ := naiveSegments(path, naiveNormalisations()[0])
	return "/" + strings.Join(segments, "/")
}

// naiveMatch finds the rules of a request by looking at each.
func naiveMatch(list []rules.Rule, strict bool, r rules.Request) []string {
	variants := naiveVariants(r.Path)
	list = slices.DeleteFunc(slices.Clone(list), func(rule rules.Rule) bool {
		m := rule.Match
		named := slices.Contains(m.Methods, r.Method) || r.Method == "HEAD" && slices.Contains(m.Methods, "GET")
		if rule.Disabled || len(m.Methods) > 0 && !named {
			return true
		}
		for name, value := range m.Headers {
			lines := r.Header[http.CanonicalHeaderKey(name)]
			if len(lines) == 0 || value != "*" && !slices.Contains(lines, value) {
				return true
			}
		}
		for name, values := range m.Attributes {
			if value, there := r.Attributes[name]; !there || !slices.Contains(values, "*") && !slices.Contains(values, value) {
				return true
			}
		}
		sent, _, _ := strings.Cut(r.Path, "?")
		odd := strings.ContainsAny(naiveDecode(sent), ";%")
		paths, except := naiveWants(m.Paths, strict), naiveWants(m.Except, strict)
		return !slices.ContainsFunc(variants, func(variant naiveVariant) bool {
			named := variant.authority[strings.LastIndex(variant.authority, "@")+1:]
			return (naiveHosts(m.Hosts, r.Host) || named != "" && naiveHosts(m.Hosts, named)) &&
				(len(paths) == 0 || paths.match(variant, strict)) && (odd || !except.match(variant, strict))
		})
	})
	slices.SortFunc(list, func(a, b rules.Rule) int { return cmp.Or(b.Priority-a.Priority, cmp.Compare(a.ID, b.ID)) })
	ids := []string{}
	for _, rule := range list {
		ids = append(ids, rule.ID)
	}
	return ids
}

func naiveHost(pattern, host string) bool {
	host, _, _ = strings.Cut(strings.ToLower(host), ":")
	host, pattern = strings.TrimRight(host, "."), strings.ToLower(pattern)
	if suffix, below := strings.CutPrefix(pattern, "*"); below {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return pattern == "" || pattern == host
}

func naiveHosts(patterns []string, host string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return naiveHost(p, host) })
}

// naivePaths are patterns taken apart.
type naivePaths []struct {
	segments []string
	rest     bool
}

func naiveWants(patterns []string, strict bool) naivePaths {
	wants := make(naivePaths, len(patterns))
	for i, pattern := range patterns {
		pattern, rest := strings.CutSuffix(pattern, "/**")
		want, _ := naiveSegments(pattern, naiveNormalisations()[0])
		if n := len(want); n > 0 && want[n-1] == "" && (rest || !strict) {
			want = want[:n-1]
		}
		wants[i].segments, wants[i].rest = want, rest
	}
	return wants
}

// match reports whether any pattern matches a variant of a path.
func (p naivePaths) match(variant naiveVariant, strict bool) bool {
	for _, want := range p {
		if naiveCompare(want.segments, want.rest, variant.segments, strict) {
			return true
		}
	}
	return false
}

// naiveCompare compares the segments of a pattern with those of a path.
func naiveCompare(want []string, rest bool, path []string, strict bool) bool {
	n := len(path)
	slash := n > 0 && path[n-1] == ""
	if slash && !strict {
		path, slash = path[:n-1], false
	}
	if len(path) < len(want) || len(path) > len(want) && !rest {
		return false
	}
	for i, segment := range want {
		if wild := segment == "*" || strings.HasPrefix(segment, "{"); wild && slash && i == n-1 || !wild && path[i] != segment {
			return false
		}
	}
	return true
}

// some draws from few values, so that rules and requests meet.
func some(values ...string) *rapid.Generator[string] { return rapid.SampledFrom(values) }

// drawEach draws a list of texts, each once, and none that is "".
func drawEach(t *rapid.T, most int, from *rapid.Generator[string]) (list []string) {
	for range rapid.IntRange(0, most).Draw(t, "texts") {
		if text := from.Draw(t, "text"); text != "" && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// drawPatterns draws some patterns of paths.
func drawPatterns(t *rapid.T, most int) []string {
	return drawEach(t, most, rapid.Custom(func(t *rapid.T) (path string) {
		for j := range rapid.IntRange(0, 4).Draw(t, "segments") {
			path += "/" + some("a", "b", "%61", "c.d", "*", fmt.Sprintf("{p%d}", j), "*").Draw(t, "segment")
		}
		return path + some("", "", "/", "/**", "/**", "//").Draw(t, "end")
	}))
}

func drawRule(t *rapid.T, i int) rules.Rule {
	r := rule(fmt.Sprintf("r%d", i))
	r.Priority = rapid.IntRange(-1, 1).Draw(t, "priority")
	r.Disabled = rapid.IntRange(0, 9).Draw(t, "disabled") == 0
	r.Match.Paths = drawPatterns(t, 3)
	if rapid.Bool().Draw(t, "excepts") {
		r.Match.Except = drawPatterns(t, 4)
	}
	r.Match.Hosts = drawEach(t, 2, some("", "", "a.example", "*.example", "*.a.example", "B.a.example"))
	r.Match.Methods = rapid.SampledFrom([][]string{nil, nil, {"GET"}, {"GET", "PUT"}, {"HEAD"}}).Draw(t, "methods")
	r.Match.Headers = rapid.SampledFrom([]map[string]string{nil, nil, nil, {"x-a": "1"}, {"X-A": "*"}, {"X-A": "1", "X-B": "2"}, {"X-A": "*", "X-B": "*"}}).Draw(t, "headers")
	r.Match.Attributes = rapid.SampledFrom([]map[string][]string{
		nil, nil, nil, {"plan": {"free"}}, {"plan": {"free", "gold"}}, {"plan": {"*"}}, {"plan": {"gold"}, "tenant": {"a", "*"}},
	}).Draw(t, "attributes")
	return r
}

func drawRequest(t *rapid.T) rules.Request {
	var path strings.Builder
	path.WriteString(some("", "", "", "/", "/", `\`, "//").Draw(t, "lead"))
	for range rapid.IntRange(0, 6).Draw(t, "length") {
		path.WriteString(some("/", "/", "//", `\`, "%2f", "%5C", "#", "/").Draw(t, "slash"))
		path.WriteString(some("a", "b", "%61", "c.d", "a", "b", "a", ".", "..", "%2e", ".%2E", "%2561", "%", "", "%zz", "u@A.example:8", "a;b", "..;b", "%3bb").Draw(t, "segment"))
	}
	path.WriteString(some("", "", "/", "?/a", "#a").Draw(t, "end"))
	return rules.Request{
		Method: some("GET", "PUT", "POST", "HEAD").Draw(t, "method"),
		Host:   some("", "a.example", "A.EXAMPLE:80:80", "a.example..", "b.a.example.", "c.b.a.example", "example").Draw(t, "host"),
		Path:   path.String(),
		Header: rapid.SampledFrom([]http.Header{nil, {"X-A": {"1"}}, {"X-A": {"2", "1", "1"}, "X-B": {"2"}}, {"X-B": {"2"}, "X-A": {}}}).Draw(t, "header"),
		Attributes: rapid.SampledFrom([]map[string]string{
			nil, {"plan": "free"}, {"plan": "gold", "tenant": "b"}, {"plan": ""}, {"tenant": "a"},
		}).Draw(t, "attributes of the request"),
	}
}

// TestMatchAsOneByOne compares the tree with looking at each rule, for more than ten thousand sets and
// requests.
func TestMatchAsOneByOne(t *testing.T) {
	const sets, requests = 4, 12 // for each of rapid's draws
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		for range sets {
			strict := rapid.Bool().Draw(t, "strict")
			var list []rules.Rule
			for i := range rapid.IntRange(1, 12).Draw(t, "rules") {
				list = append(list, drawRule(t, i))
			}
			set := must.Get(rules.Compile(list, rules.Options{StrictSlash: strict}))(t)
			for range requests {
				r := drawRequest(t)
				got, want := matched(t, set, r), naiveMatch(list, strict, r)
				if !slices.Equal(got, want) {
					t.Fatalf("%+v (strict: %v) matches %v, want %v of %+v", r, strict, got, want, list)
				}
				found += len(got)
			}
		}
	})
	least := 1000
	if testing.Short() { // rapid.Check draws a fifth then
		least /= 5
	}
	if found < least {
		t.Errorf("only %d rules were found; the draws never meet", found)
	}
}
