package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/bench/internal/redislimit"
	"github.com/stint-go/stint/bench/internal/results"
)

// Every cell, with few decisions: it is measured, nothing fails, and what is admitted
// is right.
func TestEveryCellAdmitsRightly(t *testing.T) {
	redis, err := proc.StartRedis(t.Context(), -1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := redis.Stop(); err != nil {
			t.Error(err)
		}
	}()
	o := options{rounds: 1, ops: 240, callers: []int{1, 12}, keys: 300, clients: 20, duration: time.Second, only: selection{}}
	var out, log strings.Builder
	wrong, err := measureAll(t.Context(), &out, &log, redis.Addr, o)
	if err != nil || wrong != 0 {
		t.Fatalf("%d wrong, error %v\n%s", wrong, err, log.String())
	}
	set := read(t, out.String())
	for _, l := range loads() {
		for _, c := range redislimit.Contenders() {
			if !l.has(c) {
				continue
			}
			for _, callers := range o.callers {
				labels := results.Labels{"load": l.name, "impl": c.Name, "callers": strconv.Itoa(callers), "check": l.check.name(c)}
				for unit, want := range map[string]float64{"errors": 0, "wrong": 0} {
					if got := set.Values("Redis", unit, labels); len(got) != 1 || got[0] != want {
						t.Errorf("%v: %s %v, want %v once", labels, unit, got, want)
					}
				}
				admitted := results.Median(set.Values("Redis", "admitted", labels))
				few, many := expected(l.check, o.ops)
				if admitted < few || admitted > many {
					t.Errorf("%v: %v admitted, want %v to %v", labels, admitted, few, many)
				}
			}
		}
	}
	for state, measured := range map[string]int{"token_bucket": 3, "sliding_log": 2} {
		bytes := append(set.Values("RedisMemory", "B/client", results.Labels{"state": state}),
			set.Values("RedisMemory", "B/entry", results.Labels{"state": state})...)
		if len(bytes) != measured {
			t.Errorf("%s: %d measurements of memory, want %d", state, len(bytes), measured)
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

func read(t *testing.T, text string) *results.Set {
	t.Helper()
	path := filepath.Join(t.TempDir(), "redis.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var set results.Set
	if err := set.Read(path); err != nil {
		t.Fatal(err)
	}
	return &set
}

func TestWrongFlagsAreExplained(t *testing.T) {
	for args, want := range map[string]string{
		"-callers 1,x":               `callers is "1,x"; allowed: numbers from 1 to 4096`,
		"-callers 0":                 "allowed: numbers from 1 to 4096",
		"-rounds 0":                  "rounds is 0; allowed: 1 or more",
		"-duration 11s":              "duration is 11s; allowed: more than 0, up to 10s",
		"-warm-up -1s":               "warm-up is -1s; allowed: 0 to 10s",
		"-ops -1":                    "ops is -1; allowed: 0 or more",
		"-calm -1":                   "calm is -1; allowed: 0 or more",
		"-keys 1":                    "keys is 1; allowed: 2 to",
		"-clients 0":                 "clients is 0; allowed: 1 to",
		"-only load=cold":            `load="cold"; allowed: hot, uniform, zipf, policy, denied, saturated, lease, exhausted, memory`,
		"-only impl=mine":            `impl="mine"; allowed: stint, redis_rate`,
		"-only callers=some":         `callers="some"; allowed: numbers`,
		"-only speed":                "allowed: parts impl=…, load=… and callers=…, joined by /",
		"hot":                        `arguments are ["hot"]; allowed: flags only`,
		"-rounds 0 -only load=hot/x": "rounds is 0",
	} {
		if _, err := parseOptions(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", args, err, want)
		}
	}
}

func TestOnlySelects(t *testing.T) {
	o, err := parseOptions([]string{"-only", "impl=stint,ulule/load=hot/callers=64"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s := o.only
	if !s.impl("stint") || !s.impl("ulule") || s.impl("throttled") || !s.load("hot") || s.load("zipf") || !s.callers(64) || s.callers(1) {
		t.Errorf("%v selects otherwise", s)
	}
	if all := (selection{}); !all.impl("stint") || !all.load(memoryLoad) || !all.callers(3) {
		t.Error("nothing named does not select all")
	}
}
