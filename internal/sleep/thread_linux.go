package sleep

import (
	"syscall"
	"time"
)

// Thread keeps its thread for d, to about 0.1 ms, or until a signal comes: look at the clock again.
// [time.Sleep] wakes up to 1 ms late when nothing else runs.
func Thread(d time.Duration) {
	rest := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&rest, nil)
}
