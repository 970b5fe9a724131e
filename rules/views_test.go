package rules_test

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// views are what routers see in a path that they or others before them resolved: the segments of
// each, of which the last one is empty if there is a slash at the end. First is what is there unresolved.
func views(path string) (seen [][]string) {
	rooted := strings.HasPrefix(path, "/")
	path, _, _ = strings.Cut("/"+strings.TrimPrefix(path, "/"), "?")
	unresolved := []string{path}
	if rooted {
		unresolved = append(unresolved, behindAuthority(path)...)
	}
	var of []string
	for _, path := range unresolved {
		of = append(append(of, path, whatwgPath(path), rfc3986Path(path)), withoutParams(path)...)
	}
	for _, resolved := range of {
		merged := runs.ReplaceAllString(resolved, "/") // as Envoy does once dots are resolved
		for _, path := range []string{resolved, merged} {
			segments := strings.Split(path[1:], "/")
			for i := range segments {
				segments[i] = naiveDecode(segments[i])
			}
			seen = append(seen, segments)
		}
		decoded := naiveDecode(resolved)
		seen = append(seen, strings.Split(decoded[1:], "/"), strings.Split(runs.ReplaceAllString(decoded, "/")[1:], "/"))
	}
	return append(append(seen, kestrelSegments(path)), kestrelSegments(cutParams(path)))
}

// withoutParams are what is left of a path where programs cut parameters: of every segment, as servlets do, or of the
// last, as Python's urlparse does; before or behind a program that decodes, or that resolves dots.
func withoutParams(path string) (left []string) {
	decoded := strings.ReplaceAll(naiveDecode(path), "%", "%25") // it is decoded once
	unhashed, _, _ := strings.Cut(path, "#")
	for _, cut := range []func(string) string{cutParams, cutLastParams} {
		left = append(left, cut(path), whatwgPath(cut(unhashed)), rfc3986Path(cut(path)), rfc3986Path(cut(decoded)))
		if !strings.Contains(strings.ToLower(path), "%3b") {
			left = append(left, cut(whatwgPath(path)), cut(rfc3986Path(path)))
		}
	}
	return left
}

func cutParams(path string) string { return params.ReplaceAllString(path, "") }

var params = regexp.MustCompile(";[^/]*")

func cutLastParams(path string) string {
	last := strings.LastIndexByte(path, '/') + 1
	segment, _, _ := strings.Cut(path[last:], ";")
	return path[:last] + segment
}

// behindAuthority are what parsers of URLs leave of a path that they take for a reference with an authority: the URL
// Standard's, RFC 3986's (appendix B), and Node's url.parse.
func behindAuthority(path string) (rests []string) {
	for _, parser := range authorities {
		if rest := parser.FindStringSubmatch(path); rest != nil {
			rests = append(rests, parser.slashes.Replace("/"+rest[1]))
		}
	}
	return rests
}

var authorities = []struct {
	*regexp.Regexp
	slashes *strings.Replacer // what it takes for slashes in what is left
}{
	{regexp.MustCompile(`^[/\\]{2,}[^/\\#]+(?:[/\\]([^#]*))?`), backslashes}, // https://url.spec.whatwg.org/#special-authority-ignore-slashes-state
	{regexp.MustCompile(`^//[^/#]*(?:/([^#]*))?`), strings.NewReplacer()},
	{regexp.MustCompile(`^[/\\]{2}[^@/\\#]+@[^/\\#]+(?:[/\\]([^#]*))?`), backslashes},
}

var backslashes = strings.NewReplacer(`\`, "/")

var runs = regexp.MustCompile("/+")

// whatwgPath is a path after the path state of the URL Standard (https://url.spec.whatwg.org/#path-state)
// in a URL with http, without its percent-encoding.
func whatwgPath(path string) string {
	path, _, _ = strings.Cut(path, "#")
	var list []string
	for rest, more := path[1:], true; more; {
		buffer, slash := rest, strings.IndexAny(rest, `/\`)
		if more = slash >= 0; more {
			buffer, rest = rest[:slash], rest[slash+1:]
		}
		switch strings.ReplaceAll(strings.ToLower(buffer), "%2e", ".") {
		case "..":
			list = list[:max(len(list)-1, 0)]
			if !more {
				list = append(list, "")
			}
		case ".":
			if !more {
				list = append(list, "")
			}
		default:
			list = append(list, buffer)
		}
	}
	return "/" + strings.Join(list, "/")
}

// rfc3986Path removes dot segments as RFC 3986, section 5.2.4, does, by its steps.
func rfc3986Path(input string) (output string) {
	for input != "" {
		switch {
		case strings.HasPrefix(input, "/./"): // 2.B
			input = input[2:]
		case input == "/.":
			input = "/"
		case strings.HasPrefix(input, "/../"), input == "/..": // 2.C
			input = "/" + strings.TrimPrefix(input[3:], "/")
			output = output[:max(strings.LastIndexByte(output, '/'), 0)]
		default: // 2.E
			end := strings.IndexByte(input[1:], '/') + 1
			if end == 0 {
				end = len(input)
			}
			output, input = output+input[:end], input[end:]
		}
	}
	return output
}

// kestrelSegments are those of a path of which all but %2F is decoded before dots are resolved.
func kestrelSegments(path string) []string {
	const codedSlash = "\x00"
	decoded := ""
	for _, letter := range naiveLetters(path) {
		if strings.EqualFold(letter, "%2f") {
			decoded += codedSlash
		} else {
			decoded += naiveDecode(letter)
		}
	}
	segments := strings.Split(rfc3986Path(decoded)[1:], "/")
	for i := range segments {
		segments[i] = strings.ReplaceAll(segments[i], codedSlash, "/")
	}
	return segments
}

// TestViews holds the models of what others do to what their standards say.
func TestViews(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Path, WHATWG, RFC string }](t, "testdata/views.txt") {
		if whatwg, rfc := whatwgPath(test.Path), rfc3986Path(test.Path); whatwg != test.WHATWG || rfc != test.RFC {
			t.Errorf("%q is %q and %q, want %q and %q", test.Path, whatwg, rfc, test.WHATWG, test.RFC)
		}
	}
}

// TestAuthorities holds the models of parsers that know an authority to what the real ones do.
func TestAuthorities(t *testing.T) {
	for path, want := range map[string][]string{
		"/x/login": nil, "//x/login": {"/login", "/login"}, `/\x/login`: {"/login"}, "/////h/login": {"/login", "///h/login"},
		"//u@h/login": {"/login", "/login", "/login"}, `/\u@h\login`: {"/login", "/login"}, "///login": {"/", "/login"}, `//h\x/login`: {"/x/login", "/login"},
		"//x#/login": {"/", "/"},
	} {
		if got := behindAuthority(path); !slices.Equal(got, want) {
			t.Errorf("behind the authority of %q is %q, want %q", path, got, want)
		}
	}
}

// TestNoSpellingLeadsAround looks for paths that a router takes for one of a rule's which the rule
// does not take so.
func TestNoSpellingLeadsAround(t *testing.T) {
	set := compile(t, onPath("a", "/login"), onPath("b", "/api/{x}/login"))
	tokens := []string{"/", "/", "/", "//", "u@h", "..", ".", "%2e%2e", "%2f", "%5c", ";", ";x", "%3b", "..;", `\`, "#", "api", "x", "login", "%6cogin", "/..", "/../"}
	source := rand.New(rand.NewPCG(1, 2))
	var m rules.Matches
	seen := 0
	for range 20_000 {
		path := "/"
		for range 1 + source.IntN(9) {
			path += tokens[source.IntN(len(tokens))]
		}
		must.Do(t, set.Match(&rules.Request{Path: path}, &m))
		for _, segments := range views(path) {
			if n := len(segments); segments[n-1] == "" {
				segments = segments[:n-1]
			}
			if slices.Equal(segments, []string{"login"}) || len(segments) == 3 && segments[0] == "api" && segments[2] == "login" {
				if seen++; m.Len() == 0 {
					t.Errorf("no rule holds for %q, which is read as %q", path, segments)
				}
			}
		}
	}
	if seen < 1000 {
		t.Errorf("%d paths were the rules' own; the draws never meet", seen)
	}
}
