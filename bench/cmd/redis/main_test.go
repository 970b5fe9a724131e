package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/bench/internal/redislimit"
	"github.com/stint-go/stint/bench/internal/results"
)

// The test's program is the relay, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == relayMode {
		main()
		return
	}
	os.Exit(m.Run())
}

// measured runs a bench, and fails the test if something was admitted wrongly.
func measured(t *testing.T, flags string) *results.Set {
	t.Helper()
	o, err := parseOptions(strings.Fields("-rounds 1 -ops 240 -keys 300 -clients 20 -strict "+flags), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out, log strings.Builder
	b := &bench{options: o, w: &out, log: &log}
	if err := b.run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	path := filepath.Join(t.TempDir(), "redis.txt")
	if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var set results.Set
	if err := set.Read(path); err != nil {
		t.Fatal(err)
	}
	return &set
}

// requireCell fails the test if a cell was not measured once, without errors, and with
// few to many admitted.
func requireCell(t *testing.T, set *results.Set, name string, few, many float64) {
	t.Helper()
	for unit, want := range map[string]float64{"errors": 0, "wrong": 0} {
		if got := set.Values(name, unit); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s %v, want %v once", name, unit, got, want)
		}
	}
	if admitted := set.Median(name, "admitted"); !(admitted >= few && admitted <= many) {
		t.Errorf("%s: %v admitted, want %v to %v", name, admitted, few, many)
	}
}

// Every cell, with few decisions: it is measured, nothing fails, and what is admitted
// is right.
func TestEveryCellAdmitsRightly(t *testing.T) {
	const ops = 240
	set := measured(t, "-callers 1,12")
	for _, l := range loads() {
		for _, c := range redislimit.Contenders() {
			if !l.has(c) {
				continue
			}
			for _, callers := range []string{"1", "12"} {
				few, many := expected(l.check, ops)
				requireCell(t, set, fmt.Sprintf("Redis/load=%s/impl=%s/callers=%s/check=%s", l.name, c.Name, callers, l.check.name(c)), few, many)
			}
		}
	}
	for state, measured := range map[string]int{"token_bucket": 3, "sliding_log": 2} {
		bytes := append(set.Values("RedisMemory/state="+state, "B/client"), set.Values("RedisMemory/state="+state, "B/entry")...)
		if len(bytes) != measured {
			t.Errorf("%s: %d measurements of memory, want %d", state, len(bytes), measured)
		}
	}
}

// The same for both limiters that are compared on clusters and behind a slow network.
func TestClustersAndSlowNetworksAdmitRightly(t *testing.T) {
	set := measured(t, "-callers 12 -primaries 1,3 -delays 1ms -only load=uniform/.*impl=(stint|redis_rate)")
	for _, impl := range []string{redislimit.Stint, redislimit.RedisRate} {
		for _, primaries := range []string{"1", "3"} {
			requireCell(t, set, fmt.Sprintf("RedisCluster/primaries=%s/load=uniform/impl=%s", primaries, impl), 240, 240)
		}
		behind := "RedisNetwork/delay=1ms/load=uniform/impl=" + impl
		requireCell(t, set, behind, 240, 240)
		if p50 := set.Median(behind, "p50-sec"); !(p50 >= 0.00099) {
			t.Errorf("%s: half of the answers came within %v s, before the network let them", impl, p50)
		}
	}
}

// expected is between how many of so many requests are admitted.
func expected(c check, ops int) (few, many float64) {
	switch c {
	case books:
		return float64(ops), float64(ops)
	case none:
		return 0, 0
	case bound:
		return float64(small.Permits), float64(ops)
	default:
		return 1, float64(ops - 1)
	}
}

func TestWrongFlagsAreExplained(t *testing.T) {
	for args, want := range map[string]string{
		"-callers 1,x":     `invalid value "1,x" for flag -callers: allowed: 1 to 4096`,
		"-duration 11s":    "allowed: 1ms to 10s",
		"-primaries 0":     "-primaries: allowed: 1 to 16",
		"-delays 1ms,2s":   "-delays: allowed: 0s to 1s",
		"-only load=(cold": "missing closing )",
		"hot":              `arguments are ["hot"]; allowed: flags only`,
	} {
		if _, err := parseOptions(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", args, err, want)
		}
	}
}

func TestOnlySelects(t *testing.T) {
	set := measured(t, "-callers 1,2 -only load=hot/callers=2/impl=(stint|ulule)")
	if impls := set.Each("Redis", "impl"); !slices.Equal(impls, []string{"stint", "ulule"}) {
		t.Errorf("%v were measured", impls)
	}
	if callers := set.Each("Redis", "callers"); !slices.Equal(callers, []string{"2"}) {
		t.Errorf("%v callers were measured", callers)
	}
}

func TestNothingSelectedIsAnError(t *testing.T) {
	o, err := parseOptions([]string{"-rounds", "1", "-only", "load=cold"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{options: o, w: io.Discard, log: io.Discard}
	if err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), `only is "load=cold"; allowed`) {
		t.Errorf("error %v", err)
	}
}
