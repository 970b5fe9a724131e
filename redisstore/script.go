package redisstore

import (
	"context"
	_ "embed" // the script's parts
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

var (
	//go:embed clock.lua
	clockLua string
	//go:embed generations.lua
	generationsLua string
	//go:embed logs.lua
	logsLua string
	//go:embed single_take.lua
	singleTakeLua string
	//go:embed decide.lua
	decideLua string
	//go:embed batch.lua
	batchLua string
	//go:embed first_part_takes.lua
	firstPartTakesLua string
	//go:embed first_part.lua
	firstPartLua string
	//go:embed second_part.lua
	secondPartLua string
	//go:embed concurrency.lua
	concurrencyLua string
	//go:embed first_part_holds.lua
	firstPartHoldsLua string
	//go:embed hold_lists.lua
	holdListsLua string
	//go:embed holds.lua
	holdsLua string
	//go:embed hold_ids.lua
	holdIDsLua string
	//go:embed hold_verbs.lua
	holdVerbsLua string
	//go:embed reply.lua
	replyLua string
)

// mix is what a batch needs of a script: whether it is one take, whether it has a first part, and
// the algorithms, a bit for each. A server defines all of a script's functions each time that it
// runs it, so there is one script for every mix, with no more in it than the mix needs. A program
// uses a few of them; each is put together when it is first needed.
type mix uint16

// A first part has takes of several limits, operations on holds of the usual kind, or operations of
// any kind, with holds or without.
const (
	single mix = 1 << iota
	firstTakes
	firstHolds
	firstAny
	withHolds
	firstAlgorithm
)

// mixOf is what an algorithm needs: concurrency nothing, since it is in every script for holds.
func mixOf(a stint.Algorithm) mix {
	if a == stint.AlgorithmConcurrency {
		return 0
	}
	return firstAlgorithm << (a - 1)
}

// mixes is more than any mix.
func mixes() mix { return firstAlgorithm << len(stint.Algorithms()) }

// script is the script for a mix. Two batches may put one together at once; one of
// the two is kept.
func (s *Store) script(m mix) *Script {
	if known := s.scripts[m].Load(); known != nil {
		return known
	}
	script := newScript(m.source())
	s.scripts[m].Store(script)
	return script
}

// loadScripts loads what most decisions need, so that the first ones need not.
func (s *Store) loadScripts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxSendTime)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	for _, server := range s.Servers(ctx) {
		for _, a := range stint.Algorithms() {
			usual := []mix{mixOf(a), mixOf(a) | single}
			if a == stint.AlgorithmSlidingWindowLog {
				usual = []mix{mixOf(a) | firstAny}
			}
			for _, m := range usual {
				group.Go(func() {
					// else the first call that needs the script loads it
					if _, err := server.Ask(ctx, "SCRIPT", "LOAD", s.script(m).Source); err == nil {
						s.scriptLoads.Add(1)
					}
				})
			}
		}
	}
}

// newScript makes a script of a source, of which it strips what is unused.
func newScript(source string) *Script {
	return NewScript(stripUnused(source))
}

// source puts the parts together. Their order is that of what they use: Lua knows a local function
// only behind its definition.
func (m mix) source() string {
	needed := func(a stint.Algorithm) bool { return m&mixOf(a) != 0 }
	names := []string{"holds", "schedule"}
	var twins []stint.Algorithm
	for _, a := range stint.Algorithms() {
		names = append(names, algorithmKeys[a])
		if needed(a) {
			twins = append(twins, a)
		}
	}
	if m&single != 0 {
		return luaProtocol() + algorithm.Lua(
			twins[0],
		) + "local take_stored = " + algorithmKeys[twins[0]] + ".take_stored\n" + singleTakeLua
	}
	// Twins that are left out are nil.
	limits := []string{
		luaProtocol(), "local " + strings.Join(names, ", ") + "\n", algorithm.Lua(twins...), settingsLua, clockLua,
		generationsLua,
	}
	if needed(stint.AlgorithmSlidingWindowLog) {
		limits = append(limits, logsLua)
	}
	if m&(withHolds|firstHolds) != 0 {
		limits = append(limits, concurrencyLua, decideLua, batchLua, holdListsLua, holdIDsLua)
	} else {
		limits = append(limits, decideLua, batchLua)
	}
	if m&firstHolds != 0 {
		limits = append(limits, firstPartHoldsLua)
	}
	if m&withHolds != 0 {
		limits = append(limits, holdsLua, holdVerbsLua)
	}
	if m&firstTakes != 0 {
		limits = append(limits, firstPartTakesLua)
	}
	if m&firstAny != 0 {
		limits = append(limits, firstPartLua)
	}
	limits = append(limits, secondPartLua, replyLua)
	return strings.Join(limits, "")
}

// definition matches a line at a script's top level that defines a function, or names a value
// without calling anything, as "local most = 2 ^ 53" and "twin.step = schedule.step" do.
var definition = regexp.MustCompile(
	`^(?:(?:local )?function (?:\w+\.)?(\w+)\(|local (\w+) = [^(]*$|\w+\.(\w+) = \w+\.\w+\n$)`,
)

// stripUnused leaves out of a script what need not travel: comments, blank lines, and definitions
// of names that nothing uses which is left. It is text in, text out: definitions are found by the
// shape that the files keep to, one function from "function" to "end" at the line's beginning.
func stripUnused(source string) string {
	type piece struct{ name, text string } // of what is always kept, the name is ""
	var pieces []piece
	open := false // whether the last piece is a function whose end is to come
	for line := range strings.Lines(source) {
		if bare := strings.TrimSpace(line); bare == "" || strings.HasPrefix(bare, "--") {
			continue
		}
		if open {
			pieces[len(pieces)-1].text += line
			open = line != "end\n"
			continue
		}
		name := ""
		if line[0] != ' ' { // an expression tried on every line takes most of the time
			name = strings.Join(append(definition.FindStringSubmatch(line), "", "")[1:], "")
		}
		open = strings.HasSuffix(line, ")\n") && strings.Contains(line, "function ") && name != ""
		pieces = append(pieces, piece{name, line})
	}
	used, kept := map[string]bool{"": true}, make([]bool, len(pieces))
	for again := true; again; {
		again = false
		for i, p := range pieces {
			if !kept[i] && used[p.name] {
				kept[i], again = true, true
				for word := range strings.FieldsFuncSeq(p.text, outsideWord) {
					used[word] = true
				}
			}
		}
	}
	var stripped strings.Builder
	for i, p := range pieces {
		if kept[i] {
			stripped.WriteString(p.text)
		}
	}
	return stripped.String()
}

// outsideWord reports whether a character is none of a name.
func outsideWord(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }
