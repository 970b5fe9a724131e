package rules

import (
	"fmt"
	"slices"

	"github.com/stint-go/stint"
)

// A Count says which requests a rule counts, by their answers: "five failed logins". A request holds what it costs
// while it runs, and gives it back at its end if it is not counted. So only a Reserve is decided by such a rule: by a
// middleware that reserves, or by the service's reserve and commit. One that ends without an answer, since its process
// died, is counted. The zero value counts all, and needs no Reserve.
type Count struct {
	// Status are the HTTP statuses of answers that count, 100 to 599; 1 to 5 stand for all that begin with this digit, as
	// documents have 4xx. At most 64. Default: none.
	Status []int `doc:"status" is:"statuses" each:"status"`
}

// Has reports whether an answer of the status counts: any, of the zero value.
func (c *Count) Has(status int) bool {
	return len(c.Status) == 0 || slices.ContainsFunc(c.Status, func(s int) bool { return s == status || s == status/100 })
}

// countsAnswers reports whether the rule counts requests by their answers.
func (r *Rule) countsAnswers() bool { return len(r.Count.Status) > 0 }

// validateCount refuses what does not come back when a request is not counted, and shares of limits.
func (r *Rule) validateCount(f *faults) {
	if n := len(r.Count.Status); n > maxPatterns {
		f.invalid("count.status", n, fmt.Sprintf("at most %d", maxPatterns))
	}
	for i, s := range r.Count.Status {
		switch {
		case !isStatus(s):
			f.invalid(fmt.Sprintf("count.status[%d]", i), s, "a status of 100 to 599, or 1 to 5 for all that begin so (4xx)")
		case slices.Contains(r.Count.Status[:i], s):
			f.invalid(fmt.Sprintf("count.status[%d]", i), s, "each once")
		}
	}
	if !r.countsAnswers() {
		return
	}
	if r.Within != "" || r.Otherwise != "" {
		f.invalid("count", plain("given"), "none in a rule with within or otherwise")
	}
	if r.Reserve.OnExpiry == Release {
		f.invalid("reserve.on_expiry", string(Release), "keep, or none: with count, what ends without an answer is counted")
	}
	r.eachAdjusted(f, "count")
}

// maxStatus is the last that RFC 9110, section 15, has.
const maxStatus = 599

// isStatus reports whether it is a status, or a class of them.
func isStatus(s int) bool { return s >= 100 && s <= maxStatus || s >= 1 && s <= maxStatus/100 }

// eachAdjusted refuses limits of the rule, and of its overrides, that may not be charged, or not, by what a parameter
// says.
func (r *Rule) eachAdjusted(f *faults, with string) {
	r.eachLimit(func(at limitPlace, l *stint.Limit) {
		if !canBeWay(l) {
			f.invalid(at.String(), l.Algorithm.String(), "with "+with+" no leaky bucket, count_denied or lease")
		}
	})
}

// A limitPlace is where a limit of a rule stands: of an override, by its number, or, below 0, of the rule itself.
type limitPlace struct{ override, limit int }

// String is the parameter that the limit is.
func (p limitPlace) String() string {
	if p.override < 0 {
		return fmt.Sprintf("limits[%d]", p.limit)
	}
	return fmt.Sprintf("overrides[%d].limits[%d]", p.override, p.limit)
}

// eachLimit calls do for each limit of the rule, and of its overrides.
func (r *Rule) eachLimit(do func(at limitPlace, l *stint.Limit)) {
	for i := range r.Limits {
		do(limitPlace{-1, i}, &r.Limits[i])
	}
	for i := range r.Overrides {
		for j := range r.Overrides[i].Limits {
			do(limitPlace{i, j}, &r.Overrides[i].Limits[j])
		}
	}
}
