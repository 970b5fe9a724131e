package rules_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/rules"
)

// limitsOf are n limits.
func limitsOf(n int) (limits []stint.Limit) {
	for i := range n {
		limits = append(limits, stint.FixedWindow(10, time.Hour).Named(fmt.Sprint(i)))
	}
	return limits
}

// heavy is a rule of a path with some limits.
func heavy(id, path string, limits int) rules.Rule {
	r := onPath(id, path)
	r.Limits = limitsOf(limits)
	return r
}

// several are n rules alike, and one with what limits remain of a number.
func several(path string, limits int, change func(*rules.Rule)) (list []rules.Rule) {
	for i := 0; limits > 0; i++ {
		r := heavy(fmt.Sprintf("%s-%d", strings.NewReplacer("/", ".", "*", "any").Replace(path), i), path, min(limits, bounds.MaxLimits))
		if change != nil {
			change(&r)
		}
		list = append(list, r)
		limits -= min(limits, bounds.MaxLimits)
	}
	return list
}

// Rules are refused when one request would meet more limits than a store decides at once. So are some that only seem
// to: the bound ignores exceptions, paths of one rule that meet, and the client.
func TestTooManyLimitsTogether(t *testing.T) {
	const most = bounds.MaxOpLimits
	method := func(names ...string) func(*rules.Rule) {
		return func(r *rules.Rule) { r.ID, r.Match.Methods = r.ID+names[0], names }
	}
	host := func(name string) func(*rules.Rule) {
		return func(r *rules.Rule) { r.ID, r.Match.Hosts = r.ID+strings.ReplaceAll(name, "*", "any"), one(name) }
	}
	field := func(value string) func(*rules.Rule) {
		return func(r *rules.Rule) { r.ID, r.Match.Headers = r.ID+value, map[string]string{"X-A": value} }
	}
	except := func(path string) func(*rules.Rule) {
		return func(r *rules.Rule) { r.Match.Except = one(path) }
	}
	shadow := func(r *rules.Rule) { r.OnExceed = rules.Shadow }
	off := func(r *rules.Rule) { r.Disabled = true }
	client := func(key string, limits int) func(*rules.Rule) {
		return func(r *rules.Rule) {
			r.ID, r.Limits = r.ID+key, limitsOf(1)
			r.Overrides = []rules.Override{{Key: key, Limits: limitsOf(limits)}}
		}
	}
	for name, test := range map[string]struct {
		list []rules.Rule
		want string // what the fault tells; "" is none
	}{
		"as many as may be":     {several("/**", most, nil), ""},
		"one more":              {several("/**", most+1, nil), "limits is up to 1001 together, for a request such as /: of .anyany-0, .anyany-1,"},
		"other paths":           {slices.Concat(several("/a", most, nil), several("/b", most, nil)), ""},
		"a path below":          {slices.Concat(several("/a/**", most, nil), several("/a/b", 1, nil)), "such as /a/b:"},
		"beside a path below":   {slices.Concat(several("/a/b/**", most, nil), several("/a/c", 1, nil), several("/a", 1, nil)), ""},
		"any segment":           {slices.Concat(several("/a/*", most, nil), several("/*/b", 1, nil)), "such as /a/*:"},
		"any segments, others":  {slices.Concat(several("/a/*/c", most, nil), several("/*/b/d", 1, nil), several("/x/*", 1, nil)), "such as /a/*/c:"},
		"ways that don't meet":  {slices.Concat(several("/a/x/y", 600, nil), several("/*/z/y", 600, nil), several("/a/**", 300, nil)), "such as /a/x/y:"},
		"a slash at the end":    {slices.Concat(several("/a", most, nil), several("/a/", 1, nil)), "such as /a:"},
		"other methods":         {slices.Concat(several("/", most, method("GET")), several("/", most, method("POST", "PUT"))), ""},
		"HEAD is GET":           {slices.Concat(several("/", most, method("GET")), several("/", 1, method("HEAD"))), "such as HEAD /:"},
		"any method":            {slices.Concat(several("/x", most, method("DELETE", "PUT")), several("/**", 1, nil)), "such as DELETE /x:"},
		"other hosts":           {slices.Concat(several("/", most, host("a.example")), several("/", most, host("b.example"))), ""},
		"a host and any":        {slices.Concat(several("/", most, host("a.example")), several("/", 1, nil)), "such as a.example/:"},
		"a host below":          {slices.Concat(several("/", most, host("a.b.example")), several("/", 1, host("*.example"))), "such as a.b.example/:"},
		"hosts below":           {slices.Concat(several("/", most, host("*.b.example")), several("/", 1, host("*.example"))), "such as *.b.example/:"},
		"the name itself":       {slices.Concat(several("/", most, host("example")), several("/", 1, host("*.example"))), ""},
		"all values of a field": {slices.Concat(several("/", most, field("1")), several("/", 1, field("2"))), "such as /:"},
		"several paths, once":   {several("/**", most, func(r *rules.Rule) { r.Match.Paths = append(r.Match.Paths, "/a", "/*") }), ""},
		"one of several paths":  {slices.Concat(several("/x", most, func(r *rules.Rule) { r.Match.Paths = append(r.Match.Paths, "/a") }), several("/a", 1, nil)), "such as /a:"},
		"several hosts, once":   {several("/", most, func(r *rules.Rule) { r.Match.Hosts = []string{"a.example", "*.example"} }), ""},
		"one of several hosts":  {slices.Concat(several("/", most, func(r *rules.Rule) { r.Match.Hosts = []string{"a.example", "b.example"} }), several("/", 1, host("b.example"))), "such as b.example/:"},
		"excepted":              {slices.Concat(several("/**", most, except("/a")), several("/a", 1, nil)), "such as /a:"},
		"excepted, but below":   {slices.Concat(several("/**", most, except("/a")), several("/a/**", 1, nil)), "such as /a:"},
		"excepted with below":   {slices.Concat(several("/**", most, except("/a/**")), several("/a/**", 1, nil)), "such as /a:"},
		"others excepted":       {slices.Concat(several("/**", most, except("/b/**")), several("/*", 1, nil)), "such as /*:"},
		"all excepted":          {slices.Concat(several("/**", most, except("/*")), several("/*", 1, nil)), "such as /*:"},
		"in shadow":             {slices.Concat(several("/", most, nil), several("/x/..", 100, shadow)), ""},
		"disabled":              {slices.Concat(several("/", most, nil), several("/x/..", 100, off)), ""},
		"one client":            {slices.Concat(several("/", 16*bounds.MaxLimits, client("192.0.2.1", bounds.MaxLimits))), "limits is up to 1024 together, "},
		"different clients": {slices.Concat(several("/", 8*bounds.MaxLimits, client("192.0.2.1", bounds.MaxLimits)),
			several("/", 8*bounds.MaxLimits, client("192.0.2.2", bounds.MaxLimits))), "limits is up to 1024 together, "},
	} {
		set, err := rules.Compile(test.list, rules.Options{})
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var fault *rules.Fault
		if set != nil || !errors.As(err, &fault) || !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(err.Error(), test.want) || !strings.HasSuffix(err.Error(), "; allowed: at most 1000 limits that hold for one request") {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// Against trying all requests, for small sets: nothing is missed, and rules of one literal path each and any host are refused rightly.
func TestTooManyLimitsAsOneByOne(t *testing.T) {
	segments := []string{"a", "b", "x"} // which no rule names
	var paths []string
	for n, level := 0, []string{""}; n <= 4; n++ {
		var next []string
		for _, path := range level {
			paths = append(paths, path+"/")
			for _, s := range segments {
				next = append(next, path+"/"+s)
			}
		}
		paths = append(paths, level...)
		level = next
	}
	variants := make([]naiveVariant, len(paths))
	for i, path := range paths {
		variants[i].segments, _ = naiveSegments(path, naiveNormalisations()[0])
	}
	refused, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		strict, exact := rapid.Bool().Draw(t, "strict"), rapid.Bool().Draw(t, "exact")
		most, wild, excepts := 2, "*", 3
		if exact {
			most, wild, excepts = 1, "a", 0
		}
		var list []rules.Rule
		for i := range rapid.IntRange(16, 150).Draw(t, "rules") {
			r := heavy(fmt.Sprint(i), "", rapid.IntRange(40, bounds.MaxLimits).Draw(t, "limits"))
			patterns := rapid.Custom(func(t *rapid.T) (path string) {
				for range rapid.IntRange(0, 3).Draw(t, "segments") {
					path += "/" + some("a", "b", wild, wild).Draw(t, "segment")
				}
				return path + some("", "/", "/**").Draw(t, "end")
			})
			r.Match.Paths = drawEach(t, most, patterns)
			if rapid.IntRange(0, 3).Draw(t, "excepts") < excepts/3 {
				r.Match.Except = drawEach(t, 2, patterns)
			}
			r.Match.Methods = rapid.SampledFrom([][]string{nil, nil, {"GET"}, {"PUT"}, {"HEAD", "PUT"}}).Draw(t, "methods")
			r.Match.Hosts = drawEach(t, most-1, some("", "", "a.example", "*.example"))
			list = append(list, r)
		}
		matches := make([][]int, len(list)) // which paths each rule's pattern does
		for i, rule := range list {
			wanted, excepted := naiveWants(rule.Match.Paths, strict), naiveWants(rule.Match.Except, strict)
			for at, read := range variants {
				if (len(wanted) == 0 || wanted.match(read, strict)) && !excepted.match(read, strict) {
					matches[i] = append(matches[i], at)
				}
			}
		}
		met := 0
		for _, method := range []string{"GET", "HEAD", "PUT", "POST"} {
			for _, host := range []string{"", "a.example", "b.example"} {
				limits := make([]int, len(paths))
				for i, rule := range list {
					m := rule.Match
					if named := slices.Contains(m.Methods, method) || method == "HEAD" && slices.Contains(m.Methods, "GET"); !named && len(m.Methods) > 0 || !naiveHosts(m.Hosts, host) {
						continue
					}
					for _, at := range matches[i] {
						limits[at] += len(rule.Limits)
					}
				}
				met = max(met, slices.Max(limits))
			}
		}
		_, err := rules.Compile(list, rules.Options{StrictSlash: strict})
		if err == nil && met > bounds.MaxOpLimits || exact && err != nil && met <= bounds.MaxOpLimits {
			t.Fatalf("a request meets %d limits: %v", met, err)
		}
		if all++; err != nil {
			refused++
		}
	})
	if refused < all/10 || refused > all-all/10 {
		t.Errorf("%d of %d sets are refused; the draws hardly try", refused, all)
	}
}
