package algorithm_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stint-go/stint/internal/notation"
)

// choices makes draws of a fuzzer's bytes, two a draw, so that a byte changed is a
// choice changed. After the last one it goes on by itself: a draw that must be
// repeated until it fits would never end on zeros.
type choices struct {
	data []byte
	rest *rand.PCG
}

func (c *choices) Uint64() uint64 {
	if len(c.data) < 2 {
		c.data = nil
		return c.rest.Uint64()
	}
	draw := uint64(c.data[0])<<8 | uint64(c.data[1])
	c.data = c.data[2:]
	return draw * 0x0001_0001_0001_0001 // some draws use the upper bits, some the lower
}

// What a fuzzer chooses, Go and Lua answer alike. The first byte is the algorithm,
// the others choose limits and steps as the random tests do.
func FuzzTwins(f *testing.F) {
	vm := newVM(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 16 {
			return
		}
		algorithms := notation.Algorithms()
		source := &choices{data[1:], rand.NewPCG(0, 0)}
		g := generator{Rand: rand.New(source), algorithm: algorithms[int(data[0])%len(algorithms)]}
		limits, steps, results, entries := g.runWhile(func(done int) bool { return done < 64 && len(source.data) > 0 })
		if difference := compare(vm, limits, steps, results, entries); difference != "" {
			t.Fatal(difference)
		}
	})
}
