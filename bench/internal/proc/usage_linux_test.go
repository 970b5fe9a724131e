package proc

import (
	"os"
	"testing"
)

func TestUsageOfThisProcessIsPartOfAll(t *testing.T) {
	all := make([]int, 4096)
	for i := range all {
		all[i] = i
	}
	u, err := ReadUsage(all, []int{os.Getpid()})
	if err != nil || u.Busy <= 0 || u.Own < 0 || u.Own > u.Busy {
		t.Errorf("%+v, error %v", u, err)
	}
	if _, err := ReadUsage(all, []int{-1}); err == nil {
		t.Error("a process that is not there has a usage")
	}
}
