package storetest

import (
	"math/rand/v2"
	"testing"

	"github.com/stint-go/stint"
)

// maxDecoded bounds the steps of a decoded sequence.
const maxDecoded = 400

// DecodeOps turns any bytes into a sequence of valid operations, as Generate does
// with random numbers: each choice takes one byte. Equal bytes give equal
// sequences, more bytes longer ones; none an empty one.
func DecodeOps(data []byte) Sequence {
	if len(data) == 0 {
		return Sequence{}
	}
	algorithms := stint.Algorithms()
	algorithm := algorithms[int(data[0])%len(algorithms)]
	source := &byteSource{data: data[1:], fine: rand.NewPCG(1, 2)}
	g := newGenerator(rand.New(source), algorithm, "f:") // #nosec G404 -- the bytes decide
	for len(source.data) > 0 && len(g.steps) < maxDecoded {
		g.batch(maxDecoded - len(g.steps))
	}
	return Sequence{Steps: g.steps}
}

// A byteSource takes the highest byte of each number from the data and the others,
// which seldom matter, from a fixed stream; all of them when the data has ended.
type byteSource struct {
	data []byte
	fine *rand.PCG
}

// Uint64 implements rand.Source.
func (s *byteSource) Uint64() uint64 {
	n := s.fine.Uint64()
	if len(s.data) > 0 {
		n = uint64(s.data[0])<<56 | n>>8
		s.data = s.data[1:]
	}
	return n
}

// Fuzz fuzzes a store with sequences of operations, each on a fresh store and
// compared with the oracle. A store's test package needs three lines:
//
//	func FuzzSequences(f *testing.F) {
//		storetest.Fuzz(f, newStore)
//	}
//
// With -fuzzminimizetime=1x go test fuzzes instead of shortening each input that
// reaches something new; a failing sequence is shortened here in any case.
func Fuzz(f *testing.F, newStore func(t testing.TB, clock *Clock) stint.Store) {
	for i := range 2 * len(stint.Algorithms()) {
		rng := rand.New(rand.NewPCG(uint64(i), 3)) // #nosec G115 G404 -- small, and must be repeatable
		data := make([]byte, 400)
		for j := range data {
			data[j] = byte(rng.Uint32())
		}
		data[0] = byte(i) // #nosec G115 -- the algorithm
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sequence := DecodeOps(data)
		if err := replayFresh(t, newStore, sequence); err != nil {
			report(t, newStore, sequence, err)
		}
	})
}
