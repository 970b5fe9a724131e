package bench

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/spans"
)

// Findings say how decisions differ from what the limits say.
type Findings struct {
	// Exact says that each decision was replayed at its own time. Otherwise, from a key's first request that failed, or
	// whose time is not known, only what no order within the times of sending and receiving explains is counted.
	Exact bool `json:"exact"`
	// Beyond counts the requests that were admitted beyond the limits, and TooLittle those that were denied although the
	// limits admit them.
	Beyond    int64 `json:"admittedBeyond"`
	TooLittle int64 `json:"deniedTooMuch"`
	// First are the earliest that differ, at most ten.
	First []Difference `json:"first"`
}

// Differ is how many decisions differ.
func (f *Findings) Differ() int64 { return f.Beyond + f.TooLittle }

// A Difference is a decision that differs.
type Difference struct {
	Key     string        `json:"key"`
	At      stint.Instant `json:"at"`      // the decision's, or when it was sent
	Allowed bool          `json:"allowed"` // and the opposite is right
}

// shownDifferences is how many differences are told.
const shownDifferences = 10

// add counts a decision that differs.
func (f *Findings) add(r *Run, d *record) {
	if d.Allowed {
		f.Beyond++
	} else {
		f.TooLittle++
	}
	at := cmp.Or(d.At, stint.Instant(r.start.Add(d.sent).UnixMicro()))
	f.First = append(f.First, Difference{r.names[d.key], at, d.Allowed})
}

// Verify holds a run of requests of n permits against limits all of which must admit.
func (r *Run) Verify(limits []stint.Limit, n int64) Findings {
	f := Findings{Exact: true, First: []Difference{}}
	sorted := slices.Clone(r.records)
	slices.SortFunc(sorted, func(a, b record) int { return cmp.Compare(a.key, b.key) })
	for len(sorted) > 0 {
		end := 1
		for end < len(sorted) && sorted[end].key == sorted[0].key {
			end++
		}
		timed, known := sorted[:end], knownBefore(sorted[:end])
		if known < math.MaxInt64 {
			f.Exact = false
			f.bound(limits, r, timed, n, known)
			timed = slices.DeleteFunc(slices.Clone(timed), func(d record) bool { return d.At == 0 || d.At >= known })
		}
		f.replay(newModel(limits), r, timed, n)
		sorted = sorted[end:]
	}
	slices.SortFunc(f.First, func(a, b Difference) int { return cmp.Compare(a.At, b.At) })
	f.First = f.First[:min(len(f.First), shownDifferences)]
	return f
}

// knownBefore is the time before which nothing was decided for a key but what the records with
// times say. A request that failed was decided, if at all, after what had been received when it was
// sent. So only times of one clock are compared, the store's: a denial or a failure policy's
// decision may have another's.
func knownBefore(records []record) stint.Instant {
	first := time.Duration(math.MaxInt64)
	for i := range records {
		if d := &records[i]; d.At == 0 {
			first = min(first, d.sent)
		}
	}
	if first == math.MaxInt64 {
		return math.MaxInt64
	}
	var known stint.Instant
	for i := range records {
		if d := &records[i]; d.received < first && d.Allowed && !d.Degraded {
			known = max(known, d.At)
		}
	}
	return known
}

// replay decides a key's requests again, in the order in which they were. All cost the same, so if those of one instant
// were decided in any order that fits, then also with the admitted first. The model goes on with its own decisions:
// permits that the target lost or invented count once, as long as they are the same permits later on.
func (f *Findings) replay(m model, r *Run, records []record, n int64) {
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.At, b.At), toInt(b.Allowed)-toInt(a.Allowed))
	})
	for i := range records {
		if d := &records[i]; m.take(d.At, n) != d.Allowed {
			f.add(r, d)
		}
	}
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A span bounds what is taken in spans of time, in microseconds: at most burst + slope x length, in spans up to within.
type span struct{ burst, slope, within float64 }

// clockRates is by how much of a time two clocks may disagree.
const clockRates = 0.001

// late is how long after its failure a request may still take permits, in microseconds: it may wait before the store.
const late = 30e6

// vagueWindow is by how much a window of the calendar may be shorter or longer than it is nominally.
const vagueWindow = 0.1

// extent says what a limit admits at most, in whatever span, and what it surely admits before it denies.
func extent(l stint.Limit) (most, least span) {
	capacity := float64(l.Capacity)
	if l.IsBucket() {
		slope := float64(l.Rate.Permits) / float64(l.Rate.Period.Microseconds())
		return span{capacity, slope * (1 + clockRates), math.Inf(1)}, span{capacity, slope * (1 - clockRates), math.Inf(1)}
	}
	window := float64(spans.Of(l).Microseconds())
	most, least = span{2 * capacity, 0, window * (1 - vagueWindow)}, span{capacity, 0, window * (1 + vagueWindow)}
	switch l.Algorithm {
	case stint.AlgorithmSlidingWindowLog:
		most.burst = capacity // others renew it within a span
	case stint.AlgorithmSlidingWindowCounter:
		least.within *= 2 // it counts the window before
	default: // a fixed window may have one on each side of an edge
	}
	return most, least
}

// A meter measures how much of a limit is taken, by takes whose times never go back.
type meter struct {
	span

	permits float64   // of each take
	top     float64   // slope x the begin of the span that has most, and what is taken in it
	takes   []float64 // their times
}

// meters are those of several limits.
type meters []*meter

// take adds a take.
func (all meters) take(at float64) {
	for _, m := range all {
		m.top = max(m.top, m.slope*at) + m.permits
		m.takes = append(m.takes, at)
	}
}

// lack reports whether a limit has less room than a take needs, and so much more, in a span that ends at a time; a take
// at begin may begin it.
func (all meters) lack(begin, end, more float64) bool {
	return slices.ContainsFunc(all, func(m *meter) bool {
		if m.slope > 0 {
			return m.burst-max(m.top, m.slope*begin)+m.slope*end < m.permits+more
		}
		first, _ := slices.BinarySearch(m.takes, end-m.within)
		return begin >= end-m.within && m.burst < m.permits*float64(len(m.takes)-first+1)
	})
}

// rounding is how far sums of permits may be off.
const rounding = 1e-6

// bound counts what no order explains of a key's requests, which were decided between sending and
// receiving. Those before known are not counted.
func (f *Findings) bound(limits []stint.Limit, r *Run, records []record, n int64, known stint.Instant) {
	var admits, takes meters
	judged := true // whether denials are, which these limits have for other reasons, too
	for _, l := range limits {
		most, least := extent(l)
		admits = append(admits, &meter{span: most, permits: float64(l.Takes(n))})
		takes = append(takes, &meter{span: least, permits: float64(l.Takes(n))})
		judged = judged && l.MinInterval == 0 && !l.CountDenied
	}
	sent := slices.Clone(records)
	slices.SortFunc(sent, func(a, b record) int { return cmp.Compare(a.sent, b.sent) })
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.received, b.received) })
	// Those received from one on were all sent at its earliest or later; those sent up to one, received at its latest or
	// before.
	earliest, first, latest := make([]float64, len(records)), math.Inf(1), 0.0
	for i, d := range slices.Backward(records) {
		first = min(first, d.from())
		earliest[i] = first
	}
	for i := range records {
		d := &records[i]
		for ; len(sent) > 0 && sent[0].sent <= d.received; sent = sent[1:] {
			if sent[0].err != nil || sent[0].Allowed { // what failed may have been taken, also later
				latest = max(latest, sent[0].to())
				if sent[0].err != nil {
					latest = max(latest, sent[0].to()+late)
				}
				takes.take(latest)
			}
		}
		counted := d.At == 0 || d.At >= known
		switch {
		case d.err != nil:
		case d.Allowed:
			if !admits.lack(earliest[i], d.to(), -rounding) {
				admits.take(earliest[i])
			} else if counted {
				f.add(r, d)
			}
		case counted && judged && !takes.lack(d.from(), d.from(), rounding):
			f.add(r, d)
			latest = max(latest, d.from()) // a permit that was lost is counted once
			takes.take(latest)
		}
	}
}

// from and to are between which times the request was decided, in microseconds.
func (d *record) from() float64 { return math.Floor(float64(d.sent) / 1e3) }
func (d *record) to() float64   { return math.Ceil(float64(d.received) / 1e3) }
