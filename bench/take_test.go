package bench

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// BenchmarkTake is one decision about one permit. Run it with -cpu 1,2: the
// benchmark is parallel, so one processor is the serial case.
func BenchmarkTake(b *testing.B) {
	paths := []struct {
		name  string
		quota quota
	}{{"admitted", generous}, {"denied", spent}}
	for _, c := range contenders() {
		b.Run("impl="+c.name, func(b *testing.B) {
			for _, path := range paths {
				many := filled{contender: c, quota: path.quota}
				one := filled{contender: c, quota: path.quota}
				for _, load := range workloads() {
					b.Run("keys="+load.name+"/path="+path.name, func(b *testing.B) {
						f := &many
						if load.name == "hot" {
							f = &one
						}
						benchmarkTake(b, f.get(b, load.fill()), load, path.name == "admitted")
					})
				}
				one.close()
				many.close()
			}
		})
	}
}

// filled is a subject that is made and filled when it is first needed, and then
// kept: a benchmark's function runs many times, for several workloads.
type filled struct {
	contender contender
	quota     quota
	subject   *subject
}

func (f *filled) get(b *testing.B, keys []string) subject {
	if f.subject == nil {
		s := f.contender.make(b, f.quota, len(keys))
		for _, key := range keys {
			must.Do(b, fill(s, key))
		}
		f.subject = &s
		runtime.GC()
	}
	return *f.subject
}

func (f *filled) close() {
	if f.subject != nil && f.subject.close != nil {
		f.subject.close()
	}
}

func fill(s subject, key string) error {
	if s.fill != nil {
		return s.fill(key)
	}
	_, err := s.take(key)
	return err
}

func benchmarkTake(b *testing.B, s subject, load workload, want bool) {
	keys, order := load.ask(), load.draw()
	var workers, surprises atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		// Workers walk the same order from places far from one another.
		next := int(workers.Add(1)-1) * (len(order)/2 + 1) % len(order)
		surprised := int64(0)
		for pb.Next() {
			allowed, err := s.take(keys[order[next]])
			if err != nil || allowed != want {
				surprised++
			}
			if next++; next == len(order) {
				next = 0
			}
		}
		surprises.Add(surprised)
	})
	b.StopTimer()
	if n := surprises.Load(); n != 0 {
		b.Fatalf("%d of %d decisions failed or were not %t", n, b.N, want)
	}
}
