package enforce

import (
	"cmp"
	"slices"
)

// Lines are how many lines there are, and whether each stands in the order of arrival and no longer
// than its rule lets it.
func (l *Limiter) Lines() (n int, sound bool) {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	sound = true
	for _, line := range l.lines.all {
		ordered := slices.IsSortedFunc(line, func(a, b *spot) int { return a.compare(b.place.number) })
		sound = sound && ordered && len(line) <= cmp.Or(line[0].rule.MaxWaiters, defaultWaiters)
	}
	return len(l.lines.all), sound
}
