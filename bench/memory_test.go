package bench

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

// BenchmarkMemory reports the bytes of heap per key, B/key, after a collection.
// The names themselves are not counted for anybody. One run says it all: use
// -benchtime=1x.
func BenchmarkMemory(b *testing.B) {
	for _, c := range contenders() {
		name := fmt.Sprintf("impl=%s/alg=token_bucket/order=sequential/keys=%d", c.name, manyKeys())
		b.Run(name, func(b *testing.B) {
			benchmarkMemory(b, manyNames(), func() subject { return c.make(b, generous, manyKeys()) })
		})
	}
	for _, m := range fixedSize() {
		for _, order := range []string{"random", "reversed", "sequential"} {
			if m.name == "token_bucket" && order == "sequential" {
				continue // done above
			}
			name := fmt.Sprintf("impl=stint/alg=%s/order=%s/keys=%d", m.name, order, manyKeys())
			b.Run(name, func(b *testing.B) {
				benchmarkMemory(b, ordered(order), func() subject { return newStint(b, m.limit) })
			})
		}
	}
	// A table that doubles is at its worst just after it has grown.
	many := manyKeys()
	for n := 7 * many / 10; n <= 13*many/10; n += many / 20 {
		if n == many {
			continue
		}
		b.Run(fmt.Sprintf("impl=stint/alg=token_bucket/order=sequential/keys=%d", n), func(b *testing.B) {
			benchmarkMemory(b, names(n), func() subject { return newStintSubject(b, generous, n) })
		})
	}
}

// BenchmarkLogMemory reports the bytes of heap per entry of full logs in the process, B/entry, and BenchmarkHoldMemory those
// per hold of a concurrency limit, B/hold. Use -benchtime=1x.
func BenchmarkLogMemory(b *testing.B) {
	const clients, entries = 10_000, 100
	keys := names(clients)
	for b.Loop() {
		before := heap()
		l := newStintLimiter(b, stint.SlidingWindowLog(entries, 366*24*time.Hour))
		for range entries {
			for _, key := range keys {
				if d, err := l.Allow(b.Context(), key); err != nil || !d.Allowed {
					b.Fatalf("%+v, %v; want it admitted", d, err)
				}
			}
		}
		b.ReportMetric(float64(heap()-before)/clients/entries, "B/entry")
		if d, err := l.Allow(b.Context(), keys[0]); err != nil || d.Allowed {
			b.Fatalf("%+v, %v; want it denied, since the log is full", d, err)
		}
	}
}

func BenchmarkHoldMemory(b *testing.B) {
	const clients, each = 10_000, 10
	keys := names(clients)
	for b.Loop() {
		before := heap()
		l := newStintLimiter(b, stint.Concurrency(each))
		for i := range each {
			for j, key := range keys {
				hold := stint.Hold{ID: fmt.Sprintf("7f3c9a52-0b1e-4f5d-9c3a-%012d", i*clients+j), TTL: time.Hour}
				if _, d, err := l.Reserve(b.Context(), key, 1, hold); err != nil || !d.Allowed {
					b.Fatalf("%+v, %v; want it held", d, err)
				}
			}
		}
		b.ReportMetric(float64(heap()-before)/clients/each, "B/hold")
		if d, err := l.Peek(b.Context(), keys[0]); err != nil || d.Remaining != 0 {
			b.Fatalf("%+v, %v; want no place left", d, err)
		}
	}
}

type namedLimit struct {
	name  string
	limit stint.Limit
}

// fixedSize are the algorithms whose state has one size, with limits that
// nothing returns to within a run.
func fixedSize() []namedLimit {
	const permits, window = 1_000_000, 366 * 24 * time.Hour
	return []namedLimit{
		{"token_bucket", stint.TokenBucket(permits, stint.Per(permits, window))},
		{"leaky_bucket", stint.LeakyBucket(permits, stint.Per(permits, window))},
		{"fixed_window", stint.FixedWindow(permits, window)},
		{"sliding_window_counter", stint.SlidingWindowCounter(permits, window)},
	}
}

func ordered(order string) []string {
	keys := slices.Clone(manyNames())
	switch order {
	case "reversed":
		slices.Reverse(keys)
	case "random":
		for i, from := range shuffled() {
			keys[i] = manyNames()[from]
		}
	}
	return keys
}

func benchmarkMemory(b *testing.B, keys []string, newSubject func() subject) {
	var bytes uint64
	for b.Loop() {
		before := heap()
		s := newSubject()
		for _, key := range keys {
			must.Do(b, fill(s, key))
		}
		bytes = heap() - before
		requireHeld(b, s, keys)
		if s.close != nil {
			s.close()
		}
	}
	b.ReportMetric(float64(bytes)/float64(len(keys)), "B/key")
}

// requireHeld fails unless every thousandth key is still known: what is dropped
// costs no memory.
func requireHeld(b *testing.B, s subject, keys []string) {
	if s.held == nil {
		runtime.KeepAlive(s.take)
		return
	}
	for i := 0; i < len(keys); i += 1000 {
		if held, err := s.held(keys[i]); err != nil || !held {
			b.Fatalf("%s: held %t, error %v; want it held", keys[i], held, err)
		}
	}
}

// heap is the live heap in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools kept once
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
