package rules_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/rules"
)

var encoded = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// naivePath is the one form of a path, made by splitting, with a stack of segments.
func naivePath(path string) string {
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path = path[:end]
	}
	path = encoded.ReplaceAllStringFunc(path, func(code string) string {
		text, _ := url.PathUnescape(code)
		return text
	})
	parts := strings.Split(strings.ReplaceAll(path, `\`, "/"), "/")
	var kept []string
	for _, part := range parts {
		switch part {
		case "", ".":
		case "..":
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, part)
		}
	}
	last := parts[len(parts)-1]
	if len(kept) > 0 && (last == "" || last == "." || last == "..") {
		kept = append(kept, "")
	}
	return "/" + strings.Join(kept, "/")
}

// naiveMatch finds the rules of a request by looking at each.
func naiveMatch(list []rules.Rule, strict bool, r rules.Request) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(rule rules.Rule) bool {
		m := rule.Match
		if rule.Disabled || len(m.Methods) > 0 && !slices.Contains(m.Methods, r.Method) {
			return true
		}
		for name, value := range m.Headers {
			lines := r.Header[http.CanonicalHeaderKey(name)]
			if len(lines) == 0 || value != "*" && !slices.Contains(lines, value) {
				return true
			}
		}
		return !naiveHost(m.Host, r.Host) || !naivePattern(cmp.Or(m.Path, "/**"), r.Path, strict)
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
	host, pattern = strings.TrimSuffix(host, "."), strings.ToLower(pattern)
	if suffix, below := strings.CutPrefix(pattern, "*"); below {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return pattern == "" || pattern == host
}

// naivePattern makes a regular expression of the pattern.
func naivePattern(pattern, path string, strict bool) bool {
	pattern, rest := strings.CutSuffix(pattern, "/**")
	pattern, path = naivePath(pattern), naivePath(path)
	if rest || !strict {
		pattern = strings.TrimSuffix(pattern, "/")
	}
	if !strict {
		path = strings.TrimSuffix(path, "/")
	}
	expression := "^"
	for i, part := range strings.Split(pattern, "/") {
		switch {
		case i == 0:
		case part == "*" || strings.HasPrefix(part, "{"):
			expression += "/[^/]+"
		default:
			expression += "/" + regexp.QuoteMeta(part)
		}
	}
	if rest {
		expression += "(/.*)?"
	}
	return regexp.MustCompile("(?s)" + expression + "$").MatchString(path)
}

// some draws from few values, so that rules and requests meet.
func some(values ...string) *rapid.Generator[string] { return rapid.SampledFrom(values) }

func drawRule(t *rapid.T, i int) rules.Rule {
	r := rule(fmt.Sprintf("r%d", i))
	r.Priority = rapid.IntRange(-1, 1).Draw(t, "priority")
	r.Disabled = rapid.IntRange(0, 9).Draw(t, "disabled") == 0
	for j := range rapid.IntRange(0, 4).Draw(t, "segments") {
		r.Match.Path += "/" + some("a", "b", "%61", "c.d", "*", fmt.Sprintf("{p%d}", j), "*").Draw(t, "segment")
	}
	if end := some("", "", "/", "/**", "/**", "//").Draw(t, "end"); end != "" {
		r.Match.Path += end
	}
	r.Match.Host = some("", "", "a.example", "*.example", "*.a.example", "B.a.example").Draw(t, "host")
	r.Match.Methods = rapid.SampledFrom([][]string{nil, nil, {"GET"}, {"GET", "PUT"}}).Draw(t, "methods")
	r.Match.Headers = rapid.SampledFrom([]map[string]string{nil, nil, nil, {"x-a": "1"}, {"X-A": "*"}, {"X-A": "1", "X-B": "2"}, {"X-A": "*", "X-B": "*"}}).Draw(t, "headers")
	return r
}

func drawRequest(t *rapid.T) rules.Request {
	var path strings.Builder
	for range rapid.IntRange(0, 6).Draw(t, "length") {
		path.WriteString(some("/", "/", "//", `\`, "%2f", "%5C", "/").Draw(t, "slash"))
		path.WriteString(some("a", "b", "%61", "c.d", "a", "b", "a", ".", "..", "%2e", ".%2E", "%2561", "%", "", "%zz").Draw(t, "segment"))
	}
	path.WriteString(some("", "", "/", "?/a", "#a").Draw(t, "end"))
	return rules.Request{
		Method: some("GET", "PUT", "POST").Draw(t, "method"),
		Host:   some("", "a.example", "A.EXAMPLE:80", "b.a.example.", "c.b.a.example", "example").Draw(t, "host"),
		Path:   path.String(),
		Header: rapid.SampledFrom([]http.Header{nil, {"X-A": {"1"}}, {"X-A": {"2", "1", "1"}, "X-B": {"2"}}, {"X-B": {"2"}, "X-A": {}}}).Draw(t, "header"),
	}
}

// TestMatchAsOneByOne compares the tree with looking at each rule, for more than ten thousand sets and
// requests.
func TestMatchAsOneByOne(t *testing.T) {
	const sets, requests = 20, 12 // for each of rapid's draws
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		for range sets {
			strict := rapid.Bool().Draw(t, "strict")
			var list []rules.Rule
			for i := range rapid.IntRange(1, 12).Draw(t, "rules") {
				list = append(list, drawRule(t, i))
			}
			set, err := rules.Compile(list, rules.Options{StrictSlash: strict})
			if err != nil {
				t.Fatal(err)
			}
			for range requests {
				r := drawRequest(t)
				got, want := matched(set, r), naiveMatch(list, strict, r)
				if !slices.Equal(got, want) {
					t.Fatalf("%+v (strict: %v) matches %v, want %v of %+v", r, strict, got, want, list)
				}
				found += len(got)
			}
		}
	})
	if found < 1000 {
		t.Errorf("only %d rules were found; the draws never meet", found)
	}
}
