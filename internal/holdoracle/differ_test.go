package holdoracle_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/holdoracle"
)

// differ says in what a store's answer differs from the oracle's.
func differ(op, carried stint.Op, got stint.Result, want holdoracle.Answer) (faults []string) {
	var mine, other *stint.ResolvedError
	switch {
	case errors.As(got.Err, &mine) && errors.As(want.Err, &other):
		if *mine != *other {
			return []string{fmt.Sprintf("error %v, want %v", got.Err, want.Err)}
		}
		return nil
	case want.Err != nil && errors.Is(got.Err, want.Err):
		return nil
	case got.Err != nil || want.Err != nil:
		return []string{fmt.Sprintf("error %v, want %v", got.Err, want.Err)}
	}
	if op.Verb == stint.List {
		sorted := slices.IsSortedFunc(*carried.Live, func(a, b stint.HoldState) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
		if !sorted {
			return []string{fmt.Sprintf("list %v is not sorted by expiry", *carried.Live)}
		}
		if holdoracle.SortHolds(*carried.Live); !slices.Equal(*carried.Live, want.Live) {
			return []string{fmt.Sprintf("list %v, want %v", *carried.Live, want.Live)}
		}
		return nil
	}
	known := false
	for i := range want.Each {
		e, w := carried.Each[i], want.Each[i]
		e.GrowsAfter = 0
		if want.Unasked[i] {
			e.Allowed, e.RetryAfter = w.Allowed, w.RetryAfter
		}
		if op.Hold != nil {
			w.Applied, e.Applied = 0, 0 // the stores leave it out: see the decision's
		}
		if o := want.Over[i]; o > 0 && e.RetryAfter == o {
			known, w.RetryAfter = true, e.RetryAfter
		}
		if e != w {
			faults = append(faults, fmt.Sprintf("limit %d: %s, want %s, or retry after %v", i, outcome(e), outcome(w), want.Over[i]))
		}
	}
	if len(faults) == 0 && !known && got.Decision != want.Decision {
		faults = append(faults, fmt.Sprintf("decision %s, want %s", fields(got.Decision), fields(want.Decision)))
	}
	if op.Hold != nil {
		h := *carried.Hold
		h.Hold = stint.Hold{}
		if op.Verb != stint.Reserve || !got.Decision.Allowed {
			h.ExpiresAt = 0
		}
		if h != want.Hold {
			faults = append(faults, fmt.Sprintf("hold: %s, want %s", said(h), said(want.Hold)))
		}
	}
	return faults
}
