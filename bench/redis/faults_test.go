package redis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
)

// A faulty limiter is a plain counter with one thing wrong.
type faulty struct {
	quota         quota
	taken         map[string]int64
	asked         int64
	uncharged     int64         // every so many admissions are not charged; 0 for none
	generous      int64         // permits admitted beyond the quota's, per client
	stingy        int64         // permits held back
	microsPerTake stint.Instant // how fast the time that it tells goes by
}

func (f *faulty) Take(ctx context.Context, keys []string) (answer, error) {
	return f.TakeOne(ctx, 0, keys[0])
}

func (f *faulty) TakeOne(_ context.Context, _ int, key string) (answer, error) {
	f.asked++
	at := 1 + stint.Instant(f.asked)*f.microsPerTake
	if f.taken[key] >= f.quota.Permits+f.generous-f.stingy {
		return answer{At: at}, nil
	}
	if f.uncharged == 0 || f.asked%f.uncharged != 0 {
		f.taken[key]++
	}
	return answer{Allowed: true, Remaining: f.quota.Permits - f.taken[key], At: at}, nil
}

func (f *faulty) Fill(ctx context.Context, _ int, keys []string) error {
	for _, key := range keys {
		if _, err := f.TakeOne(ctx, 0, key); err != nil {
			return err
		}
	}
	return nil
}

func TestChecksFindWhatIsWrong(t *testing.T) {
	counter := contender{Name: "counter", Counter: true}
	plain := contender{Name: "plain"}
	timed := contender{Name: "timed", TellsTime: true}
	for name, c := range map[string]struct {
		load      string
		contender contender
		faulty    faulty
		right     bool
	}{
		"books, right":              {"zipf", plain, faulty{}, true},
		"books, uncharged":          {"zipf", plain, faulty{uncharged: 10}, false},
		"books, denied":             {"zipf", plain, faulty{stingy: generousMany.Permits - 2}, false},
		"counter, right":            {"hot", counter, faulty{}, true},
		"counter, one lost":         {"hot", counter, faulty{uncharged: 700}, false},
		"denied, right":             {"denied", plain, faulty{}, true},
		"denied, one admitted":      {"denied", plain, faulty{generous: 1}, false},
		"bound, right":              {"saturated", plain, faulty{}, true},
		"bound, too many":           {"saturated", plain, faulty{generous: 2}, false},
		"bound, too few":            {"saturated", plain, faulty{stingy: 1}, false},
		"bound by its times, right": {"saturated", timed, faulty{}, true},
		"bound by its times, one":   {"saturated", timed, faulty{generous: 1}, false},
		"times run ahead":           {"saturated", timed, faulty{microsPerTake: 1_000_000}, false},
		"exact, right":              {"exhausted", plain, faulty{}, true},
		"exact, one too many":       {"exhausted", plain, faulty{generous: 1}, false},
		"exact, one too few":        {"exhausted", plain, faulty{stingy: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			// The bubble's clock stands still, so that nothing refills meanwhile.
			synctest.Test(t, func(t *testing.T) {
				l := loadOf(t, c.load)
				c.faulty.quota, c.faulty.taken = l.quotas[0], map[string]int64{}
				traffic := newTraffic(l, 50, 1)
				limiter := &subject{Take: c.faulty.Take, TakeOne: c.faulty.TakeOne, Fill: c.faulty.Fill}
				s := newLedger(&session{deployment: &deployment{}, load: l, contender: c.contender, subject: limiter, names: traffic.names})
				if l.filled {
					s.fill(t)
				}
				m := s.measure(t.Context(), traffic, 1000, atOnce)
				if c.right != (len(m.faults) == 0) {
					t.Errorf("faults %q, want none: %t", m.faults, c.right)
				}
			})
		})
	}
}

func loadOf(t *testing.T, name string) *scenario {
	t.Helper()
	for _, l := range loads() {
		if l.name == name {
			return &l
		}
	}
	t.Fatalf("no load is called %s", name)
	return nil
}

// Every cell, with few decisions: nothing fails, and what is admitted is right. So is it on clusters and behind a slow network.
func TestEveryCellAdmitsRightly(t *testing.T) {
	const questions = 240
	server := testredis.Start(t)
	cell := func(d *deployment, l *scenario, c contender, callers int, some bool) (p50 time.Duration) {
		t.Helper()
		traffic := newTraffic(l, 300, callers)
		s := newSession(t, d, l, c, traffic.names, callers)
		defer s.close(t)
		m := s.measure(t.Context(), traffic, questions, atOnce)
		if m.failed > 0 || len(m.faults) > 0 {
			t.Errorf("%s, %s, %d callers: %d failed, faults %q", l.name, c.Name, callers, m.failed, m.faults)
		}
		// What refills on the server's clock may admit all of a slow run: its bound is checked, not its denials.
		all := l.check == books
		if l.check != bound && all != (m.admitted == questions) || some != (m.admitted > 0) {
			t.Errorf("%s, %s, %d callers: %d were admitted", l.name, c.Name, callers, m.admitted)
		}
		return time.Duration(m.latency.ValueAtQuantile(50))
	}
	for _, l := range loads() {
		for _, c := range contenders() {
			if l.has(c) {
				cell(deployed(t, false, server), &l, c, 1, l.name != "denied")
				cell(deployed(t, false, server), &l, c, 12, l.name != "denied")
			}
		}
	}
	cluster := deployed(t, true, testredis.StartCluster(t, 3).Nodes...)
	slow := deployed(t, false, server).behind(t, "2ms")
	for _, c := range contenders() {
		cell(cluster, loadOf(t, "uniform"), c, 12, true)
		if p50 := cell(slow, loadOf(t, "uniform"), c, 12, true); p50 < 1980*time.Microsecond {
			t.Errorf("%s: half of the answers came within %v, before the network let them", c.Name, p50)
		}
	}
}

// Every state has a size.
func TestMemory(t *testing.T) {
	d := deployed(t, false, testredis.Start(t))
	for _, m := range states() {
		if bytes := m.growth(t, d, 20); bytes <= 0 {
			t.Errorf("%s of %s: %d bytes", m.state, m.impl, bytes)
		}
	}
}
