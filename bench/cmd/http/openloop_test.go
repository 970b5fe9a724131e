package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint/bench/internal/proc"
)

// What `stint bench` prints is summed over the servers, the longest latency counts; and what it doesn't print is an error.
func TestBenchAllSums(t *testing.T) {
	stint := filepath.Join(t.TempDir(), "stint")
	script := `#!/bin/sh
case "$*" in *"--server http://a "*) p=5 differ=0;; *) p=9 differ=2;; esac
[ "${*%--rate 1000/2s --callers 3 --keys 8 --for 1s}" = "$*" ] && exit 2
echo '{"targets": [{"decisions": 10, "admitted": 7, "denied": 3, "failed": 1, "perSecond": 100.5,
  "latencyMicros": {"p50": '$p'}, "findings": {"admittedBeyond": '$differ', "deniedTooMuch": 1}}]}'
exit 1
`
	if err := os.WriteFile(stint, []byte(script), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	o := options{stint: stint, rate: 1000, connections: 5, clients: 15}
	servers := []*proc.Process{{Addr: "a"}, {Addr: "b"}}
	f, err := benchAll(t.Context(), o, servers, time.Second)
	if err != nil || f.Decisions != 20 || f.Admitted != 14 || f.Denied != 6 || f.Failed != 2 || f.PerSecond != 201 || f.Latency["p50"] != 9 || f.differ() != 4 {
		t.Errorf("%+v, error %v", f, err)
	}
	o.clients = 100
	if _, err := benchAll(t.Context(), o, servers, time.Second); err == nil {
		t.Error("no error, though nothing was printed")
	}
}
