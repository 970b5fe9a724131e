package loadgen

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestEveryCallerAsksItsShareInOrder(t *testing.T) {
	const callers, share = 7, 200
	var next [callers]int
	result, err := Run(t.Context(), Plan{
		Callers: callers, Questions: callers * share,
		Ask: func(_ context.Context, caller, i int) Answer {
			if i != next[caller] {
				t.Errorf("caller %d: question %d, want %d", caller, i, next[caller])
			}
			next[caller]++
			return Answer(i % 3)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if timed := result.Latency.TotalCount(); result.Count() != callers*share || timed != callers*share/timedEvery {
		t.Errorf("%d answers, %d timed, want %d and %d", result.Count(), timed, callers*share, callers*share/timedEvery)
	}
	for kind, n := range result.Answers {
		if want := callers * ((share + 2 - kind) / 3); n != int64(want) {
			t.Errorf("%d answers of kind %d, want %d", n, kind, want)
		}
	}
}

// In an open loop every question is asked once, not before it is due.
func TestAnOpenLoopAsksEveryQuestionOnce(t *testing.T) {
	const questions, rate = 101, 10_000
	var asked [questions]atomic.Int64
	start := time.Now()
	result, err := Run(t.Context(), Plan{
		Callers: 7, Rate: rate, Questions: questions,
		Ask: func(_ context.Context, _, i int) Answer {
			asked[i].Add(1)
			if due := time.Duration(i) * time.Second / rate; time.Since(start) < due {
				t.Errorf("question %d is asked after %v, want %v or later", i, time.Since(start), due)
			}
			return Admitted
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range asked {
		if n := asked[i].Load(); n != 1 {
			t.Errorf("question %d was asked %d times", i, n)
		}
	}
	if result.Answers[Admitted] != questions || result.Latency.TotalCount() != questions {
		t.Errorf("%v answers, %d latencies", result.Answers, result.Latency.TotalCount())
	}
}

// A caller that is slow delays the questions that fall to it, and their latency shows it.
func TestAnOpenLoopCountsFromWhenAQuestionWasDue(t *testing.T) {
	const delay = 20 * time.Millisecond
	result, err := Run(t.Context(), Plan{
		Callers: 1, Rate: 1000, Duration: 3 * time.Millisecond,
		Ask: func(context.Context, int, int) Answer {
			time.Sleep(delay)
			return Admitted
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if result.Count() != 3 {
		t.Fatalf("%d questions, want 3", result.Count())
	}
	if worst := Seconds(result.Latency, 1); worst < (3*delay - 3*time.Millisecond).Seconds() {
		t.Errorf("the last question took %v s, want what all three took", worst)
	}
}

func TestADurationEnds(t *testing.T) {
	result, err := Run(t.Context(), Plan{
		Callers: 2, Duration: time.Millisecond,
		Ask: func(context.Context, int, int) Answer { return Denied },
	})
	if err != nil || result.Count() == 0 || result.Elapsed < time.Millisecond {
		t.Errorf("%d answers in %v, error %v", result.Count(), result.Elapsed, err)
	}
}

func TestTheContextEndsARun(t *testing.T) {
	for _, rate := range []int{0, 100_000} {
		ctx, cancel := context.WithCancel(t.Context())
		var asked atomic.Int64
		_, err := Run(ctx, Plan{
			Callers: 3, Rate: rate, Duration: time.Hour,
			Ask: func(context.Context, int, int) Answer {
				if asked.Add(1) == 100 {
					cancel()
				}
				return Admitted
			},
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("rate %d: error %v, want the context's", rate, err)
		}
	}
}

func TestAWrongPlanIsRefused(t *testing.T) {
	ask := func(context.Context, int, int) Answer { return Admitted }
	for want, plan := range map[string]Plan{
		"callers 0":    {Questions: 1, Ask: ask},
		"questions -1": {Callers: 1, Questions: -1, Ask: ask},
		"duration 0s":  {Callers: 1, Ask: ask},
	} {
		if _, err := Run(t.Context(), plan); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %s", plan, err, want)
		}
	}
}
