package notation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/notation"
)

func TestParseDuration(t *testing.T) {
	good := map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "90s": 90 * time.Second, "1m30s": 90 * time.Second, "1d": 24 * time.Hour,
		"1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "366d": bounds.MaxPeriod, "-1d1h": -25 * time.Hour, "0d": 0, "7us": 7 * time.Microsecond,
	}
	for text, want := range good {
		if got, err := notation.ParseDuration(text); got != want || err != nil {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "1", "1x", "1d-1h", "1d1d", "1dd", "999999d", "1h1d", "200000d999999h", "s", " 1s", "1 d"} {
		if got, err := notation.ParseDuration(text); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("ParseDuration(%q) = %v, %v; want ErrInvalid", text, got, err)
		}
	}
}

func TestParseRate(t *testing.T) {
	good := map[string]stint.Rate{
		"10/s": stint.PerSecond(10), "2/3s": stint.Per(2, 3*time.Second), "1000/24h": stint.PerDay(1000), "7/m": stint.PerMinute(7),
		"1/500ms": stint.Per(1, 500*time.Millisecond), "5/d": stint.PerDay(5), "1/1h": stint.PerHour(1),
		"1/.5s": stint.Per(1, 500*time.Millisecond),
	}
	for text, want := range good {
		if got, err := notation.ParseRate(text); got != want || err != nil {
			t.Errorf("ParseRate(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "10", "10/", "/s", "a/s", "10/x", "10/-", "1.5/s", "10/s/s", "99999999999999999999/s"} {
		if got, err := notation.ParseRate(text); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("ParseRate(%q) = %v, %v; want ErrInvalid", text, got, err)
		}
	}
}

// A number without a unit is asked about.
func TestNumbersWithoutUnit(t *testing.T) {
	for text, want := range map[string]string{"100": "(100 has no unit; did you mean 100ms or 100s?)", "1x": "1d12h", "-5": "1d12h"} {
		if _, err := notation.ParseDuration(text); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := notation.ParseRate("10/60"); err == nil || !strings.HasSuffix(err.Error(), "(60 has no unit; did you mean 60ms or 60s?)") {
		t.Errorf("10/60: %v", err)
	}
}

func TestParseAlgorithm(t *testing.T) {
	for _, algorithm := range notation.Algorithms() {
		if got, err := notation.ParseAlgorithm(algorithm.String()); got != algorithm || err != nil {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", algorithm, got, err)
		}
	}
	for text, want := range map[string]stint.Algorithm{
		"token_bucket": stint.AlgorithmTokenBucket, "SLIDING_WINDOW": stint.AlgorithmSlidingWindowLog,
	} {
		if got, err := notation.ParseAlgorithm(text); got != want || err != nil {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "GCRA", "UNKNOWN", "TOKEN BUCKET"} {
		if got, err := notation.ParseAlgorithm(text); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("ParseAlgorithm(%q) = %v, %v; want ErrInvalid", text, got, err)
		}
	}
}

func TestParseCalendar(t *testing.T) {
	for c := stint.CalendarMinute; c <= stint.CalendarYear; c++ {
		if got, err := notation.ParseCalendar(c.String()); got != c || err != nil {
			t.Errorf("ParseCalendar(%q) = %v, %v", c, got, err)
		}
	}
	for _, text := range []string{"", "none", "fortnight", "Day"} {
		if got, err := notation.ParseCalendar(text); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("ParseCalendar(%q) = %v, %v; want ErrInvalid", text, got, err)
		}
	}
}

// What is read can be written and read again; nothing panics.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"10/s", "2/3s", "1000/24h", "1d12h", "-1.5d", "9223372036854775807ns", "1/106751d", "", "1/d", "0.000001d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := notation.ParseDuration(text); err == nil {
			if again, err := notation.ParseDuration(duration.Format(d)); again != d || err != nil {
				t.Errorf("%q is %v, written %q, read %v, %v", text, d, duration.Format(d), again, err)
			}
		} else if !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("ParseDuration(%q): %v", text, err)
		}
		if r, err := notation.ParseRate(text); err == nil && r.Period > 0 {
			if again, err := notation.ParseRate(r.String()); again != r || err != nil {
				t.Errorf("%q is %v, written %q, read %v, %v", text, r, r.String(), again, err)
			}
		}
		if a, err := notation.ParseAlgorithm(text); (err == nil) != (a != 0) {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", text, a, err)
		}
	})
}
