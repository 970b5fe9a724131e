package main

import (
	"syscall"
	"time"
)

// sleep sleeps to about 0.1 ms, or until it is interrupted. time.Sleep wakes up to 1 ms late,
// which is as long as the least delay.
func sleep(d time.Duration) {
	rest := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&rest, nil) // the caller looks at the clock again
}
