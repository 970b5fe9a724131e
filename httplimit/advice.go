package httplimit

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxAdvice is the longest wait that is told apart from longer ones.
const maxAdvice = 100 * 365 * 24 * time.Hour

// adviceOf is how long the response asks its client not to come again, and whether it
// asks for anything. Of several fields Retry-After is believed first, then RateLimit.
// A field that can't be read says nothing.
func adviceOf(response *http.Response, now time.Time) (time.Duration, bool) {
	header := response.Header
	// The server's times are by its own clock, which Date shows.
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		if wait, ok := retryAfter(header[retryField], now); ok {
			return wait, true
		}
	}
	if lines := header[rateField]; len(lines) > 0 {
		if wait, ok := exhausted(strings.Join(lines, ", ")); ok {
			return wait, true
		}
	}
	return resetAfter(header[remainingField], header[resetField], now)
}

// retryAfter reads Retry-After (RFC 9110, section 10.2.3): seconds or a date.
func retryAfter(lines []string, now time.Time) (time.Duration, bool) {
	if len(lines) != 1 {
		return 0, false
	}
	text := strings.Trim(lines[0], " \t")
	if n, ok := decimal(text); ok {
		return seconds(n), true
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(date.Sub(now), 0), maxAdvice), true
}

// exhausted reads RateLimit of the IETF's draft, revision 11: it is the longest t of the
// limits of which nothing is left.
func exhausted(field string) (wait time.Duration, ok bool) {
	if !strings.Contains(field, "r=0") && !strings.Contains(field, "r=-0") {
		return 0, false // most fields are not worth reading
	}
	quotas, _ := parseQuotas(field)
	for _, q := range quotas {
		if q.remaining == 0 && q.grows >= 0 {
			wait, ok = max(wait, seconds(q.grows)), true
		}
	}
	return wait, ok
}

// A quota is one item of RateLimit: what is left of a limit, and in how many seconds
// there will be more. What is not told is -1.
type quota struct{ remaining, grows int64 }

// A list of RFC 9651 (sections 3 and 4.2) as a regular expression, which it can be, since inner lists do not
// nest. What does not fit makes the whole field unreadable.
const (
	utf8Bytes = `%[0-7][0-9a-f]|%[cd][0-9a-f]%[89ab][0-9a-f]|%e[0-9a-f](?:%[89ab][0-9a-f]){2}|%f[0-7](?:%[89ab][0-9a-f]){3}`
	quoted    = `"(?:[ !#-\[\]-~]|\\["\\])*"`
	item      = `(?:-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|` + quoted + // decimal, integer, string
		"|[A-Za-z*][!#$%&'*+.^_|~0-9A-Za-z:/`-]*" + // token
		`|:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?:` + // bytes
		`|\?[01]|@-?[0-9]{1,15}|%"(?:[ !#$&-~]|` + utf8Bytes + `)*")` // boolean, date, display string
	parameters = `(?:; *[a-z*][a-z0-9_.*-]*(?:=` + item + `)?)*`
	inner      = `\( *(?:` + item + parameters + `(?: +` + item + parameters + `)*)? *\)`
	member     = `(?:` + item + `|` + inner + `)` + parameters
)

// grammar is what reads a list: the list itself, its members with their parameters, and of these the names and
// values. It is made when the first field comes.
var grammar = sync.OnceValue(func() (g struct{ list, member, parameter *regexp.Regexp }) {
	g.list = regexp.MustCompile(`^ *(?:` + member + `(?:[ \t]*,[ \t]*` + member + `)*[ \t]*)?$`)
	g.member = regexp.MustCompile(`(` + inner + `|` + item + `)(` + parameters + `)`)
	g.parameter = regexp.MustCompile(`; *([a-z*][a-z0-9_.*-]*)(?:=(` + item + `))?`)
	return g
})

// parseQuotas reads RateLimit: a list of strings with the parameters r and t. Members
// of another kind are left out. A field that is no list has nothing to say as a whole.
func parseQuotas(field string) (quotas []quota, ok bool) {
	g := grammar()
	if !g.list.MatchString(field) {
		return nil, false
	}
	for _, found := range g.member.FindAllStringSubmatch(field, -1) {
		if found[1][0] != '"' {
			continue
		}
		q := quota{remaining: -1, grows: -1}
		for _, parameter := range g.parameter.FindAllStringSubmatch(found[2], -1) {
			n, err := strconv.ParseInt(parameter[2], 10, 64)
			if err != nil || n < 0 {
				n = -1
			}
			switch parameter[1] {
			case "r":
				q.remaining = n
			case "t":
				q.grows = n
			}
		}
		quotas = append(quotas, q)
	}
	return quotas, true
}

// resetAfter reads X-RateLimit-Remaining and X-RateLimit-Reset, when nothing is left.
// No standard says what the second counts. From 10^9 on it is taken for Unix seconds,
// as many servers mean it, less for seconds from now; from 10^11 on for a mistake.
func resetAfter(remaining, reset []string, now time.Time) (time.Duration, bool) {
	const unixFrom, unixTo = 1_000_000_000, 100_000_000_000
	if len(remaining) != 1 || len(reset) != 1 {
		return 0, false
	}
	left, ok := decimal(remaining[0])
	if !ok || left > 0 {
		return 0, false
	}
	n, ok := decimal(reset[0])
	switch {
	case !ok || n >= unixTo:
		return 0, false
	case n < unixFrom:
		return seconds(n), true
	}
	return min(max(time.Unix(n, 0).Sub(now), 0), maxAdvice), true
}

// decimal reads digits and nothing else. What is too large becomes the largest number.
func decimal(text string) (int64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ := strconv.ParseInt(text, 10, 64) // too large is the only fault left
	return n, true
}

// seconds is n seconds, at most maxAdvice.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(maxAdvice/time.Second))) * time.Second
}
