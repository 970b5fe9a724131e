package closedloop

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestEveryCallerAsksItsTurnsInOrder(t *testing.T) {
	const callers, turns = 7, 200
	var next [callers]int
	result, err := Run(t.Context(), Plan{
		Callers: callers,
		Turns:   turns,
		Ask: func(_ context.Context, caller, turn int) Answer {
			if turn != next[caller] {
				t.Errorf("caller %d: turn %d, want %d", caller, turn, next[caller])
			}
			next[caller]++
			return Answer(turn % 3)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if timed := result.Latency.Count(); result.Count() != callers*turns || timed != callers*turns/timedEvery {
		t.Errorf("%d answers, %d timed, want %d and %d", result.Count(), timed, callers*turns, callers*turns/timedEvery)
	}
	for kind, n := range result.Answers {
		if want := callers * ((turns + 2 - kind) / 3); n != int64(want) {
			t.Errorf("%d answers of kind %d, want %d", n, kind, want)
		}
	}
}

func TestADurationEnds(t *testing.T) {
	result, err := Run(t.Context(), Plan{
		Callers:  2,
		Duration: time.Millisecond,
		Ask:      func(context.Context, int, int) Answer { return Denied },
	})
	if err != nil || result.Count() == 0 || result.Elapsed < time.Millisecond {
		t.Errorf("%d answers in %v, error %v", result.Count(), result.Elapsed, err)
	}
}

func TestTheContextEndsARun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	_, err := Run(ctx, Plan{
		Callers:  3,
		Duration: time.Hour,
		Ask: func(context.Context, int, int) Answer {
			if asked.Add(1) == 100 {
				cancel()
			}
			return Admitted
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestAWrongPlanIsRefused(t *testing.T) {
	ask := func(context.Context, int, int) Answer { return Admitted }
	for want, plan := range map[string]Plan{
		"callers":  {Turns: 1, Ask: ask},
		"turns":    {Callers: 1, Turns: -1, Ask: ask},
		"duration": {Callers: 1, Ask: ask},
		"ask":      {Callers: 1, Turns: 1},
	} {
		if _, err := Run(t.Context(), plan); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %s", plan, err, want)
		}
	}
}
