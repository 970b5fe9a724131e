package failover

import (
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

const (
	// countEvery is how often the processes are counted while nobody asks.
	countEvery = 10 * time.Second
	// maxSteps bounds how many falls of the number are remembered.
	maxSteps = 64
)

// instances remembers how many processes shared the limits, and until when. A process that
// has gone may have spent its share, which is charged to nobody: if its part went to the
// others at once, all shares together would be more than the limit.
type instances struct {
	count func() int

	mu    sync.Mutex             // guards changes of steps
	steps atomic.Pointer[[]step] // each with a smaller number than the one before, until a later time
}

// A step is a number of processes and when it was seen to have fallen. The last one lasts.
type step struct {
	n     int
	until time.Time
}

// note counts the processes now.
func (i *instances) note(now time.Time) {
	n := max(1, i.count())
	if s := i.load(); len(s) > 0 && s[len(s)-1].n == n {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	steps := slices.Clone(i.load())
	if last := len(steps) - 1; last >= 0 && steps[last].n > n {
		steps[last].until = now
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.n <= n })
	if last := len(steps) - 1; last == maxSteps { // the larger number counts longer
		steps[last-1].until, steps = steps[last].until, steps[:last]
	}
	steps = append(steps, step{n: n})
	i.steps.Store(&steps)
}

func (i *instances) load() []step {
	if s := i.steps.Load(); s != nil {
		return *s
	}
	return nil
}

// most is the largest number within the time before now. There was a note before.
func (i *instances) most(now time.Time, within time.Duration) int {
	steps := i.load()
	last := len(steps) - 1
	for _, s := range steps[:last] {
		if now.Sub(s.until) <= within {
			return s.n
		}
	}
	return steps[last].n
}

// countOn counts the processes now and then, as long as the store lives.
func (s *Store) countOn() {
	for {
		s.instances.note(s.config.now())
		if !s.pause(countEvery) {
			return
		}
	}
}

// calendarLife is the longest that a window of the calendar lasts, an hour that the clocks
// are set back included.
var calendarLife = map[stint.Calendar]time.Duration{
	stint.CalendarMinute: time.Minute,
	stint.CalendarHour:   25 * time.Hour,
	stint.CalendarDay:    49 * time.Hour,
	stint.CalendarWeek:   9 * 24 * time.Hour,
	stint.CalendarMonth:  33 * 24 * time.Hour,
	stint.CalendarYear:   368 * 24 * time.Hour,
}

// longestLife is for how long a permit of a limit counts at most.
func longestLife(limit stint.Limit) time.Duration {
	switch {
	case limit.IsBucket():
		full := new(big.Int).Mul(big.NewInt(limit.Capacity+limit.Debt()), big.NewInt(limit.Rate.Period.Microseconds()))
		full.Quo(full, big.NewInt(limit.Rate.Permits))
		return time.Duration(full.Int64()+1) * time.Microsecond
	case limit.Calendar != stint.CalendarNone:
		return calendarLife[limit.Calendar]
	case limit.Algorithm == stint.AlgorithmSlidingWindowCounter:
		return 2 * limit.Window
	default:
		return max(limit.Window, limit.MinInterval)
	}
}
