package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/spans"
)

// The fields' names in the form in which http.Header keeps them.
const (
	limitField     = "X-Ratelimit-Limit"
	remainingField = "X-Ratelimit-Remaining"
	resetField     = "X-Ratelimit-Reset"
	rateField      = "Ratelimit"
	policyField    = "Ratelimit-Policy"
	retryField     = "Retry-After"
)

// Headers writes the header fields of one policy's decisions. It is immutable and safe for
// concurrent use; find those of a policy with [HeadersOf]. What does not change from decision
// to decision is written once: the value of RateLimit-Policy, the names of the limits, and their
// capacities.
type Headers struct {
	fields Fields
	policy []string   // the value of RateLimit-Policy
	items  []string   // `"name";r=` of each limit
	grows  string     // `;t=`
	limits [][]string // X-RateLimit-Limit of each limit
	places []bool     // whether each limit is of concurrency
	hidden []bool     // whether each limit is told of only while it denies: of denials, beside others
}

// newHeaders prepares the fields of the policy's decisions.
func newHeaders(policy *stint.Policy, fields Fields) *Headers {
	left := ";r="
	h := &Headers{fields: fields, grows: ";t="}
	if fields&IETF166 == IETF166 {
		left, h.grows = ";a=", ";w="
	}
	var text []byte
	for i, name := range displayNames(policy.Limits()) {
		limit := policy.Limit(i)
		if i > 0 {
			text = append(text, ", "...)
		}
		text = appendPolicyItem(text, name, limit)
		h.items = append(h.items, string(appendQuoted(nil, name))+left)
		h.limits = append(h.limits, []string{strconv.FormatInt(limit.Capacity, 10)})
		h.places = append(h.places, isConcurrency(limit))
		h.hidden = append(h.hidden, limit.Denials && policy.Len() > 1)
	}
	h.policy = []string{string(text)}
	return h
}

// HeadersOf returns the headers of the policy, which carries them: they are prepared the
// first time, and found without a lookup after that. It suits policies that come and go, as
// those of rules do.
func HeadersOf(policy *stint.Policy, fields Fields) *Headers {
	prepared := policy.Prepared(&headersOwners[fields], func() any { return newHeaders(policy, fields) })
	h, _ := prepared.(*Headers) // nothing else is prepared for this owner
	return h
}

// WriteHeaders sets the fields that a [Middleware] sets, for a handler that asks a limiter of the policy
// itself. each are the outcomes of the policy's limits, as [stint.Query] has them. Without
// them RateLimit does not say when there will be more permits, and it and RateLimit-Policy are left out
// of a policy with several limits.
func WriteHeaders(header http.Header, policy *stint.Policy, d stint.Decision, each ...stint.Outcome) {
	fields := AllFields
	if len(each) < policy.Len() {
		each = []stint.Outcome{{Allowed: d.Allowed, Remaining: d.Remaining, RetryAfter: d.RetryAfter}}
		if policy.Len() > 1 {
			fields, each = fields&^IETF, nil // it is not known whose outcome that is
		}
	}
	HeadersOf(policy, fields).Write(header, d, each)
}

// headersOwners own the headers that policies carry, by their fields.
var headersOwners [1 << 8]byte

// NeedsEach reports whether [Headers.Write] wants the outcome of every limit: for RateLimit, and for Retry-After of a
// policy that has other limits beside a concurrency limit.
func (h *Headers) NeedsEach() bool {
	return h.fields&IETF != 0 || h.fields&RetryAfter != 0 && len(h.places) > 1 && slices.Contains(h.places, true)
}

// The values that change from decision to decision.
const (
	remainingValue = iota
	resetValue
	rateValue
	retryValue
	// Their texts follow one another in one string, each from the end of the one before.
	values
)

// Write sets the fields that describe a decision of the policy. each holds the outcome of every
// limit, in order, as [stint.Op.Each] receives it; it is used only when NeedsEach, and may be nil
// otherwise. A degraded decision says nothing about the limits, so nothing is written for it. It
// allocates twice, a string and an array of its parts. The maps get slices whose capacity is 1, so
// that a handler that appends to a field does not write over its neighbour.
func (h *Headers) Write(header http.Header, d stint.Decision, each []stint.Outcome) {
	if d.Degraded || h.fields&AllFields == 0 {
		return
	}
	// All texts are written into one buffer on the stack and become one string, whose
	// parts are the values.
	var buffer [256]byte
	text := buffer[:0]
	var ends [values]int
	if h.fields&XRateLimit != 0 {
		text = strconv.AppendInt(text, d.Remaining, 10)
		ends[remainingValue] = len(text)
		text = strconv.AppendInt(text, unixCeil(d.At, d.ResetAfter), 10)
	}
	ends[resetValue] = len(text)
	if h.fields&IETF != 0 {
		text = h.appendRate(text, each)
	}
	ends[rateValue] = len(text)
	if h.fields&RetryAfter != 0 && !d.Allowed && d.RetryAfter != stint.Never {
		text = strconv.AppendInt(text, retrySeconds(h.RetryAfter(d, each)), 10)
	}
	ends[retryValue] = len(text)

	all := string(text)
	list := new([values]string)
	for i, start := 0, 0; i < values; i++ {
		list[i] = all[start:ends[i]]
		start = ends[i]
	}
	if h.fields&XRateLimit != 0 {
		header[limitField] = h.limits[d.Index]
		header[remainingField] = list[remainingValue : remainingValue+1 : remainingValue+1]
		header[resetField] = list[resetValue : resetValue+1 : resetValue+1]
	}
	if h.fields&IETF != 0 {
		header[policyField] = h.policy
		header[rateField] = list[rateValue : rateValue+1 : rateValue+1]
	}
	if list[retryValue] != "" {
		header[retryField] = list[retryValue : retryValue+1 : retryValue+1]
	}
}

// RetryAfter is how long until a denied request may come again, [stint.Never] when no wait will do. It is the
// decision's, but for a denial by places. A place may be free long before the holds expire, so the request may come
// again after a second, or when the other limits admit it. each is as for [Headers.Write].
func (h *Headers) RetryAfter(d stint.Decision, each []stint.Outcome) time.Duration {
	if !h.places[d.Index] || d.RetryAfter == stint.Never {
		return d.RetryAfter
	}
	wait := time.Second
	for i := range min(len(each), len(h.places)) {
		if !h.places[i] && !each[i].Allowed {
			wait = max(wait, each[i].RetryAfter)
		}
	}
	return wait
}

// appendRate appends the value of RateLimit: the remaining permits of each limit and when there
// will be more. An item reads "name";r=remaining;t=seconds, where t is left out when nothing is
// used. Of a limit that denies, t is when to come again, so that it agrees with Retry-After.
func (h *Headers) appendRate(text []byte, each []stint.Outcome) []byte {
	first := len(text)
	for i, item := range h.items {
		outcome := &each[i]
		if h.hidden[i] && outcome.RetryAfter == 0 {
			continue
		}
		if len(text) > first {
			text = append(text, ", "...)
		}
		text = append(text, item...)
		text = strconv.AppendInt(text, outcome.Remaining, 10)
		wait := adapt.Seconds(outcome.GrowsAfter)
		switch {
		case outcome.Allowed:
		case h.places[i] && outcome.RetryAfter != stint.Never:
			wait = 1 // as Retry-After
		default:
			wait = retrySeconds(outcome.RetryAfter)
		}
		if wait > 0 {
			text = append(text, h.grows...)
			text = strconv.AppendInt(text, wait, 10)
		}
	}
	return text
}

// retrySeconds is the value of Retry-After for a denial: whole seconds, rounded up,
// at least 1; -1 for [stint.Never], which has none.
func retrySeconds(d time.Duration) int64 {
	if d >= 0 && d <= time.Second {
		return 1
	}
	return adapt.Seconds(d)
}

// unixCeil is the Unix second in which the instant after at is reached, rounded up. Instants are
// microseconds since 1970.
func unixCeil(at stint.Instant, after time.Duration) int64 {
	const second = 1_000_000
	micros := int64(at.Add(after))
	seconds := micros / second
	if micros%second > 0 {
		seconds++
	}
	return seconds
}

// appendPolicyItem appends one item of RateLimit-Policy. An item reads "name";q=capacity;w=seconds.
// A concurrency limit has no window but the quota unit "concurrent-requests"; one of denials has the unit "denials".
func appendPolicyItem(text []byte, name string, limit stint.Limit) []byte {
	text = appendQuoted(text, name)
	text = append(text, ";q="...)
	text = strconv.AppendInt(text, limit.Capacity, 10)
	if isConcurrency(limit) {
		return append(text, `;qu="concurrent-requests"`...)
	}
	if w := secondsOrNone(spans.Of(limit)); w > 0 {
		text = append(text, ";w="...)
		text = strconv.AppendInt(text, w, 10)
	}
	if limit.Denials {
		text = append(text, `;qu="denials"`...)
	}
	return text
}

// secondsOrNone are whole seconds, rounded up; 0 for less than one.
func secondsOrNone(d time.Duration) int64 {
	if d < time.Second {
		return 0
	}
	return adapt.Seconds(d)
}

// displayNames are the names under which the limits appear: their own, "default" for none. A name
// that several would share gets the algorithm appended, and a number where that does not do. A name
// made up for one limit never is the name that another one has: those that are unique are taken
// first.
func displayNames(limits []stint.Limit) []string {
	count := map[string]int{}
	names := make([]string, len(limits))
	for i, limit := range limits {
		names[i] = limit.Name
		if limit.Name == "" {
			names[i] = "default"
		}
		count[names[i]]++
	}
	taken := map[string]bool{}
	for _, name := range names {
		taken[name] = count[name] == 1
	}
	for i, name := range names {
		if count[name] == 1 {
			continue
		}
		base := name + "-" + strings.ToLower(limits[i].Algorithm.String())
		names[i] = base
		for n := 2; taken[names[i]]; n++ {
			names[i] = base + "-" + strconv.Itoa(n)
		}
		taken[names[i]] = true
	}
	return names
}

// appendQuoted appends a string of structured field values (RFC 9651, section
// 3.3.3). Names are printable ASCII, which is all that such a string can hold.
func appendQuoted(text []byte, s string) []byte {
	text = append(text, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			text = append(text, '\\')
		}
		text = append(text, s[i])
	}
	return append(text, '"')
}

// Fields is a set of header fields. The zero value is the empty set.
type Fields uint8

// The header fields that a response can carry.
const (
	// XRateLimit is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset of the deciding
	// limit; the last is the time, in Unix seconds, at which its client will be as new. Where
	// Remaining is 0 there may be permits again long before; RateLimit and Retry-After tell when.
	XRateLimit Fields = 1 << iota
	// IETF is RateLimit and RateLimit-Policy of the IETF's httpapi draft, revision
	// 11, with one item per limit.
	IETF
	// RetryAfter is Retry-After, in whole seconds, on a denial.
	RetryAfter

	// IETF166 is IETF, with RateLimit in the spelling of the open proposal 166 for the draft: what is left is "a" and not
	// "r", and when there will be more is "w" and not "t". It is for clients that read nothing else.
	IETF166 Fields = IETF | 1<<3

	// AllFields is all of them, by revision 11.
	AllFields = XRateLimit | IETF | RetryAfter

	// NoFields says none where the zero value means all, as in a [Config].
	NoFields Fields = 1 << 7
)

// validate reports a set that a configuration can't mean.
func (f Fields) validate() error {
	if f&^(AllFields|IETF166) != 0 && f != NoFields || f&IETF166 == IETF166&^IETF {
		return stint.Invalid("Fields", uint8(f), "XRateLimit, IETF or IETF166, and RetryAfter together, or NoFields")
	}
	return nil
}

// setOf says in which set a header field is.
var setOf = map[string]Fields{
	limitField: XRateLimit, remainingField: XRateLimit, resetField: XRateLimit,
	rateField: IETF, policyField: IETF, retryField: RetryAfter,
}

// copy copies the fields of the set from one header to another.
func (f Fields) copy(to, from http.Header) {
	for name, set := range setOf {
		if values, there := from[name]; there && f&set != 0 {
			to[name] = values
		}
	}
}
