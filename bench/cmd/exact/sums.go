package main

import (
	"fmt"

	"github.com/stint-go/stint"
)

// checkSums checks what follows from a limit without any model, for those algorithms of
// which it is short to say: that not more was admitted than may be, and that not less
// was where somebody was denied.
func checkSums(limit stint.Limit, moments []moment) []string {
	switch limit.Algorithm {
	case stint.AlgorithmTokenBucket:
		return checkBucket(limit, moments)
	case stint.AlgorithmFixedWindow:
		return checkWindows(limit, moments)
	default:
		return nil
	}
}

// checkBucket checks C + R x t / P from both sides, in permits times P.
//
// At most that is admitted in every [a, b], for all pairs at once: with admitted - R x t
// for what was admitted up to t, no value may exceed an earlier one by more than C.
//
// At least that, less one permit, is admitted until somebody is denied, counted from the
// first request, less what arrived while the bucket was full. It was full only in gaps
// between requests, and how much arrived in them follows from the requests' times.
func checkBucket(limit stint.Limit, moments []moment) (faults []string) {
	if len(moments) == 0 {
		return nil
	}
	period := limit.Rate.Period.Microseconds()
	capacity, first := limit.Capacity*period, moments[0].At
	var admitted, lowest, lost int64
	for _, m := range moments {
		arrived := limit.Rate.Permits * int64(m.At-first)
		lost = max(lost, arrived-admitted) // the bucket holds capacity + arrived - lost - admitted
		lowest = min(lowest, admitted-arrived)
		admitted += m.Admitted * period
		if admitted-arrived-lowest > capacity {
			faults = append(faults, fmt.Sprintf("more than C + R x t / P were admitted until %d", m.At))
		}
		if m.Denied > 0 && admitted <= capacity+arrived-lost-period {
			faults = append(faults, fmt.Sprintf("one was denied at %d although not C + R x t / P were admitted", m.At))
		}
	}
	return faults
}

// checkWindows checks that a window admits no more than its limit, and all of it before
// it denies.
func checkWindows(limit stint.Limit, moments []moment) (faults []string) {
	var window, admitted int64
	for _, m := range moments {
		if w := int64(m.At) / limit.Window.Microseconds(); w != window {
			window, admitted = w, 0
		}
		admitted += m.Admitted
		if admitted > limit.Capacity || m.Denied > 0 && admitted < limit.Capacity {
			faults = append(faults, fmt.Sprintf("%d were admitted until %d, %d denied", admitted, m.At, m.Denied))
		}
	}
	return faults
}
