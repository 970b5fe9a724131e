//go:build unix

package server_test

import (
	"syscall"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// idleConnections is how many connections the test's process can have with itself:
// each is two files.
func idleConnections(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	const others = 512
	return max(int(limit.Cur)-others, 2) / 2
}
