//go:build unix

package server_test

import (
	"syscall"
	"testing"
)

// idleConnections is how many connections the test's process can have with itself:
// each is two files.
func idleConnections(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	const others = 512
	return max(int(limit.Cur)-others, 2) / 2
}
