package wire

import (
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
)

func TestStripUnused(t *testing.T) {
	const used = `local a, b = {}, {}
local few = 2
local function low(n)
  return n
end
function a.one(n)
  return low(few)
end
b.one = a.one
`
	const unused = `local many = 100
local function lost()
  return a.two(many)
end
function a.two()
  lost()
end
b.two = a.two
`
	const rest = `for _, each in ipairs({ a, b }) do
  each.one(1)
end
`
	if got := stripUnused(used + unused + rest); got != used+rest {
		t.Errorf("stripped to\n%s\nwant\n%s", got, used+rest)
	}
}

// What only other mixes need does not travel: definitions are most of what a script
// call costs that carries one take.
func TestScriptsHoldWhatTheyNeed(t *testing.T) {
	takes := mixOf(stint.AlgorithmTokenBucket)
	for _, c := range []struct {
		mix      Mix
		function string
		there    bool
	}{
		{takes, "schedule.admit", true},
		{takes, "schedule.apply", false},
		{takes, "schedule.return_leased", false},
		{takes, "settle", false},
		{takes, "write_state", true},
		{takes | firstTakes, "schedule.step", true},
		{takes | firstTakes, "schedule.fits", false},
		{takes | firstAny, "schedule.apply", true},
		{takes | firstAny, "schedule.fits", true},
		{takes | firstAny, "schedule.return_leased", true},
	} {
		if got := strings.Contains(c.mix.Script(), "function "+c.function+"("); got != c.there {
			t.Errorf("mix %b has %s: %t, want %t", c.mix, c.function, got, c.there)
		}
	}
}

// Each algorithm has a bit of its own, and the array of scripts has room for all.
func TestMixes(t *testing.T) {
	all := single | firstTakes | firstHolds | firstAny | withHolds
	for _, a := range notation.Algorithms() {
		if m := mixOf(a); m == 0 || m&all != 0 {
			t.Errorf("%s has the bits %b, of which %b are taken", a, m, all)
		} else {
			all |= m
		}
	}
	if all >= Mixes() {
		t.Errorf("there is room for %d scripts, not for that of mix %d", Mixes(), all)
	}
}

// A script has 200 names at most, and the one for everything has most.
func TestScriptForEverythingCompiles(t *testing.T) {
	all := firstAny | withHolds
	for _, a := range notation.Algorithms() {
		all |= mixOf(a)
	}
	chunk := must.Get(parse.Parse(strings.NewReader(all.Script()), "everything"))(t)
	if _, err := lua.Compile(chunk, "everything"); err != nil {
		t.Error(err)
	}
}
