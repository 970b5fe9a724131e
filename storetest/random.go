package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
)

const (
	rapidChecks    = 100 // rapid's default
	sequenceLength = 250 // operations, of which later ones know earlier ones
)

// testRandom checks that every field of every decision, over random limits and random
// traces, equals the exact model's.
func testRandom(t testing.TB, newStore newStoreFunc, algorithm stint.Algorithm, operations int) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newComparison(checked{t, rt}, newStore)
		resets := resetsAll(c.store)
		for left, round := operations/rapidChecks+1, 0; left > 0; round++ {
			g := rapid.Custom(func(rt *rapid.T) *traffic {
				return newTraffic(shrinkingChooser(rt), algorithm, fmt.Sprintf("%x:", round), resets && round%2 == 0)
			}).Draw(rt, "traffic")
			for room := min(left, sequenceLength); room > 0; {
				steps := rapid.Custom(func(rt *rapid.T) Sequence {
					g.chooser = shrinkingChooser(rt)
					return Sequence{Steps: g.next(room)}
				}).Draw(rt, "batch").Steps
				if err := c.replay(t.Context(), steps, g.learn); err != nil {
					rt.Fatal(err)
				}
				room -= len(steps)
				left -= len(steps)
			}
		}
	})
}

func newComparison(t testing.TB, newStore newStoreFunc) *comparison {
	clock := NewClock(year2026)
	return &comparison{newStore(t, clock), clock, oracle.New(0)}
}

// shrinking draws from rapid, whose numbers lean to 0 and to their bound. Multiplying
// spreads them evenly, and leaves 0 where it is.
func shrinkingChooser(t *rapid.T) chooser {
	numbers := rapid.Uint64()
	return chooser{
		func() uint64 { return numbers.Draw(t, "") * 0x9e3779b97f4a7c15 },
		func(choose func(chooser)) {
			rapid.Custom(func(t *rapid.T) bool { choose(shrinkingChooser(t)); return true }).Draw(t, "")
		},
	}
}

// checked is a TB whose Cleanup functions run after one attempt of rapid, so that a store
// made for it does not live as long as the test.
type checked struct {
	testing.TB
	attempt interface{ Cleanup(func()) }
}

// Cleanup implements testing.TB.
func (c checked) Cleanup(f func()) { c.attempt.Cleanup(f) }

// Fuzz fuzzes a store with sequences of operations, each on a fresh store and
// compared with the exact model. A store's test package needs three lines:
//
//	func FuzzSequences(f *testing.F) {
//		storetest.Fuzz(f, newStore)
//	}
func Fuzz(f *testing.F, newStore func(t testing.TB, clock *Clock) stint.Store) {
	const most = 400 // operations
	algorithms := notation.Algorithms()
	for i := range 2 * len(algorithms) {
		data := make([]byte, 400)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(data) // #nosec G115 -- small
		data[0] = byte(i)                                    // #nosec G115 -- small
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		algorithm := algorithms[int(data[0])%len(algorithms)]
		// Each choice takes one byte, and digits that seldom matter from a fixed stream.
		fine := rand.NewPCG(1, 2)
		choices := newChooser(func() uint64 {
			n := fine.Uint64()
			if len(data) > 0 {
				n = uint64(data[0])<<56 | n>>8
				data = data[1:]
			}
			return n
		})
		c := newComparison(t, newStore)
		g := newTraffic(choices, algorithm, "f:", false)
		for done := 0; done < most && len(data) > 0; {
			steps := g.next(most - done)
			if err := c.replay(t.Context(), steps, g.learn); err != nil {
				t.Fatal(err)
			}
			done += len(steps)
		}
	})
}
