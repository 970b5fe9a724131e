package main

import (
	"time"

	"github.com/stint-go/stint/bench/internal/proc"
)

// A watch sees what other programs take of the processors that are measured on. The
// zero value sees nothing.
type watch struct {
	cpus []int // Redis's and ours
	pids []int // Redis and this process
}

// others runs f and returns how much of a processor others used meanwhile, in percent;
// 0 when that can't be seen.
func (w watch) others(f func() error) (float64, error) {
	start := time.Now()
	before, unseen := proc.ReadUsage(w.cpus, w.pids)
	if err := f(); err != nil {
		return 0, err
	}
	after, err := proc.ReadUsage(w.cpus, w.pids)
	if unseen != nil || err != nil || len(w.cpus) == 0 {
		return 0, nil //nolint:nilerr // a system that does not tell is no failure
	}
	used := (after.Busy - before.Busy) - (after.Own - before.Own)
	return max(100*used.Seconds()/time.Since(start).Seconds(), 0), nil
}
