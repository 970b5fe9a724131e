// Package waiters tells those who wait for permits that some may have come back.
//
// A [List] belongs to a store: whoever waits there is told when a hold ends or a state is reset,
// and asks again then, rather than at intervals. Being told is a hint and no promise: somebody else
// may be quicker. A list without waiters costs those who wake an atomic load.
package waiters

import (
	"sync"
	"sync/atomic"
)

// A List is who waits, by what for. The zero value has none. It is safe for concurrent use.
type List[K comparable] struct {
	mu    sync.Mutex
	count atomic.Int64
	of    map[K]map[*waiter]bool
}

type waiter struct{ wake func() }

// Add has wake called when one of the keys is woken, until stop is called. It must not block.
func (l *List[K]) Add(keys []K, wake func()) (stop func()) {
	w := &waiter{wake}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[K]map[*waiter]bool{}
	}
	for _, key := range keys {
		if l.of[key] == nil {
			l.of[key] = map[*waiter]bool{}
		}
		l.of[key][w] = true
	}
	l.count.Add(1)
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, key := range keys {
			if delete(l.of[key], w); len(l.of[key]) == 0 {
				delete(l.of, key)
			}
		}
		l.count.Add(-1)
	})
}

// Wake tells those who wait for a key.
func (l *List[K]) Wake(key K) {
	if l.count.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.of[key] {
		w.wake()
	}
}

// WakeAll tells everybody.
func (l *List[K]) WakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.of {
		for w := range of {
			w.wake()
		}
	}
}
