package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it; nothing is kept safe by it
	_ "embed"     // the script's parts
	"encoding/hex"
	"strings"
	"sync"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

var (
	//go:embed clock.lua
	clockLua string
	//go:embed generations.lua
	generationsLua string
	//go:embed logs.lua
	logsLua string
	//go:embed take.lua
	takeLua string
	//go:embed batch.lua
	batchLua string
	//go:embed policies.lua
	policiesLua string
	//go:embed operations.lua
	operationsLua string
	//go:embed takes.lua
	takesLua string
	//go:embed done.lua
	doneLua string
)

// mix is what a batch needs of a script: the algorithms, by bits, whether it has a
// first part, and whether it is one take. A server defines all of a script's functions each time
// that it runs it, so there is one script for every mix, with no more in it than the mix needs.
type mix uint8

// A first part is one of policies or of operations of any kind. The bits between are
// the algorithms'.
const (
	single     mix = 1 << 0
	policies   mix = 1 << 6
	operations mix = 1 << 7
)

func mixOf(a stint.Algorithm) mix { return 1 << a }

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
	for _, server := range s.servers(ctx) {
		for _, a := range stint.Algorithms() {
			mixes := []mix{mixOf(a), mixOf(a) | single}
			if a == stint.AlgorithmSlidingWindowLog {
				mixes = []mix{mixOf(a) | operations}
			}
			for _, m := range mixes {
				group.Go(func() {
					_, _ = server.Ask(ctx, "SCRIPT", "LOAD", s.script(m).Source) // else whoever needs it loads it
				})
			}
		}
	}
}

// newScript makes a script of a source, which it trims.
func newScript(source string) *Script {
	source = stripUnused(source)
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return &Script{Source: source, Digest: hex.EncodeToString(sum[:])}
}

func (m mix) source() string {
	needed := func(a stint.Algorithm) bool { return m&mixOf(a) != 0 }
	names := []string{"schedule"}
	var twins []stint.Algorithm
	for _, a := range stint.Algorithms() {
		names = append(names, algorithmKeys[a])
		if needed(a) {
			twins = append(twins, a)
		}
	}
	if m&single != 0 {
		return algorithm.Lua(twins[0]) + "local take_stored = " + algorithmKeys[twins[0]] + ".take_stored\n" + takeLua
	}
	// Twins that are left out are nil.
	limits := []string{"local " + strings.Join(names, ", ") + "\n", algorithm.Lua(twins...), settingsLua, clockLua, generationsLua}
	if needed(stint.AlgorithmSlidingWindowLog) {
		limits = append(limits, logsLua)
	}
	limits = append(limits, batchLua)
	if m&policies != 0 {
		limits = append(limits, policiesLua)
	}
	if m&operations != 0 {
		limits = append(limits, operationsLua)
	}
	limits = append(limits, takesLua, doneLua)
	return strings.Join(limits, "")
}

// piece is a part of a script's source at its top level.
type piece struct {
	name string // what it defines, without the table that it is in; "" of what is always kept
	text string
	open bool // whether the function's end is to come
	kept bool
}

// trim leaves out of a script what need not travel: comments, blank lines, and functions
// and values at its top level whose names stand nowhere else.
func stripUnused(source string) string {
	pieces := piecesOf(source)
	called := map[string]bool{"": true}
	for again := true; again; {
		again = false
		for i := range pieces {
			if p := &pieces[i]; !p.kept && called[p.name] {
				p.kept, again = true, true
				for word := range strings.FieldsFuncSeq(p.text, outsideWord) {
					called[word] = true
				}
			}
		}
	}
	var kept strings.Builder
	for i := range pieces {
		if pieces[i].kept {
			kept.WriteString(pieces[i].text)
		}
	}
	return kept.String()
}

// piecesOf takes a source apart, line by line.
func piecesOf(source string) (pieces []piece) {
	for from, end := 0, 0; from < len(source); from = end {
		end = from + strings.IndexByte(source[from:], '\n') + 1
		if end == from {
			end = len(source)
		}
		line := source[from:end]
		bare := strings.TrimLeft(line, " \t")
		if bare == "\n" || strings.HasPrefix(bare, "--") {
			continue
		}
		if last := len(pieces) - 1; last >= 0 && pieces[last].open {
			pieces[last].text += line
			pieces[last].open = line != "end\n"
			continue
		}
		name, open := defines(line)
		pieces = append(pieces, piece{name: name, text: line, open: open})
	}
	return pieces
}

// defines returns the last part of the name of the function that a line starts, or of what it
// names without calling anything, as in "twin.step = schedule.step" and "local most = 2 ^ 53"; open
// says that a function's body follows.
func defines(line string) (name string, open bool) {
	rest := strings.TrimPrefix(line, "local ")
	if head, found := strings.CutPrefix(rest, "function "); found {
		name, _, _ = strings.Cut(head, "(")
		return name[strings.LastIndexByte(name, '.')+1:], true
	}
	left, right, found := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
	if name, local := strings.CutPrefix(left, "local "); local && found && !strings.ContainsFunc(name, outsideWord) && !strings.Contains(right, "(") {
		return name, false
	}
	_, name, field := strings.Cut(left, ".")
	if _, of, another := strings.Cut(right, "."); !found || !field || !another || strings.ContainsFunc(name+of, outsideWord) {
		return "", false
	}
	return name, false
}

func outsideWord(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}
