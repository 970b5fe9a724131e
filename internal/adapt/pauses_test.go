package adapt_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/adapt"
)

// However many keys pause, those that are remembered are bounded: what is over makes room, and else the key
// whose pause ends first.
func TestPausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		p := adapt.Pauses{Most: most, Longest: time.Hour}
		for i := range most {
			p.Add(strconv.Itoa(i), time.Duration(i+1)*time.Minute)
		}
		p.Add("1", time.Hour)
		p.Add("one more", 24*time.Hour)
		if first, second, last := p.Left("0"), p.Left("1"), p.Left("one more"); first != 0 || second != time.Hour || last != time.Hour {
			t.Errorf("the first pauses for %v, the second for %v, the last for %v", first, second, last)
		}
		<-time.After(time.Hour)
		for i := range most {
			p.Add(strconv.Itoa(i), time.Minute)
		}
		for i := range most {
			if p.Left(strconv.Itoa(i)) != time.Minute {
				t.Fatalf("pauses that are over take the room of number %d", i)
			}
		}
	})
}

// A shorter pause does not end a longer one, a pause of 0 is none, and Await waits to the end of a pause.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := adapt.Pauses{Most: 2, Longest: time.Hour}
		p.Add("k", time.Minute)
		p.Add("k", time.Second)
		p.Add("none", 0)
		if left, none := p.Left("k"), p.Left("none"); left != time.Minute || none != 0 {
			t.Errorf("it pauses for %v, nothing for %v", left, none)
		}
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if left, err := p.Await(hasty, "k"); !errors.Is(err, stint.ErrDeadline) || left != time.Minute || time.Since(start) != 0 {
			t.Errorf("a deadline that is too near: %v, %v after %v", left, err, time.Since(start))
		}
		time.AfterFunc(30*time.Second, func() { p.Add("k", time.Minute) })
		if left, err := p.Await(t.Context(), "k"); err != nil || left != 0 || time.Since(start) != 90*time.Second {
			t.Errorf("it waited %v, %v left, %v", time.Since(start), left, err)
		}
	})
}
