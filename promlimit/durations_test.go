package promlimit

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/internal/must"
)

var testBounds = []float64{1e-6, 2.5e-6, 1e-3, 0.25, 1}

func gathered(t rapid.TB, c prometheus.Collector) *dto.Metric {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	must.Do(t, registry.Register(c))
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	m := families[0].GetMetric()[0]
	m.Histogram.CreatedTimestamp = nil
	return m
}

// Durations are shown as by Prometheus' own histogram, the bounds of both kinds of buckets and the durations beside them included.
func TestDurations(t *testing.T) {
	edges := []int64{math.MinInt64, -1, 0, 1, 2, 3, 1 << 53}
	for _, bound := range testBounds {
		edges = append(edges, nanoseconds(bound)-1, nanoseconds(bound), nanoseconds(bound)+1)
	}
	for i := -9; i <= 20; i++ { // powers of two of a second, which are native bounds; the lesser ones are no whole nanoseconds
		whole := int64(math.Ldexp(1e9, i))
		edges = append(edges, whole-1, whole, whole+1)
	}
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64Range(-5, 10_000), rapid.Int64Range(0, 10e9), rapid.Int64Range(0, 1<<53))).Draw(t, "ns")
		mine := newDurationHistogram("check_seconds", "Help.", testBounds, "allowed")
		options := histogram("check_seconds", "Help.", testBounds...)
		options.NativeHistogramMaxBucketNumber, options.ConstLabels = 0, prometheus.Labels{"allowed": "true"}
		theirs := prometheus.NewHistogram(options)
		one := mine.with("true")
		for _, n := range values {
			one.observe(time.Duration(n))
			theirs.Observe(time.Duration(max(0, n)).Seconds())
		}
		got, want := gathered(t, mine), gathered(t, theirs)
		if g, w := got.GetHistogram(), want.GetHistogram(); math.Abs(g.GetSampleSum()-w.GetSampleSum()) < 1e-9*w.GetSampleSum() {
			g.SampleSum = w.SampleSum // which adds up rounded seconds
		}
		if !proto.Equal(got, want) {
			t.Fatalf("%v\nwant\n%v", got, want)
		}
	})
}

// Nothing is lost when many observe while the histogram is gathered, and what is gathered is never at odds with itself: a
// histogram whose buckets do not add up to its count is refused by Prometheus.
func TestDurationsAtOnce(t *testing.T) {
	h := newDurationHistogram("check_seconds", "Help.", testBounds)
	one := h.with()
	const observers, each = 4, 5000
	var all sync.WaitGroup
	for i := range observers {
		all.Go(func() {
			for n := range each {
				one.observe(time.Duration(i * n * 1000))
			}
		})
	}
	for range 50 {
		buckets := gathered(t, h).GetHistogram()
		if classic := buckets.GetBucket(); !slices.IsSortedFunc(classic, func(a, b *dto.Bucket) int { return int(a.GetCumulativeCount()) - int(b.GetCumulativeCount()) }) {
			t.Errorf("%v", classic)
		}
		total, bucket := int64(buckets.GetZeroCount()), int64(0)
		for _, delta := range buckets.GetPositiveDelta() {
			bucket += delta
			total += bucket
		}
		if uint64(total) != buckets.GetSampleCount() {
			t.Errorf("%d in buckets, %d in all", total, buckets.GetSampleCount())
		}
	}
	all.Wait()
	if n := gathered(t, h).GetHistogram().GetSampleCount(); n != observers*each {
		t.Errorf("%d of %d", n, observers*each)
	}
}

// BenchmarkDurations counts a duration, by a histogram of durations and by Prometheus' own with and without native buckets.
func BenchmarkDurations(b *testing.B) {
	const few = 1 << 10
	values := make([]time.Duration, few)
	for i := range values {
		values[i] = time.Duration(i*i) * time.Nanosecond
	}
	run := func(name string, observe func(time.Duration)) {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				observe(values[i%few])
			}
		})
	}
	run("durations", newDurationHistogram("check_seconds", "Help.", testBounds).with().observe)
	native := prometheus.NewHistogram(histogram("check_seconds", "Help.", testBounds...))
	run("prometheus", func(d time.Duration) { native.Observe(d.Seconds()) })
	classic := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "check_seconds", Help: "Help.", Buckets: testBounds})
	run("prometheus-classic", func(d time.Duration) { classic.Observe(d.Seconds()) })
}
