// Package histogram counts durations in buckets of fixed number, so that recording
// one costs a few nanoseconds and no memory however many there are.
package histogram

import (
	"math/bits"
	"time"
)

// A power of two is divided into parts, so that a bucket is at most 1/64 as wide
// as what it holds: a quantile is right within 1.6 %.
const (
	partBits = 6
	parts    = 1 << partBits
	maxBits  = 37 // 2^37 ns are 137 s; what is longer counts as that
	buckets  = (maxBits - partBits + 1) * parts
)

// A Histogram is how many durations fell into each bucket. The zero value is empty.
// One goroutine records; [Histogram.Add] brings several together.
type Histogram struct {
	counts [buckets]uint32
	total  uint64
}

// Record counts a duration.
func (h *Histogram) Record(d time.Duration) {
	h.counts[bucket(d)]++
	h.total++
}

// Add counts what another has counted.
func (h *Histogram) Add(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// Count is the number of durations.
func (h *Histogram) Count() uint64 { return h.total }

// Quantile is the q-quantile: the middle of the bucket that holds the least duration
// that at least that share of all does not exceed. It is 0 of none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.total))
	if float64(rank) < q*float64(h.total) || rank == 0 {
		rank++
	}
	seen := uint64(0)
	for i, n := range h.counts {
		if seen += uint64(n); seen >= rank {
			return middle(i)
		}
	}
	return 0
}

// bucket numbers the buckets so that those below 2^partBits are one nanosecond wide,
// and from there on each power of two has the same number of them.
func bucket(d time.Duration) int {
	ns := uint64(max(d, 0))
	if ns >= 1<<maxBits {
		return buckets - 1
	}
	shift := max(bits.Len64(ns)-partBits-1, 0)
	return shift<<partBits + int(ns>>shift)
}

// middle is the duration in the middle of a bucket.
func middle(bucket int) time.Duration {
	if bucket < 2*parts {
		return time.Duration(bucket)
	}
	shift := bucket>>partBits - 1
	least := uint64(bucket-shift<<partBits) << shift
	return time.Duration(least + 1<<shift/2)
}
