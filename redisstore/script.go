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

// A Script is a script for a [Conn] to run, such as one that decides batches. A server defines
// all of a script's functions each time that it runs it, so there is one script for
// every mix of algorithms, with no more in it than the mix needs: see trim.
type Script struct {
	Source string
	Digest string // SHA-1 in hexadecimal, by which EVALSHA names it
}

// mix is what a batch needs of a script: the algorithms, by bits, whether it has a
// first part, and whether it is one take.
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

// newSettingsScript makes a script that looks at the settings and does nothing else.
func newSettingsScript() *Script {
	return newScript("local max = math.max\n" + settingsLua + "return '\\0'\n")
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
