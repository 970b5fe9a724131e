package main

import (
	"testing"
	"time"

	"github.com/stint-go/stint/bench/internal/load"
)

func TestExactRequestsReachEveryProcessUnderEveryLimit(t *testing.T) {
	const processes, all = 4, 10_000
	var asked [5][processes]int
	for i := range all {
		if e, ok := exactOf(i); ok {
			asked[e][i%processes]++
		}
	}
	total := 0
	for e := range asked {
		for p, n := range asked[e] {
			if n == 0 {
				t.Errorf("process %d is never asked about limit %d", p, e)
			}
			total += n
		}
	}
	if total != all/exactEvery {
		t.Errorf("%d exact requests, want %d", total, all/exactEvery)
	}
}

func TestCountMeasuresWhatIsMissed(t *testing.T) {
	o := options{rate: 1000, duration: time.Second, clients: 10}
	samples := make([]load.Sample, 1000)
	limit := o.exactLimit()
	var admitted [5]int
	for i := range samples {
		samples[i].Status = 200
		if e, ok := exactOf(i); ok {
			if admitted[e] == limit {
				samples[i].Status = 429
			} else {
				admitted[e]++
			}
		}
	}
	if got := count(o, samples); got.inexact() != 0 || got.errors != 0 {
		t.Errorf("%+v: inexact %d, want 0", got, got.inexact())
	}
	for i := range samples {
		if _, ok := exactOf(i); ok && samples[i].Status == 429 {
			samples[i].Status = 200 // one too many
			break
		}
	}
	samples[1].Status = 503
	if got := count(o, samples); got.inexact() != 1 || got.errors != 1 {
		t.Errorf("%+v: inexact %d, want 1", got, got.inexact())
	}
}
