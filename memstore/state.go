package memstore

import (
	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// state is a state at work: read from a slot, changed, written back.
type state struct {
	words
	log algorithm.Log
}

func (w *words) bucket() algorithm.BucketState {
	return algorithm.BucketState{Due: stint.Instant(w.a), Rest: int64(w.c), Last: stint.Instant(w.b)}
}

func (w *words) setBucket(b *algorithm.BucketState) {
	w.a, w.b, w.c = uint64(b.Due), uint64(b.Last), uint32(b.Rest)
}

func (w *words) window() algorithm.WindowState {
	return algorithm.WindowState{Start: stint.Instant(w.a), End: stint.Instant(w.b), Count: int64(w.c)}
}

func (w *words) setWindow(s *algorithm.WindowState) {
	w.a, w.b, w.c = uint64(s.Start), uint64(s.End), uint32(s.Count)
}

func (w *words) counter() algorithm.CounterState {
	return algorithm.CounterState{Start: stint.Instant(w.a), Previous: int64(w.b >> 32), Current: int64(w.b & (1<<32 - 1))}
}

func (w *words) setCounter(c *algorithm.CounterState) {
	w.a, w.b = uint64(c.Start), uint64(c.Previous)<<32|uint64(c.Current)
}
