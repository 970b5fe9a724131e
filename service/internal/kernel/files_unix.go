//go:build unix

package kernel

import (
	"math"
	"syscall"
)

// MaxOpenFiles is how many files the process may open.
func MaxOpenFiles() (files int64, known bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return int64(min(limit.Cur, math.MaxInt32)), true
}
