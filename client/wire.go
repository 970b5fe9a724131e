package client

import (
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
)

// checkKey refuses a key that JSON could not carry unchanged or that the service
// allows nobody. Its length is the service's to judge.
func checkKey(key string) error {
	if !utf8.ValidString(key) {
		return stint.Invalid("key", clip(key), "UTF-8")
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return stint.Invalid("key", clip(key), "no control characters")
	}
	return nil
}

// plausible reports whether an answer is what a service says of a check, of which
// every member is needed that a decision is made of.
func plausible(a *api.CheckResponse) bool {
	_, known := sourceNamed(a.Source)
	return known && named(a.Algorithm) && a.Limit > 0 && a.Remaining >= 0 && micros(a.ResetAfterMicros) && micros(a.DelayMicros) &&
		(micros(a.RetryAfterMicros) || a.RetryAfterMicros == -1) && (!a.Allowed || a.RetryAfterMicros == 0)
}

// plausibleLook is plausible for a look at what remains, which an older service tells less of.
func plausibleLook(a *api.RemainingResponse) bool {
	if !plausibleRest(&a.Rest) || a.At == 0 {
		return plausibleRest(&a.Rest)
	}
	c := checkOf(a)
	return plausible(&c)
}

// plausibleRest is plausible for what is left.
func plausibleRest(a *api.Rest) bool {
	return named(a.Algorithm) && a.Limit > 0 && a.Remaining >= 0 && micros(a.ResetAfterMicros) &&
		a.ResetAfterSeconds >= 0 && a.ResetAfterSeconds <= int64(math.MaxInt64/time.Second)
}

// checkOf is what a check would be told, by a look that tells it.
func checkOf(a *api.RemainingResponse) api.CheckResponse {
	return api.CheckResponse{
		Allowed: a.Allowed, Algorithm: a.Algorithm, Limit: a.Limit, Remaining: a.Remaining,
		ResetAfterMicros: a.ResetAfterMicros, RetryAfterMicros: a.RetryAfterMicros, DelayMicros: a.DelayMicros,
		At: a.At, Source: a.Source,
	}
}

func named(algorithm string) bool {
	_, err := stint.ParseAlgorithm(algorithm)
	return err == nil
}

// micros reports whether the number of microseconds is a duration.
func micros(n int64) bool { return n >= 0 && n <= int64(math.MaxInt64/time.Microsecond) }

// sourceNamed returns the source that a name on the wire stands for.
func sourceNamed(name string) (stint.Source, bool) {
	for source := stint.SourceStore; source <= stint.SourceFailurePolicy; source++ {
		if source.String() == name {
			return source, true
		}
	}
	return 0, false
}

// decisionOf reads a decision about the policy from a plausible answer.
func decisionOf(policy *stint.Policy, a *api.CheckResponse) stint.Decision {
	source, _ := sourceNamed(a.Source)
	d := stint.Decision{
		Allowed: a.Allowed, Degraded: a.Degraded, Source: source,
		Index: indexOf(policy, a.Algorithm, a.Limit), Limit: a.Limit, Remaining: a.Remaining,
		ResetAfter: time.Duration(a.ResetAfterMicros) * time.Microsecond,
		RetryAfter: stint.Never,
		Delay:      time.Duration(a.DelayMicros) * time.Microsecond,
		At:         stint.Instant(a.At),
	}
	if a.RetryAfterMicros >= 0 {
		d.RetryAfter = time.Duration(a.RetryAfterMicros) * time.Microsecond
	}
	return d
}

// restOf reads what is left as a decision that admits. Of an older service it knows the whole
// seconds only.
func restOf(policy *stint.Policy, a *api.Rest) stint.Decision {
	d := stint.Decision{
		Allowed: true, Index: indexOf(policy, a.Algorithm, a.Limit), Limit: a.Limit, Remaining: a.Remaining,
		ResetAfter: time.Duration(a.ResetAfterMicros) * time.Microsecond,
		At:         stint.Instant(a.At),
	}
	if a.At == 0 {
		d.ResetAfter = time.Duration(a.ResetAfterSeconds) * time.Second
	}
	return d
}

// indexOf finds the limit that an answer is about in the program's own policy; 0 where it has none.
func indexOf(policy *stint.Policy, name string, capacity int64) int32 {
	if policy == nil || policy.Len() == 1 {
		return 0
	}
	first := -1
	algorithm, _ := stint.ParseAlgorithm(name)
	for i := range policy.Len() {
		limit := policy.Limit(i)
		if limit.Algorithm != algorithm {
			continue
		}
		if limit.Capacity == capacity {
			return int32(i)
		}
		if first < 0 {
			first = i
		}
	}
	return int32(max(first, 0))
}

// outcomeOf is the part of the only limit in a decision. GrowsAfter is not told, and
// is no longer than ResetAfter.
func outcomeOf(d *stint.Decision) stint.Outcome {
	o := stint.Outcome{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: d.RetryAfter,
		ResetAfter: d.ResetAfter, Delay: d.Delay, Applied: d.Applied,
	}
	if o.Remaining < o.Limit {
		o.GrowsAfter = o.ResetAfter
	}
	return o
}
