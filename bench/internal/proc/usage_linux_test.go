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
	self := []int{os.Getpid()}
	for CPUTime(self) < 50*time.Millisecond { // it ends, since the loop takes time
	}
	if busy, own := Busy(all), CPUTime(self); own > busy {
		t.Errorf("%v of %v", own, busy)
	}
	if sum := CPUTime([]int{-1}) + Busy(nil); sum != 0 {
		t.Errorf("nobody has taken %v", sum)
	}
}

func TestCPUsAreThoseOfTheRuntime(t *testing.T) {
	if cpus := CPUs(); len(cpus) != runtime.NumCPU() {
		t.Errorf("%v, want %d processors", cpus, runtime.NumCPU())
	}
}
