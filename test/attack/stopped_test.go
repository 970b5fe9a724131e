package attack_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// A service that was stopped for a second while it was asked blames nobody but itself: what it could not
// decide in time is 503, nothing is admitted beyond a limit or decided by the failure policy, and its store stays reachable.
func TestStopped(t *testing.T) {
	s := startService(t)
	innocent := s.startInnocent(t)
	crowd := s.startCrowd(t, connections, post("/api/v1/rate-limit/check", `[{"policy":"recorded"}]`), attackers{})
	rest := func(d time.Duration) { <-time.After(d) } // a length of the experiment
	for range 2 {
		rest(200 * time.Millisecond)
		must.Do(t, s.Signal(syscall.SIGSTOP))
		rest(time.Second)
		must.Do(t, s.Signal(syscall.SIGCONT))
	}
	rest(200 * time.Millisecond)
	made, checks := crowd.stop(), innocent.stop()
	t.Logf("attackers: %s", made)
	t.Logf("innocent:  %s", checks)
	if n := made.degraded + checks.degraded; n > 0 || made.admitted > attackersLimit {
		t.Errorf("%d decisions were the failure policy's, %d admitted", n, made.admitted)
	}
	s.expectReachable(t)
	for status := range checks.statuses {
		if status != 200 && status != 503 {
			t.Errorf("statuses %v", checks.statuses)
		}
	}
}
