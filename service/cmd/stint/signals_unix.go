//go:build unix

package main

import (
	"os"
	"syscall"
)

// forwarded are the signals that a command gets which stint runs.
var forwarded = []os.Signal{
	syscall.SIGHUP,
	syscall.SIGINT,
	syscall.SIGQUIT,
	syscall.SIGTERM,
	syscall.SIGUSR1,
	syscall.SIGUSR2,
	syscall.SIGALRM,
	syscall.SIGCONT,
	syscall.SIGWINCH,
}
