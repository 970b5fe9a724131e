package cli

import (
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func parsed(args string) (n int, share float64, delays []time.Duration, err error) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	Number(flags, &n, "n", 3, 1, 9, "a number")
	Number(flags, &share, "share", 0.5, 0, 1, "a share")
	Numbers(flags, &delays, "delays", []time.Duration{time.Second}, 0, time.Minute, "delays")
	err = Parse(flags, strings.Fields(args))
	return n, share, delays, err
}

func TestFlagsHoldWhatIsGiven(t *testing.T) {
	if n, share, delays, err := parsed(""); n != 3 || share != 0.5 || !slices.Equal(delays, []time.Duration{time.Second}) || err != nil {
		t.Errorf("defaults: %v, %v, %v, error %v", n, share, delays, err)
	}
	n, share, delays, err := parsed("-n 9 -share 0 -delays 1ms,1m")
	if n != 9 || share != 0 || !slices.Equal(delays, []time.Duration{time.Millisecond, time.Minute}) || err != nil {
		t.Errorf("given: %v, %v, %v, error %v", n, share, delays, err)
	}
}

func TestWrongFlagsAreExplained(t *testing.T) {
	for args, want := range map[string]string{
		"-n 0":             `invalid value "0" for flag -n: allowed: 1 to 9`,
		"-n x":             `invalid value "x" for flag -n: allowed: 1 to 9`,
		"-share NaN":       `invalid value "NaN" for flag -share: allowed: 0 to 1`,
		"-delays 1ms,2m":   `invalid value "1ms,2m" for flag -delays: allowed: 0s to 1m0s`,
		"-delays 1ms,,1ms": `allowed: 0s to 1m0s`,
		"-n 1 more":        `arguments are ["more"]; allowed: flags only`,
	} {
		if _, _, _, err := parsed(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", args, err, want)
		}
	}
}
