package wire

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/redisstore/internal/layout"
)

// Go writes as many numbers of each limit as Lua reads, and Lua knows each verb.
func TestProtocol(t *testing.T) {
	letters, described := map[string]bool{}, map[stint.Algorithm]bool{}

	for _, encoding := range []string{layout.Packed, layout.ZSet, layout.Stream} {
		y := layout.New("p", 1, encoding)
		for _, limit := range []stint.Limit{
			stint.TokenBucket(5, stint.PerSecond(1)), stint.LeakyBucket(5, stint.PerSecond(1)), stint.FixedWindow(5, time.Minute),
			stint.CalendarWindow(5, stint.CalendarMonth, "Europe/Berlin"), stint.SlidingWindowCounter(5, time.Minute), stint.SlidingWindowLog(5, time.Minute),
			stint.Concurrency(5), stint.FixedWindow(5, time.Minute).FromFirst().OfDenials(),
		} {
			policy := must.Get(stint.NewPolicy("p", limit))(t)
			l := &y.Plan(policy)[0]
			letters[l.Letter], described[limit.Algorithm] = true, true
			numbers := strings.TrimPrefix(l.DescribeAt(0), l.Letter)
			if want := 8 * len(strings.Fields(limitNumbers[l.Letter])); len(numbers) != want {
				t.Errorf("%s %q: %d bytes of numbers, want %d", limit.Algorithm, l.Letter, len(numbers), want)
			}
		}
	}
	for letter := range limitNumbers {
		if !letters[letter] {
			t.Errorf("no limit has the letter %q", letter)
		}
	}
	for _, a := range notation.Algorithms() {
		key, twin := layout.AlgorithmKeys[a], strings.Join(algorithm.Twins(a), "")
		if !described[a] || key == "" || !strings.Contains(mixOf(a).source(), "local "+twin+" = {}") {
			t.Errorf("%s: described: %t; its name in keys is %q, and its twin's table %q", a, described[a], key, twin)
		}
	}
	if i := slices.Index(verbNames, ""); i >= 0 {
		t.Errorf("verb %d has no name", i)
	}
	for _, verb := range verbNames { // takes have a way of their own, and refund is what return_lease is not
		if verb != "try" && verb != "refund" && !strings.Contains(part("first_part"), "'"+verb+"'") {
			t.Errorf("first_part.lua does not know %q", verb)
		}
	}
}
