package wire

import (
	"embed"
	"regexp"
	"strings"
	"unicode"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/notation"
)

//go:embed *.lua
var files embed.FS

// part is a part of scripts, by the name of its file.
func part(name string) string {
	text, _ := files.ReadFile(name + ".lua") // all names stand below
	return string(text)
}

// A Mix is what a batch needs of a script: whether it is one take, whether it has a first part, and
// the algorithms, a bit for each. A server defines all of a script's functions each time that it
// runs it, so there is one script for every mix, with no more in it than the mix needs. A program
// uses a few of them; each is put together when it is first needed.
type Mix uint16

// A first part has takes of several limits, operations on holds of the usual kind, or operations of
// any kind, with holds or without.
const (
	single Mix = 1 << iota
	firstTakes
	firstHolds
	firstAny
	withHolds
	firstAlgorithm
)

// mixOf is what an algorithm needs: concurrency nothing, since it is in every script for holds.
func mixOf(a stint.Algorithm) Mix {
	if a == stint.AlgorithmConcurrency {
		return 0
	}
	return firstAlgorithm << (a - 1)
}

// Mixes is more than any mix.
func Mixes() Mix { return firstAlgorithm << len(notation.Algorithms()) }

// UsualMixes are those that most decisions need.
func UsualMixes() (usual []Mix) {
	for _, a := range notation.Algorithms() {
		if a == stint.AlgorithmSlidingWindowLog {
			usual = append(usual, mixOf(a)|firstAny)
		} else {
			usual = append(usual, mixOf(a), mixOf(a)|single)
		}
	}
	return usual
}

// Script is the source of the script for a mix, without what it does not need.
func (m Mix) Script() string { return stripUnused(m.source()) }

// LayoutScript is a script that writes the layout ARGV[1] to the settings KEYS[1], unless there is one, and replies the
// one that is there.
func LayoutScript() string {
	return `local layout = redis.call('HGET', KEYS[1], 'layout')
if not layout then redis.call('HSET', KEYS[1], 'layout', ARGV[1]) end
return layout or ARGV[1]`
}

// ResetScript is a script that resets all clients of a policy: reset.lua.
func ResetScript() string { return stripUnused(part("now") + part("reset")) }

// InstancesScript is a script that counts processes: instances.lua.
func InstancesScript() string { return stripUnused(part("now") + part("instances")) }

// source puts the parts together. Their order is that of what they use: Lua knows a local function
// only behind its definition.
func (m Mix) source() string {
	var twins []stint.Algorithm
	for _, a := range notation.Algorithms() {
		if m&mixOf(a) != 0 {
			twins = append(twins, a)
		}
	}
	if m&single != 0 {
		take := "local take_stored = " + algorithm.Twins(twins...)[0] + ".take_stored\n"
		return luaProtocol() + algorithm.Lua(twins...) + take + part("now") + part("single_take")
	}
	names := strings.Join(algorithm.Twins(notation.Algorithms()...), ", ") // a twin that is left out is nil
	source := luaProtocol() + "local holds, " + names + "\n" + algorithm.Lua(twins...)
	const always = ^Mix(0)
	for _, p := range []struct {
		of   Mix // that need it
		name string
	}{
		{always, "settings"},
		{always, "now"},
		{always, "clock"},
		{always, "generations"},
		{mixOf(stint.AlgorithmSlidingWindowLog), "logs"},
		{firstHolds | withHolds, "concurrency"},
		{always, "decide"},
		{always, "batch"},
		{firstHolds | withHolds, "hold_lists"},
		{firstHolds | withHolds, "hold_ids"},
		{firstTakes, "first_part_takes"},
		{firstHolds, "first_part_holds"},
		{withHolds, "holds"},
		{withHolds, "hold_verbs"},
		{firstAny, "first_part"},
		{always, "second_part"},
		{always, "reply"},
	} {
		if m&p.of != 0 {
			source += part(p.name)
		}
	}
	return source
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
