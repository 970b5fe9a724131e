package main

import (
	"testing"
	"time"

	"github.com/stint-go/stint/bench/internal/loadgen"
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

func TestTallyMeasuresWhatIsMissed(t *testing.T) {
	o := options{rate: 1000, duration: time.Second}
	exactly := &tally{limit: int64(o.exactLimit())}
	answers := map[loadgen.Answer]int{}
	var admitted [5]int64
	denied := 0
	for i := range o.rate {
		status := 200
		if e, ok := exactOf(i); ok {
			if admitted[e] == exactly.limit {
				status, denied = 429, i
			} else {
				admitted[e]++
			}
		}
		answers[exactly.note(i, status)]++
	}
	if exactly.inexact() != 0 || answers[loadgen.Failed] != 0 || answers[loadgen.Denied] != o.rate/exactEvery-int(5*exactly.limit) {
		t.Errorf("%v answers, inexact %d, want 0", answers, exactly.inexact())
	}
	exactly.note(denied, 200) // one too many
	if got := exactly.inexact(); got != 1 {
		t.Errorf("inexact %d, want 1", got)
	}
	if answer := exactly.note(denied, 503); answer != loadgen.Failed || exactly.inexact() != 1 {
		t.Errorf("503 is %v, inexact %d", answer, exactly.inexact())
	}
}
