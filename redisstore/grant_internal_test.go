package redisstore

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
)

// While many spend of a grant it is closed: what they got and what is left make up the
// grant, and nobody gets anything afterwards.
func TestGrantIsSpentOnce(t *testing.T) {
	const granted, spenders = 50_000, 4
	l := &limit{machine: newMachine(stint.TokenBucket(granted, stint.PerSecond(1)))}
	for n := range int64(5) {
		g := newLeaseChunk(l, &chunkRequest{granted: granted}, 0, DefaultLeaseTime)
		var (
			spent atomic.Int64
			group sync.WaitGroup
		)
		for range spenders {
			group.Go(func() {
				for {
					left, ok := g.spend(1 + n)
					if !ok {
						return
					}
					spent.Add(1 + n)
					if left < granted/2 {
						break
					}
				}
				spent.Add(g.close()) // of several the first finds something
			})
		}
		group.Wait()
		if _, ok := g.spend(1); ok || g.close() != 0 {
			t.Error("a closed grant was spent")
		}
		if total := spent.Load(); total != granted {
			t.Errorf("%d of %d were spent or left", total, granted)
		}
	}
}
