package main

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/bench/internal/redislimit"
)

// A faulty limiter is a plain counter with one thing wrong.
type faulty struct {
	quota         redislimit.Quota
	taken         map[string]int64
	asked         int64
	uncharged     int64         // every so many admissions are not charged; 0 for none
	generous      int64         // permits admitted beyond the quota's, per client
	stingy        int64         // permits held back
	microsPerTake stint.Instant // how fast the time that it tells goes by
}

func (f *faulty) Take(ctx context.Context, keys []string) (redislimit.Answer, error) {
	return f.TakeOne(ctx, 0, keys[0])
}

func (f *faulty) TakeOne(_ context.Context, _ int, key string) (redislimit.Answer, error) {
	f.asked++
	at := 1 + stint.Instant(f.asked)*f.microsPerTake
	if f.taken[key] >= f.quota.Permits+f.generous-f.stingy {
		return redislimit.Answer{At: at}, nil
	}
	if f.uncharged == 0 || f.asked%f.uncharged != 0 {
		f.taken[key]++
	}
	return redislimit.Answer{Allowed: true, Remaining: f.quota.Permits - f.taken[key], At: at}, nil
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
	counter := redislimit.Contender{Name: "counter", Counter: true}
	plain := redislimit.Contender{Name: "plain"}
	timed := redislimit.Contender{Name: "timed", TellsTime: true}
	for name, c := range map[string]struct {
		load      string
		contender redislimit.Contender
		faulty    faulty
		right     bool
	}{
		"books, right":              {"zipf", plain, faulty{}, true},
		"books, uncharged":          {"zipf", plain, faulty{uncharged: 10}, false},
		"books, denied":             {"zipf", plain, faulty{stingy: generousMany.Permits - 2}, false},
		"counter, right":            {"hot", counter, faulty{}, true},
		"counter, one lost":         {"hot", counter, faulty{uncharged: 700}, false},
		"none, right":               {"denied", plain, faulty{}, true},
		"none, one admitted":        {"denied", plain, faulty{generous: 1}, false},
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
			l := loadOf(t, c.load)
			c.faulty.quota, c.faulty.taken = l.quotas[0], map[string]int64{}
			traffic := newTraffic(l, 50, 1)
			subject := &redislimit.Subject{Take: c.faulty.Take, TakeOne: c.faulty.TakeOne, Fill: c.faulty.Fill}
			s := &session{deployment: &deployment{}, load: l, contender: c.contender, subject: subject, names: traffic.names, ledger: newLedger(traffic.names)}
			s.ledger.timed = c.contender.TellsTime
			if l.filled {
				if err := s.subject.Fill(t.Context(), 0, s.names[0]); err != nil {
					t.Fatal(err)
				}
				s.ledger.filled(0)
			}
			const turns = 1000
			if _, err := loadgen.Run(t.Context(), loadgen.Plan{Callers: 1, Questions: turns, Ask: s.ask(traffic)}); err != nil {
				t.Fatal(err)
			}
			faults, err := s.faults(t.Context(), turns, time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if c.right != (len(faults) == 0) {
				t.Errorf("faults %q, want none: %t", faults, c.right)
			}
		})
	}
}

func loadOf(t *testing.T, name string) *load {
	t.Helper()
	for _, l := range loads() {
		if l.name == name {
			return &l
		}
	}
	t.Fatalf("no load is called %s", name)
	return nil
}
