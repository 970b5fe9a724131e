package grpclimit

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// However many keys servers refuse, the memory for them is bounded, and pauses that
// have passed make room.
func TestPausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pauses
		for i := range maxPauses {
			p.add(strconv.Itoa(i), time.Second)
		}
		p.add("one more", time.Hour)
		p.add("0", time.Minute)
		if n := len(p.until); n != maxPauses || p.left("one more") != 0 || p.left("0") != time.Minute {
			t.Errorf("%d keys pause, one more for %v, the first for %v", n, p.left("one more"), p.left("0"))
		}
		<-time.After(time.Second)
		p.add("another", time.Hour)
		if n := len(p.until); n != 2 || p.left("another") != time.Hour {
			t.Errorf("%d keys pause, another for %v", n, p.left("another"))
		}
	})
}

// A shorter pause does not end a longer one, and one that has passed is forgotten.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pauses
		p.add("k", time.Minute)
		p.add("k", time.Second)
		if left := p.left("k"); left != time.Minute {
			t.Errorf("it pauses for %v", left)
		}
		<-time.After(time.Minute)
		if left := p.left("k"); left != 0 || len(p.until) != 0 {
			t.Errorf("it pauses for %v, %d keys are kept", left, len(p.until))
		}
	})
}
