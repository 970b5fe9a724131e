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
	"github.com/stint-go/stint/internal/testtable"
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

// Rules are refused when one request would meet more limits than a store decides at once. So are some that only seem
// to: the bound ignores exceptions, paths of one rule that meet, and the client.
func TestTooManyLimitsTogether(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Name, Rules, Want string }](t, "testdata/max_limits.txt") {
		var groups []struct {
			N    int // limits in all
			Path string
			rules.Rule
		}
		patch(t, &groups, test.Rules)
		var list []rules.Rule
		for i, g := range groups {
			for size := 0; g.N > 0; g.N -= size {
				size = min(g.N, bounds.MaxLimits)
				r := g.Rule
				r.ID, r.Scope = fmt.Sprintf("%d-%d", i, g.N), []string{rules.PerIP}
				if len(r.Match.Paths) == 0 {
					r.Match.Paths = one(g.Path)
				}
				if len(r.Limits) == 0 {
					r.Limits = limitsOf(size)
				}
				list = append(list, r)
			}
		}
		set, err := rules.Compile(list, rules.Options{})
		if test.Want == "" {
			if err != nil {
				t.Errorf("%s: %v", test.Name, err)
			}
			continue
		}
		var fault *rules.Fault
		if set != nil || !errors.As(err, &fault) || !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%s: %v", test.Name, err)
			continue
		}
		if !strings.Contains(err.Error(), test.Want) || !strings.HasSuffix(err.Error(), "; allowed: at most 1000 limits that hold for one request") {
			t.Errorf("%s: %v, want %q", test.Name, err, test.Want)
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
