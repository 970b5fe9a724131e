package histogram

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQuantilesAreWithinTheWidthOfABucket(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h, first, second Histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(random.ExpFloat64() * float64(50*time.Microsecond))
		all = append(all, d)
		if i%3 == 0 {
			first.Record(d)
		} else {
			second.Record(d)
		}
	}
	h.Add(&first)
	h.Add(&second)
	slices.Sort(all)
	if h.Count() != uint64(len(all)) {
		t.Fatalf("%d durations, want %d", h.Count(), len(all))
	}
	for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.9999, 1} {
		rank := max(int(q*float64(len(all)))-1, 0)
		got, want := h.Quantile(q), all[rank]
		if off := got - want; off < -want/50-1 || off > want/50+1 {
			t.Errorf("quantile %v is %v, want %v within 2 %%", q, got, want)
		}
	}
}

func TestBucketsAreInOrderAndHoldTheirMiddle(t *testing.T) {
	last := -1
	for d := time.Duration(0); d < 1<<maxBits; d += max(d/200, 1) {
		b := bucket(d)
		if b < last || b > last+1 {
			t.Fatalf("%v is in bucket %d, after %d", d, b, last)
		}
		if got := bucket(middle(b)); got != b {
			t.Fatalf("the middle of bucket %d is in bucket %d", b, got)
		}
		last = b
	}
	if last != buckets-1 {
		t.Errorf("the last bucket is %d, want %d", last, buckets-1)
	}
}

func TestExtremesAreCounted(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("the quantile of nothing is not 0")
	}
	h.Record(-time.Second)
	h.Record(time.Hour)
	if h.Quantile(0.5) != 0 || h.Quantile(1) < 2*time.Minute {
		t.Errorf("quantiles %v and %v", h.Quantile(0.5), h.Quantile(1))
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(100, func() { h.Record(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
