package promlimit

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// nativeSchema says how wide native buckets are: there are 2^nativeSchema from a power of two to
	// the next one.
	nativeSchema = 3
	// firstNative is the native bucket of one nanosecond: log2(10^-9) * 2^nativeSchema, rounded up.
	firstNative = -239
)

// A durationHistogram is a histogram of durations with classic and native buckets, for what is
// observed of each check: [prometheus.Histogram] takes several times as long (BenchmarkDurations).
// It is safe for concurrent use.
type durationHistogram struct {
	desc    *prometheus.Desc
	created time.Time
	bounds  []float64 // of the classic buckets, seconds

	adding sync.Mutex
	series []*durations // guarded by adding

	// The bounds of both kinds of buckets divide durations into cells, so that one count serves both.
	// A cell holds the durations up to its bound, in nanoseconds, that are beyond the cell before it.
	// The first one holds 0 and less.
	cells []int64
	// the cell of 2^(i-1) ns, which durations of i bits are not before
	octaves [64]int
}

// durations are those of one series.
type durations struct {
	of     *durationHistogram
	labels []string
	counts []atomic.Uint64 // of the cells
	sum    atomic.Int64    // ns
	// the last durations of traces, by classic bucket; the last one is beyond all bounds. nil is none
	exemplars []atomic.Pointer[prometheus.Exemplar]
}

// newDurationHistogram makes a histogram without series. The bounds of its classic buckets are
// whole nanoseconds.
func newDurationHistogram(name, help string, bounds []float64, labels ...string) *durationHistogram {
	h := &durationHistogram{
		desc:    prometheus.NewDesc(name, help, labels, nil),
		created: time.Now(),
		bounds:  bounds,
		cells:   []int64{0},
	}
	for _, bound := range bounds {
		h.cells = append(h.cells, nanoseconds(bound))
	}
	for i := firstNative; nativeBound(i) < math.MaxInt64; i++ {
		h.cells = append(h.cells, nativeBound(i))
	}
	h.cells = append(h.cells, math.MaxInt64)
	slices.Sort(h.cells)
	h.cells = slices.Compact(h.cells)
	for i := range h.octaves {
		h.octaves[i], _ = slices.BinarySearch(h.cells, int64(1)<<i>>1)
	}
	return h
}

// nativeBound is the longest duration of the native bucket i, in nanoseconds. Prometheus defines
// the bucket i of a schema s as (2^((i-1)/2^s), 2^(i/2^s)] seconds.
func nativeBound(i int) int64 {
	const limit = 1 << 63
	bound := math.Exp2(float64(i)/(1<<nativeSchema)) * 1e9
	if bound >= limit {
		return math.MaxInt64
	}
	return int64(bound)
}

func nanoseconds(seconds float64) int64 { return int64(math.Round(seconds * 1e9)) }

// with makes a series.
func (h *durationHistogram) with(labels ...string) *durations {
	d := &durations{
		of: h, labels: labels, counts: make([]atomic.Uint64, len(h.cells)),
		exemplars: make([]atomic.Pointer[prometheus.Exemplar], len(h.bounds)+1),
	}
	h.adding.Lock()
	defer h.adding.Unlock()
	h.series = append(h.series, d)
	return d
}

// all are the series that there are.
func (h *durationHistogram) all() []*durations {
	h.adding.Lock()
	defer h.adding.Unlock()
	return slices.Clone(h.series)
}

// observe counts a duration. Its cost is one lookup by the number of bits, a few comparisons, and
// two atomic additions: there are 8 native buckets and few classic bounds to an octave.
func (d *durations) observe(elapsed time.Duration) {
	n, h := max(0, elapsed.Nanoseconds()), d.of
	i := h.octaves[bits.Len64(uint64(n))]
	for h.cells[i] < n {
		i++
	}
	d.counts[i].Add(1)
	d.sum.Add(n)
}

// exemplify keeps a duration that was observed as the exemplar of its bucket, with the ID of its trace.
func (d *durations) exemplify(elapsed time.Duration, trace string) {
	seconds := elapsed.Seconds()
	bucket, _ := slices.BinarySearch(d.of.bounds, seconds)
	d.exemplars[bucket].Store(&prometheus.Exemplar{
		Value: seconds, Labels: prometheus.Labels{"trace_id": trace}, Timestamp: time.Now(),
	})
}

// Describe implements [prometheus.Collector].
func (h *durationHistogram) Describe(descs chan<- *prometheus.Desc) { descs <- h.desc }

// Collect implements [prometheus.Collector].
func (h *durationHistogram) Collect(metrics chan<- prometheus.Metric) {
	for _, d := range h.all() {
		metric, _ := d.metric()
		metrics <- metric
	}
}

// metric is what was counted until now, and how much that is. Cells are read one after another while others count; a
// cell that is counted meanwhile is in this metric or in the next, and the total is the sum of what was read.
func (d *durations) metric() (_ prometheus.Metric, total uint64) {
	h, sum := d.of, time.Duration(d.sum.Load()).Seconds()
	var zero uint64
	classic, native := make(map[float64]uint64, len(h.bounds)), make(map[int]int64)
	inClassic, inNative := 0, firstNative // the buckets that the next cell is in
	for i, bound := range h.cells {
		for ; inClassic < len(h.bounds) && nanoseconds(h.bounds[inClassic]) < bound; inClassic++ {
			classic[h.bounds[inClassic]] = total
		}
		for nativeBound(inNative) < bound {
			inNative++
		}
		n := d.counts[i].Load()
		total += n
		switch {
		case i == 0:
			zero = n
		case n > 0:
			native[inNative] += int64(n)
		}
	}
	var metric prometheus.Metric = bothKinds{
		prometheus.MustNewConstNativeHistogram(h.desc, total, sum, native, nil, zero, nativeSchema,
			prometheus.DefNativeHistogramZeroThreshold, h.created, d.labels...),
		prometheus.MustNewConstHistogram(h.desc, total, sum, classic, d.labels...),
	}
	var exemplars []prometheus.Exemplar
	for i := range d.exemplars {
		if exemplar := d.exemplars[i].Load(); exemplar != nil {
			exemplars = append(exemplars, *exemplar)
		}
	}
	if len(exemplars) > 0 {
		metric = prometheus.MustNewMetricWithExemplars(metric, exemplars...)
	}
	return metric, total
}

// bothKinds is a histogram with native buckets, and the same one with classic buckets, as one
// metric.
type bothKinds struct{ native, classic prometheus.Metric }

func (b bothKinds) Desc() *prometheus.Desc { return b.native.Desc() }

// Write puts the classic buckets into the native histogram: Prometheus reads the kind that it is
// configured for from one metric.
func (b bothKinds) Write(out *dto.Metric) error {
	var classic dto.Metric
	if err := b.classic.Write(&classic); err != nil {
		return err
	}
	err := b.native.Write(out)
	out.Histogram.Bucket = classic.GetHistogram().GetBucket()
	return err
}
