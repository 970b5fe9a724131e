package simulate_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/simulate"
)

// TestMemory holds what a client takes beside its state and its key to 64 bytes.
func TestMemory(t *testing.T) {
	const state, reference = 24, 8 // to its key
	clients := 1_000_000
	if testing.Short() {
		clients /= 16 // as full a table
	}
	s := simulation(t, nil, simulate.LimitRule("r", stint.FixedWindow(10, time.Millisecond)))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	keys := 0
	before := heap()
	for i := range clients {
		key := fmt.Sprint("client ", i)
		keys += len(key)
		must.Do(t, s.Add(event(at2026+stint.Instant(i)*1000, key)))
	}
	if each := (int(heap()-before) - keys) / clients; each > 64+state+reference {
		t.Errorf("%d bytes for each client, of which the state has %d", each, state)
	}
	if r := finish(t, s); r.Candidates[0].Rules[0].Clients != int64(clients) {
		t.Error(r.Candidates[0].Rules[0].Clients)
	}
}

// TestSample leaves whole clients out once there are too many, the same in every run, and goes on with the states of others.
func TestSample(t *testing.T) {
	run := func(most int) simulate.RuleReport {
		s, err := simulate.New(simulate.Config{
			Candidates: []simulate.Candidate{candidate(t, "", simulate.LimitRule("r", stint.SlidingWindowLog(5, time.Hour)))}, MaxClients: most,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100_000 {
			must.Do(t, s.Add(event(at2026+stint.Instant(i), fmt.Sprint("client ", i*i%9973%5000))))
		}
		return finish(t, s).Candidates[0].Rules[0]
	}
	all, some, again := run(10_000), run(500), run(500)
	if all.Sample != 1 || all.Unsampled != 0 || some.Sample < 4 || some.Clients > 500 || some.Clients < 100 || some.Unsampled == 0 {
		t.Errorf("all: %+v\nsome: %+v", all.Sample, some.Sample)
	}
	if some.Clients != again.Clients || some.Unsampled != again.Unsampled {
		t.Errorf("%d clients, and %d in another run", some.Clients, again.Clients)
	}
	whole := map[string]simulate.ClientReport{}
	for _, c := range all.Heaviest {
		whole[c.Key] = c
	}
	known := 0
	for _, c := range some.Heaviest {
		if w, ok := whole[c.Key]; ok {
			known++
			if w.Admitted != c.Admitted || w.Denied != c.Denied || w.Peaks[0] != c.Peaks[0] {
				t.Errorf("%+v in the sample, %+v without", c, w)
			}
		}
	}
	if known == 0 {
		t.Error("no client is in both reports")
	}
}

// TestPeaks holds peaks to a naive count over every span (t - window, t], in total and for each client.
func TestPeaks(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 4))
		s := simulation(t, nil, simulate.LimitRule("r", stint.FixedWindow(1000, time.Millisecond)))
		var times []stint.Instant
		var clients []string
		now := at2026
		for range 500 {
			now += stint.Instant(rng.IntN(4) * rng.IntN(2) * 250) // often at exactly the window's length
			times, clients = append(times, now), append(clients, fmt.Sprint(rng.IntN(3)))
			must.Do(t, s.Add(event(now, clients[len(clients)-1])))
		}
		peak := func(client string) (most int64) {
			for i := range times {
				n := int64(0)
				for j := i; j >= 0 && times[j] > times[i]-1000; j-- {
					if client == "" || clients[j] == client {
						n++
					}
				}
				most = max(most, n)
			}
			return most
		}
		rule := finish(t, s).Candidates[0].Rules[0]
		if rule.Limits[0].Peak != peak("") {
			t.Fatalf("seed %d: the peak is %d, want %d", seed, rule.Limits[0].Peak, peak(""))
		}
		for _, c := range rule.Heaviest {
			if c.Peaks[0] != peak(c.Key) {
				t.Fatalf("seed %d: the peak of %s is %d, want %d", seed, c.Key, c.Peaks[0], peak(c.Key))
			}
		}
	}
}
