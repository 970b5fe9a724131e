package client

import (
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/notation"
)

// maxClip bounds what is repeated of a text that a stranger may have written, in bytes.
const maxClip = 512

// checkKey refuses a key that JSON could not carry unchanged or that the service
// allows nobody. Its length is the service's to judge.
func checkKey(key string) error {
	if !utf8.ValidString(key) {
		return stint.Invalid("key", clip.To(maxClip, key), "UTF-8")
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return stint.Invalid("key", clip.To(maxClip, key), "no control characters")
	}
	return nil
}

// plausible reports whether an answer is what a service says of a check, of which
// every member is needed that a decision is made of.
func plausible(a *api.CheckResponse) bool {
	_, known := sourceNamed(a.Source)
	return known && algorithmNamed(a.Algorithm) != 0 && a.Limit > 0 && a.Remaining >= 0 && micros(a.ResetAfterMicros) &&
		micros(a.DelayMicros) &&
		(micros(a.RetryAfterMicros) || a.RetryAfterMicros == -1) && (!a.Allowed || a.RetryAfterMicros == 0)
}

// checkOfRest is what a check would be told by an answer that tells what is left.
func checkOfRest(a *api.Rest) api.CheckResponse {
	return api.CheckResponse{
		Allowed: true, Algorithm: a.Algorithm, Limit: a.Limit, Remaining: a.Remaining,
		ResetAfterMicros: a.ResetAfterMicros, At: a.At, Source: stint.SourceStore.String(),
	}
}

// checkOfRemaining is what a check would be told by an answer about what remains.
func checkOfRemaining(a *api.RemainingResponse) api.CheckResponse {
	c := checkOfRest(&a.Rest)
	c.Allowed, c.RetryAfterMicros, c.DelayMicros, c.Source = a.Allowed, a.RetryAfterMicros, a.DelayMicros, a.Source
	return c
}

// micros reports whether the number of microseconds is a duration.
func micros(n int64) bool { return n >= 0 && n <= int64(math.MaxInt64/time.Microsecond) }

// algorithmNamed returns the algorithm that a name on the wire stands for, 0 if none does.
func algorithmNamed(name string) stint.Algorithm {
	if name == stint.AlgorithmConcurrency.String() {
		return stint.AlgorithmConcurrency
	}
	algorithm, _ := notation.ParseAlgorithm(name)
	return algorithm
}

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
	return stint.Decision{
		Allowed: a.Allowed, Degraded: a.Degraded, Source: source,
		Index: indexOf(policy, a.Algorithm, a.Limit), Limit: a.Limit, Remaining: a.Remaining,
		ResetAfter: time.Duration(a.ResetAfterMicros) * time.Microsecond,
		RetryAfter: waitOf(a.RetryAfterMicros),
		Delay:      time.Duration(a.DelayMicros) * time.Microsecond,
		At:         stint.Instant(a.At),
	}
}

// waitOf is a wait as it is on the wire; what is below 0, or none that a wait can be, is [stint.Never].
func waitOf(n int64) time.Duration {
	if n < 0 || n > math.MaxInt64/int64(time.Microsecond) {
		return stint.Never
	}
	return time.Duration(n) * time.Microsecond
}

// indexOf finds the limit that an answer is about in the program's own policy; 0 where it has none.
func indexOf(policy *stint.Policy, name string, capacity int64) int16 {
	if policy == nil || policy.Len() == 1 {
		return 0
	}
	first := -1
	algorithm := algorithmNamed(name)
	for i := range policy.Len() {
		limit := policy.Limit(i)
		if limit.Algorithm != algorithm {
			continue
		}
		if limit.Capacity == capacity {
			return int16(i)
		}
		if first < 0 {
			first = i
		}
	}
	return int16(max(first, 0))
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
