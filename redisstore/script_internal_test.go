package redisstore

import (
	"strings"
	"testing"

	"github.com/stint-go/stint"
)

func TestTrim(t *testing.T) {
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
		t.Errorf("trimmed to\n%s\nwant\n%s", got, used+rest)
	}
}

// What only other mixes need does not travel: definitions are most of what a script
// call costs that carries one take.
func TestScriptsHoldWhatTheyNeed(t *testing.T) {
	takes := mixOf(stint.AlgorithmTokenBucket)
	for _, c := range []struct {
		mix      mix
		function string
		there    bool
	}{
		{takes, "schedule.admit", true},
		{takes, "schedule.apply", false},
		{takes, "token_bucket.lapse", false},
		{takes, "settle", false},
		{takes, "write_state", true},
		{takes | policies, "schedule.step", true},
		{takes | policies, "schedule.fits", false},
		{takes | operations, "schedule.apply", true},
		{takes | operations, "schedule.fits", true},
		{takes | operations, "token_bucket.lapse", true},
	} {
		if got := strings.Contains(newScript(c.mix.source()).Source, "function "+c.function+"("); got != c.there {
			t.Errorf("mix %b has %s: %t, want %t", c.mix, c.function, got, c.there)
		}
	}
}
