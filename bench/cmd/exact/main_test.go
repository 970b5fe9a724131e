package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// The test's program is the child processes, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childMode {
		main()
		return
	}
	os.Exit(m.Run())
}

// Eight processes, all algorithms, 240 decisions each: the table says that each was exact.
func TestEightProcessesAreExact(t *testing.T) {
	o := options{algorithms: stint.Algorithms(), processes: 8, part: part{Callers: 4, Keys: 20, Duration: time.Minute, Ops: 240}}
	var out, log strings.Builder
	if err := hammerAll(t.Context(), &out, &log, o); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), log.String())
	}
	t.Logf("\n%s", out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")[1:]
	if want := 2 * len(o.algorithms); len(lines) != want {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), want, out.String())
	}
	for _, line := range lines {
		// algorithm, keys, decisions/s, decisions, from memory, admitted, model, verdict
		f := strings.Fields(line)
		if len(f) != 8 || f[3] != "1920" || f[5] == "0" || f[5] == f[3] || f[5] != f[6] || f[7] != "exact" {
			t.Errorf("%s: want 1920 decisions, some admitted and some denied, exactly as the model", line)
		}
	}
}

func TestWrongFlagsAreExplained(t *testing.T) {
	for args, want := range map[string]string{
		"-algorithms TOKEN": `algorithm is "TOKEN"`,
		"-processes 0":      "-processes: allowed: 1 to 64",
		"-callers 0":        "-callers: allowed: 1 to 1024",
		"-keys 0":           "-keys: allowed: 1 to 100000",
		"-duration 0s":      "-duration: allowed: 1ms to 1h0m0s",
		"-ops -1":           "-ops: allowed: 0 to 1000000",
		"fast":              `arguments are ["fast"]; allowed: flags only`,
	} {
		if _, err := parseOptions(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", args, err, want)
		}
	}
}
