//go:build !linux

package sleep

import "time"

// Thread sleeps for d.
func Thread(d time.Duration) { time.Sleep(d) }
