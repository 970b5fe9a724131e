package topk_test

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/service/internal/topk"
)

// check compares a sketch with the true weights, by the bounds of Space-Saving: an error of at most N/k, and
// every key above heavy is counted.
func check(t interface{ Fatalf(string, ...any) }, s *topk.Sketch, k int, truth map[uint64]int64, heavy int64) {
	var total int64
	for _, w := range truth {
		total += w
	}
	if s.Total() != total {
		t.Fatalf("the total is %d, want %d", s.Total(), total)
	}
	counted := map[uint64]bool{}
	last := int64(-1)
	for i, item := range s.Top(k + 1) {
		w := truth[item.Key]
		if item.Count < w || item.Count > w+item.Error || item.Error > total/int64(k) {
			t.Fatalf("key %d weighs %d of %d: counted %d, error %d with %d counters", item.Key, w, total, item.Count, item.Error, k)
		}
		if counted[item.Key] || i == k || last >= 0 && item.Count-item.Error > last {
			t.Fatalf("item %d is %+v after %d", i, item, last)
		}
		counted[item.Key], last = true, item.Count-item.Error
	}
	for key, w := range truth {
		if w > heavy && !counted[key] {
			t.Fatalf("key %d weighs %d of %d and is not counted by %d counters", key, w, total, k)
		}
	}
}

// The bounds hold for any stream, whatever its keys and weights.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 20).Draw(t, "k")
		s := topk.New(k)
		truth := map[uint64]int64{}
		for range rapid.IntRange(0, 200).Draw(t, "length") {
			key, weight := rapid.Uint64Range(0, 40).Draw(t, "key"), rapid.Int64Range(-1, 9).Draw(t, "weight")
			s.Add(key, weight)
			truth[key] += max(0, weight)
		}
		check(t, s, k, truth, s.Total()/int64(k))
	})
}

// The bounds hold for merged sketches, also when more is added to them.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 12).Draw(t, "k")
		truth := map[uint64]int64{}
		add := func(s *topk.Sketch, name string) {
			for range rapid.IntRange(0, 60).Draw(t, name) {
				key, weight := rapid.Uint64Range(0, 30).Draw(t, "key"), rapid.Int64Range(1, 9).Draw(t, "weight")
				s.Add(key, weight)
				truth[key] += weight
			}
		}
		a, b := topk.New(k), topk.New(k)
		add(a, "first")
		add(b, "second")
		before := fmt.Sprint(b.Top(k))
		a.Merge(b)
		check(t, a, k, truth, 2*a.Total()/int64(k))
		if after := fmt.Sprint(b.Top(k)); after != before {
			t.Fatalf("the other sketch changed from %s to %s", before, after)
		}
	})
}

func TestMergeWithItself(t *testing.T) {
	s := topk.New(2)
	s.Add(7, 3)
	s.Add(8, 1)
	s.Merge(s)
	if got := fmt.Sprint(s.Top(5), s.Total()); got != "[{7 6 0} {8 2 0}] 8" {
		t.Error(got)
	}
}

// A flood of names that come once each drives up all counts; a key that is certain to be heavy stands before them.
func TestFlood(t *testing.T) {
	const k = 500
	s := topk.New(k)
	flood := func(n int) {
		for range n {
			s.Add(2+uint64(s.Total()), 1)
		}
	}
	flood(305_250)
	s.Add(1, 1000) // in the place of a name that had 610
	flood(498_850) // the others have 1,610 or 1,611 now
	top := s.Top(k)
	if top[0].Key != 1 || top[0].Count-top[0].Error != 1000 {
		t.Fatalf("first of %d is %+v, want the key that came 1,000 times", len(top), top[0])
	}
	if most := slices.MaxFunc(top[1:], func(a, b topk.Item) int { return cmp.Compare(a.Count, b.Count) }); most.Count <= top[0].Count {
		t.Errorf("the largest count of another key is %+v, so this shows nothing", most)
	}
}

// A sketch that has a counter for each of the sketches that are merged into it loses no key, and keeps its bounds.
func TestMergeIntoALargerOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const parts, k = 3, 4
		truth := map[uint64]int64{}
		all := topk.New(parts * k)
		add := func(s *topk.Sketch, n int) {
			for range n {
				key, weight := rapid.Uint64Range(0, 30).Draw(t, "key"), rapid.Int64Range(1, 9).Draw(t, "weight")
				s.Add(key, weight)
				truth[key] += weight
			}
		}
		for range parts {
			part := topk.New(k)
			add(part, rapid.IntRange(0, 40).Draw(t, "length"))
			all.Merge(part)
		}
		add(all, rapid.IntRange(0, 20).Draw(t, "more"))
		for _, item := range all.Top(parts * k) {
			if w := truth[item.Key]; w > item.Count || item.Count > w+item.Error || item.Error > all.Total()/k {
				t.Fatalf("%+v of a key that weighs %d of %d", item, w, all.Total())
			}
		}
	})
}

// On a Zipf stream the sketch names the heaviest keys in order.
func TestZipf(t *testing.T) {
	const k, length = 1000, 1_000_000
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 1_000_000)
	s := topk.New(k)
	truth := map[uint64]int64{}
	for range length {
		key := zipf.Uint64()
		s.Add(key, 1)
		truth[key]++
	}
	check(t, s, k, truth, length/k)
	for i, item := range s.Top(10) {
		if item.Key != uint64(i) {
			t.Errorf("place %d has key %d", i, item.Key)
		}
	}
}

func TestReset(t *testing.T) {
	s := topk.New(2)
	for _, key := range []uint64{7, 8, 9} {
		s.Add(key, 1)
	}
	s.Reset()
	s.Add(10, 2)
	if got := fmt.Sprint(s.Top(5), s.Total()); got != "[{10 2 0}] 2" {
		t.Error(got)
	}
}

func TestNoAllocations(t *testing.T) {
	s, seed := topk.New(100), maphash.MakeSeed()
	keys := make([]uint64, 10_000)
	for i := range keys {
		keys[i] = maphash.Comparable(seed, i)
		s.Add(keys[i], 1)
	}
	next := 0
	if allocations := testing.AllocsPerRun(50_000, func() {
		s.Add(keys[next%len(keys)], 1)
		next++
	}); allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}

// BenchmarkAdd counts hashes, as the service does. It reports the median over blocks too, which a busy
// machine changes less than the mean.
func BenchmarkAdd(b *testing.B) {
	const n = 1 << 20
	random, seed := rand.New(rand.NewPCG(1, 2)), maphash.MakeSeed()
	zipf := rand.NewZipf(random, 1.1, 1, 1_000_000)
	for _, load := range []struct {
		name string
		draw func() uint64
	}{{"zipf", zipf.Uint64}, {"uniform", func() uint64 { return random.Uint64N(1_000_000) }}} {
		hashes := make([]uint64, n)
		for i := range hashes {
			hashes[i] = maphash.Comparable(seed, load.draw())
		}
		b.Run("keys="+load.name, func(b *testing.B) { add(b, hashes) })
	}
}

func add(b *testing.B, keys []uint64) {
	const block = 512
	b.ReportAllocs()
	s := topk.New(1000)
	var times []float64
	i := 0
	began := time.Now()
	for b.Loop() {
		s.Add(keys[i%len(keys)], 1)
		if i++; i%block == 0 {
			now := time.Now()
			times, began = append(times, float64(now.Sub(began))/block), now
		}
	}
	if len(times) > 0 {
		slices.Sort(times)
		b.ReportMetric(times[len(times)/2], "median-ns/op")
	}
}

func Example() {
	s, seed, names := topk.New(100), maphash.MakeSeed(), map[uint64]string{}
	for _, client := range []string{"ann", "bob", "ann", "eve", "ann", "bob"} {
		key := maphash.String(seed, client)
		s.Add(key, 1)
		names[key] = client
	}
	for _, item := range s.Top(2) {
		fmt.Println(names[item.Key], item.Count)
	}
	// Output:
	// ann 3
	// bob 2
}
