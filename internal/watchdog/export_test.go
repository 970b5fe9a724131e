package watchdog

import "time"

// Stop makes as if the process had been stopped for so long, up to now.
func (w *Watchdog) Stop(d time.Duration) {
	w.mu.Lock()
	w.looked = w.looked.Add(-d)
	w.mu.Unlock()
}
