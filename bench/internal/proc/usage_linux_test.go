package proc

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestTimeOfThisProcessIsPartOfAll(t *testing.T) {
	all := make([]int, 4096)
	for i := range all {
		all[i] = i
	}
	for CPUTime(os.Getpid()) < 50*time.Millisecond { // it ends, since the loop takes time
	}
	if busy, own := Busy(all...), CPUTime(os.Getpid()); own > busy {
		t.Errorf("%v of %v", own, busy)
	}
	if sum := CPUTime(-1) + Busy(); sum != 0 {
		t.Errorf("nobody has taken %v", sum)
	}
}

func TestCPUsAreThoseOfTheRuntime(t *testing.T) {
	if cpus := CPUs(); len(cpus) != runtime.NumCPU() {
		t.Errorf("%v, want %d processors", cpus, runtime.NumCPU())
	}
}
