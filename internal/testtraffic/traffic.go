// Package testtraffic makes the traffic that the guides to floors and classes show, and decides it by another rule than
// stint's. For tests only.
//
// [Play] lets callers ask in step, [Random] by chance; both call a function at each request, with
// the time, and know nothing of what decides. [WriteLog] writes the same traffic as an access log
// for `stint simulate`.
package testtraffic

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// A Caller asks for PerSecond requests a second, of one permit each, from From until Until. Until 0
// is without end.
type Caller struct {
	Name        string
	PerSecond   float64
	From, Until time.Duration
	// Every is how far its requests are apart, which come together then. 0 is a millisecond.
	Every time.Duration
}

// Play has callers ask, a millisecond after the other. Each millisecond another one comes first.
func Play(length time.Duration, callers []Caller, ask func(name string, now time.Duration)) {
	for now := time.Duration(0); now < length; now += time.Millisecond {
		first := int(now/time.Millisecond) % len(callers)
		for i := range callers {
			c := callers[(first+i)%len(callers)]
			every := max(c.Every, time.Millisecond)
			if now < c.From || c.Until > 0 && now >= c.Until || (now-c.From)%every != 0 {
				continue
			}
			due := func(at time.Duration) int { return int(math.Round(c.PerSecond * (at - c.From).Seconds())) }
			for range due(now+every) - due(now) {
				ask(c.Name, now)
			}
		}
	}
}

// Random has callers ask at random times, by a Poisson process that a seed draws. Those with Every ask
// as Play has them ask.
func Random(seed uint64, length time.Duration, callers []Caller, ask func(name string, now time.Duration)) {
	rng := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- must be repeatable
	next := make([]time.Duration, len(callers))
	wait := func(i int) time.Duration {
		if every := callers[i].Every; every > 0 {
			return every
		}
		return time.Duration(rng.ExpFloat64() / callers[i].PerSecond * float64(time.Second))
	}
	for i := range callers {
		if next[i] = callers[i].From; callers[i].Every == 0 {
			next[i] += wait(i)
		}
	}
	for {
		first := 0
		for i := range next {
			if next[i] < next[first] {
				first = i
			}
		}
		c, now := &callers[first], next[first]
		if now >= length {
			return
		}
		if next[first] += wait(first); c.Until > 0 && next[first] >= c.Until {
			next[first] = length
		}
		for range max(1, int(math.Round(c.PerSecond*c.Every.Seconds()))) {
			ask(c.Name, now)
		}
	}
}

// WriteLog writes what Random makes as a log for `stint simulate`: the time, the caller as a column of a
// name, and 200 or 429 as a rule decides. Each caller is of the organisation acme.
func WriteLog(
	to io.Writer, seed uint64, column string, length time.Duration, callers []Caller,
	decide func(string, time.Duration) bool,
) error {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	out := bufio.NewWriter(to)
	_, _ = fmt.Fprintf(out, "time,organisation,%s,status\n", column) // Flush has the error
	Random(seed, length, callers, func(name string, now time.Duration) {
		status := 429
		if decide(name, now) {
			status = 200
		}
		_, _ = fmt.Fprintf(out, "%d,acme,%s,%d\n", begin.Add(now).UnixMicro(), name, status)
	})
	return out.Flush()
}

// Ceilings decides as LiteLLM's documentation says of dynamic_rate_limiter_v3: a counter of a minute for
// all, and one for each client. While less than the threshold of the limit is used, all of it is
// anybody's. From then on a client is held to its share. What was admitted stays counted until the
// minute ends.
func Ceilings(limit int, threshold float64, shares map[string]float64) func(name string, now time.Duration) bool {
	used, of, minute := 0, map[string]int{}, time.Duration(0)
	return func(name string, now time.Duration) bool {
		if now.Truncate(time.Minute) != minute {
			used, of, minute = 0, map[string]int{}, now.Truncate(time.Minute)
		}
		saturated := float64(used) >= threshold*float64(limit)
		if used >= limit || saturated && float64(of[name]) >= shares[name]*float64(limit) {
			return false
		}
		used++
		of[name]++
		return true
	}
}
