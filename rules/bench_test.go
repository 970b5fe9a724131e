package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/rules"
)

// manyRules are rules of an API's usual shape, each with a path of its own.
func manyRules(n int) []rules.Rule {
	list := make([]rules.Rule, n)
	for i := range list {
		list[i] = rules.Rule{
			ID:     fmt.Sprintf("rule-%d", i),
			Match:  rules.Match{Paths: []string{fmt.Sprintf("/api/v%d/resource-%d/{id}/items", i%3, i)}},
			Scope:  []string{rules.PerIP},
			Limits: []stint.Limit{stint.TokenBucket(10, stint.PerSecond(1))},
		}
	}
	return list
}

func pathOf(rule, id int) string {
	return fmt.Sprintf("/api/v%d/resource-%d/%d/items", rule%3, rule, id)
}

// BenchmarkMatch measures what finding the rules of a request costs among few and among many:
// of the same 100 paths, of random ones, and of paths that no rule has.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 10_000, 100_000} {
		set := compile(b, manyRules(n)...)
		same, missed := make([]string, 100), make([]string, 100)
		for i := range same {
			same[i] = pathOf(i%10, i)
			missed[i] = fmt.Sprintf("/api/v%d/unknown-%d/%d/items", i%3, i, i)
		}
		random := make([]string, 1<<14)
		source := rand.New(rand.NewPCG(1, 2))
		for i := range random {
			random[i] = pathOf(source.IntN(n), source.IntN(1000))
		}
		for _, of := range []struct {
			name  string
			paths []string
			found int
		}{{"same", same, 1}, {"random", random, 1}, {"miss", missed, 0}} {
			b.Run(fmt.Sprintf("paths=%s/rules=%d", of.name, n), func(b *testing.B) {
				requests := make([]rules.Request, len(of.paths))
				for i, path := range of.paths {
					requests[i] = rules.Request{Method: "GET", Host: "api.example.com", Path: path}
				}
				var m rules.Matches
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if err := set.Match(&requests[i%len(requests)], &m); err != nil || m.Len() != of.found {
						b.Fatalf("%s matches %d rules, want %d", of.paths[i%len(requests)], m.Len(), of.found)
					}
				}
			})
		}
	}
}

// BenchmarkOddPath measures the dearest paths that are matched: as long and with as many cuts as they may be, and with
// all features.
func BenchmarkOddPath(b *testing.B) {
	set := compile(b, manyRules(10_000)...)
	for _, of := range []struct{ name, lead, cut string }{
		{"features=all", `/a//./%2e/%2f\%5c#`, "/y"},
		{"features=authority", `///./%2e/%2f\%5c#`, "/y"},
		{"features=params", "/a;b", "/y"},
		{"features=params,all", `/a;//./%2e/%2f\%5c#`, "/y;"},
		{"features=params,authority", `///./%2e;/%2f\%5c#`, "/y;"},
	} {
		longest := ""
		for n := range bounds.MaxOddPathCuts {
			path := of.lead + strings.Repeat(of.cut, n)
			path += strings.Repeat("z", bounds.MaxOddPathBytes-len(path))
			if set.Match(&rules.Request{Path: path}, new(rules.Matches)) != nil {
				break
			}
			longest = path
		}
		b.Run(of.name, func(b *testing.B) {
			var m rules.Matches
			r := rules.Request{Path: longest}
			b.ReportAllocs()
			for b.Loop() {
				if err := set.Match(&r, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	list := manyRules(10_000)
	for i := range list[:100] {
		list[i].Match.Hosts, list[i].Match.Headers = []string{"*.example.com"}, map[string]string{"X-Plan": "free"}
		list[i].Match.Methods = []string{"GET", "POST"}
		list[i].Match.Paths = append(list[i].Match.Paths, "/a", "/b/**")
		list[i].Match.Except = []string{"/api/*/*/9/**", "/health"}
	}
	set := compile(t, list...)
	for name, path := range map[string]string{
		"a hit": pathOf(5000, 1), "a host's": pathOf(50, 1), "a miss": "/nothing/here",
		"another spelling": "/api//v2/./resource%2D5000/../resource-5000/7/items/?q",
		"many variants":    `/api/v2/x/%2e%2e/../v2/resource-5000/a%2Fb\\c/items`,
		"parameters":       `/api/v2;a/x/%2e%2e;b/resource-5000/a%2Fb;c/items%3bd`,
	} {
		var m rules.Matches
		r := rules.Request{
			Method: "GET", Host: "API.Example.com:443", Path: path,
			Header: map[string][]string{"X-Plan": {"free"}},
		}
		if n := testing.AllocsPerRun(100, func() { _ = set.Match(&r, &m) }); n != 0 {
			t.Errorf("%s: matching allocates %v times, want 0", name, n)
		}
		if want := name != "a miss"; (m.Len() == 1) != want {
			t.Errorf("%s: %d rules match", name, m.Len())
		}
	}
}
