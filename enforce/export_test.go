package enforce

import (
	"cmp"
	"slices"
)

// Queues are how many wait queues there are, and whether each is in the order of arrival and no longer
// than its rule allows.
func (l *Limiter) Queues() (n int, sound bool) {
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	sound = true
	for _, queue := range l.queues.all {
		ordered := slices.IsSortedFunc(queue, func(a, b *position) int { return a.compare(b.waiter.number) })
		sound = sound && ordered && len(queue) <= cmp.Or(queue[0].rule.MaxWaiters, defaultWaiters)
	}
	return len(l.queues.all), sound
}
