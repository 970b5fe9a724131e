package main

import (
	"strings"
	"testing"
)

// What was measured is told, even if the page can't be written: its disk is full.
func TestBenchTellsWithoutItsPage(t *testing.T) {
	code, out, stderr := do(t, nil, "bench", "--limit", benchLimit, "--for", "50ms", "--report", "/dev/full")
	if code != exitFailed || !strings.HasPrefix(out, "0 decisions differ of ") || !strings.Contains(stderr, "--report: ") {
		t.Errorf("exit %d, %q %q", code, out, stderr)
	}
}
