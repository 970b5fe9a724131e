package failover

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/spans"
)

// countEvery is how often the processes are counted while nobody asks.
const countEvery = 10 * time.Second

// instances remembers how many processes shared the limits, and until when. A process that
// has gone may have spent its share, which is charged to nobody: if its part went to the
// others at once, all shares together would be more than the limit.
type instances struct {
	count func() int

	mu    sync.Mutex
	steps []step // each with a smaller number than the one before, until a later time
}

// A step is a number of processes and when it was seen to have fallen. The last one lasts.
type step struct {
	n     int
	until time.Time
}

// highestWithin counts the processes now, and returns the largest number within the time before.
// The steps fall with time: n1 > n2 > … with until1 < until2 < …, so that the first one that is
// recent enough is the largest.
func (i *instances) highestWithin(now time.Time, within time.Duration) int {
	n := max(1, i.count())
	i.mu.Lock()
	defer i.mu.Unlock()
	last := len(i.steps) - 1
	if last >= 0 && i.steps[last].n > n {
		i.steps[last].until = now
	}
	if last < 0 || i.steps[last].n != n {
		i.steps = append(slices.DeleteFunc(i.steps, func(s step) bool { return s.n <= n }), step{n: n})
	}
	for _, s := range i.steps[:len(i.steps)-1] {
		if now.Sub(s.until) <= within {
			return s.n
		}
	}
	return n
}

// countInstances counts the processes now and then, as long as the store lives.
func (s *Store) countInstances() {
	for {
		s.instances.highestWithin(time.Now(), 0)
		if sleep.For(s.life, countEvery) != nil {
			return
		}
	}
}

// longestLife is for how long a permit of a limit counts at most.
func longestLife(limit stint.Limit) time.Duration {
	switch {
	case limit.IsBucket():
		debt := bounds.Debt(limit.MaxDebt, limit.Capacity)
		hi, lo := bits.Mul64(uint64(limit.Capacity+debt), uint64(limit.Rate.Period.Microseconds()))
		full, _ := bits.Div64(hi, lo, uint64(limit.Rate.Permits)) // a valid limit drains within stint.MaxDrain
		return time.Duration(full+1) * time.Microsecond
	case limit.Calendar != 0:
		_, longest := spans.OfCalendar(limit.Calendar)
		return longest
	case limit.Algorithm == stint.AlgorithmSlidingWindowCounter:
		return 2 * limit.Window
	default:
		return max(limit.Window, limit.MinInterval)
	}
}
