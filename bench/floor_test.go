package bench

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"testing"
	"time"
)

// floor is the least that a keyed limiter can be: a fixed open-addressing table
// of 16-byte slots, found by linear probing at a load of about one half, the state
// one word that one compare-and-swap moves. It cannot grow, forget, reset or
// say more than yes or no.
type floor struct {
	seed     maphash.Seed
	slots    []floorSlot
	mask     uint64
	start    time.Time
	interval int64 // nanoseconds per permit
	room     int64 // nanoseconds that a full bucket is ahead
}

type floorSlot struct {
	hash atomic.Uint64 // 0 is free
	full atomic.Int64  // when the bucket is full again, in nanoseconds since start
}

func newFloor(q quota, keys int) *floor {
	size := 1 << bits.Len(uint(2*max(keys, 1)-1))
	interval := int64(q.period) / q.refill
	return &floor{
		seed:     maphash.MakeSeed(),
		slots:    make([]floorSlot, size),
		mask:     uint64(size - 1),
		start:    time.Now(),
		interval: interval,
		room:     q.permits * interval,
	}
}

func (f *floor) take(key string) bool {
	hash := maphash.String(f.seed, key) | 1
	now := int64(time.Since(f.start))
	slot := f.find(hash)
	for {
		full := slot.full.Load()
		next := max(full, now) + f.interval
		if next-now > f.room {
			return false
		}
		if slot.full.CompareAndSwap(full, next) {
			return true
		}
	}
}

func (f *floor) find(hash uint64) *floorSlot {
	for i := hash >> 1; ; i++ {
		slot := &f.slots[i&f.mask]
		switch slot.hash.Load() {
		case hash:
			return slot
		case 0:
			if slot.hash.CompareAndSwap(0, hash) || slot.hash.Load() == hash {
				return slot
			}
		}
	}
}

func newFloorSubject(_ testing.TB, q quota, keys int) subject {
	f := newFloor(q, keys)
	return subject{take: func(key string) (bool, error) { return f.take(key), nil }}
}

func TestFloorAdmitsItsPermits(t *testing.T) {
	f := newFloor(quota{permits: 3, refill: 1, period: 24 * time.Hour}, 100)
	for _, key := range names(100) {
		admitted := 0
		for range 5 {
			if f.take(key) {
				admitted++
			}
		}
		if admitted != 3 {
			t.Fatalf("%s: admitted %d of 5, want 3", key, admitted)
		}
	}
}
