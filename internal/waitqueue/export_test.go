package waitqueue

import "slices"

// Sound reports whether all queues are in the order of arrival, and none is longer than its room.
func (q *Queues[K]) Sound() bool {
	for _, queue := range q.byKey {
		ordered := slices.IsSortedFunc(queue, func(a, b *Position[K]) int { return a.compare(b.waiter.number) })
		if !ordered || len(queue) > queue[0].Room {
			return false
		}
	}
	return true
}
