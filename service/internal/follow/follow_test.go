package follow_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/follow"
)

// A followed number; negative ones are refused.
type followed struct {
	*follow.Follower[int]
	now   stint.Instant
	log   strings.Builder
	count int
}

func newFollowed() *followed {
	f := &followed{now: 1_790_000_000_000_000}
	f.Follower = follow.New(follow.Options[int]{
		Refusals: prometheus.CounterOpts{Name: "refused"}, Current: prometheus.GaugeOpts{Name: "current"}, Attributes: []any{"from", "here"},
		Put: func(n int) error {
			if n < 0 {
				return stint.Invalid("number", n, "0 or more")
			}
			return nil
		},
		Text: func(_ error, inForce bool) (string, []any) {
			return map[bool]string{true: "refused", false: "refused, and there is none"}[inForce], nil
		},
		Again:  func(error, bool) string { return "accepted again" },
		Count:  func() { f.count++ },
		Logger: slog.New(slog.NewTextHandler(&f.log, nil)),
		Now:    func() stint.Instant { return f.now },
	})
	return f
}

// lines are those logged since the last call, without their time.
func (f *followed) lines() (lines []string) {
	for line := range strings.Lines(f.log.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " msg=")
		lines = append(lines, line)
	}
	f.log.Reset()
	return lines
}

// What is good is in force until something better comes; states, reasons, gauge and log follow.
func TestStates(t *testing.T) {
	f := newFollowed()
	down, fault := fmt.Errorf("no answer of redis://:hush@h: %w", stint.ErrUnavailable), errors.New("stint: no number")
	for _, step := range []struct {
		do    func() error
		state follow.State
		value int
		gauge int
		lines string
	}{
		{func() error { f.Refuse(fault); return nil }, follow.Unknown, 0, 0, `"refused, and there is none" from=here err="no number"`},
		{func() error { _, err := f.Stand(func() (int, error) { return 1, nil }); return err }, follow.Cached, 1, 0, ""},
		{func() error { f.Refuse(down); return nil }, follow.Cached, 1, 0, `refused from=here err="no answer of redis://redacted@h: store unavailable"`},
		{func() error { return f.Take(2, nil) }, follow.Current, 2, 1, `"accepted again" from=here`},
		{func() error { _, err := f.Stand(func() (int, error) { return 1, nil }); return err }, follow.Current, 2, 1, ""},
		{func() error { f.Refuse(down); return nil }, follow.Unreachable, 2, 0, "again"},
		{func() error { return f.Take(3, nil) }, follow.Current, 3, 1, `"accepted again" from=here`},
		{func() error { return f.Take(4, nil) }, follow.Current, 4, 1, ""},
		{func() error { return f.Take(5, fault) }, follow.Refused, 5, 0, `refused from=here err="no number"`},
		{func() error { return f.Take(6, nil) }, follow.Current, 6, 1, `"accepted again" from=here`},
	} {
		must.Do(t, step.do())
		got := strings.Join(f.lines(), "\n")
		if step.lines == "again" && strings.HasPrefix(got, "refused from=here") {
			got = step.lines
		}
		if f.State() != step.state || f.Value() != step.value || got != step.lines {
			t.Errorf("%v, %d, %q; want %+v", f.State(), f.Value(), got, step)
		}
		if gauge := testutil.ToFloat64(f.Collectors()[1]); int(gauge) != step.gauge {
			t.Errorf("the gauge is %v in the state %v", gauge, f.State())
		}
	}
	two := 2
	if first := follow.New(follow.Options[int]{First: &two}); first.Value() != 2 || first.State() != follow.Current {
		t.Errorf("a first value is %d, %v", first.Value(), first.State())
	}
	if err := f.Take(-1, nil); err == nil || f.Value() != 6 || f.State() != follow.Current {
		t.Errorf("%v, %d, %v", err, f.Value(), f.State())
	}
	if counted := testutil.ToFloat64(f.Collectors()[0]); counted != 4 || f.count != 4 {
		t.Errorf("%v and %d refusals are counted, want 4", counted, f.count)
	}
	if f.Refuse(fault); fmt.Sprint(f.Details()) != "map[reason:no number state:refused]" {
		t.Error(f.Details())
	}
}

// A source that repeats a refusal is told once a minute; one that always finds another fault, ten times and then once a
// minute. All are counted.
func TestToldOnce(t *testing.T) {
	f := newFollowed()
	for range 600 { // for a minute, and the beginning of the next
		f.Refuse(errors.New("the same"))
		f.now += 101_000
	}
	if lines := f.lines(); len(lines) != 2 {
		t.Errorf("%d lines of the same: %q", len(lines), lines)
	}
	for i := range 600 {
		f.Refuse(fmt.Errorf("fault %d", i))
		f.now += 101_000
	}
	if lines := f.lines(); len(lines) < 10 || len(lines) > 11 || !strings.Contains(lines[len(lines)-1], "skipped=") && len(lines) == 11 {
		t.Errorf("%d lines of others: %q", len(lines), lines)
	}
	if f.count != 1200 {
		t.Errorf("%d are counted", f.count)
	}
}
