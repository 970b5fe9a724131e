package httplimit

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// longestPause is the longest wait that is told apart from longer ones. It is within a
// time.Duration, which holds 292 years.
const longestPause = 100 * 365 * 24 * time.Hour

// pauseOf is how long the response asks its client not to come again, and whether it asks for
// anything. Of several fields Retry-After is believed first, then RateLimit. A field that can't be
// read says nothing. Retry-After counts with status 429 and 503 alone: on a redirect, or a 202, it
// says something else (RFC 9110, section 10.2.3).
func pauseOf(response *http.Response, now time.Time) (time.Duration, bool) {
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

// retryAfter reads Retry-After (RFC 9110, section 10.2.3): seconds or a date. A date in the past is
// no wait.
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
	return min(max(date.Sub(now), 0), longestPause), true
}

// exhausted reads RateLimit of the IETF's draft, revision 11, or as the proposal 166 spells it: it is the longest t, or
// w, of the limits of which nothing is left. A limit of which something is left asks for nothing, however long it takes
// until there is more.
func exhausted(field string) (wait time.Duration, ok bool) {
	if !strings.Contains(field, "=0") && !strings.Contains(field, "=-0") {
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
// there will be more. An unknown number is -1.
type quota struct{ remaining, grows int64 }

// item is a bare item of RFC 9651, section 3.3: decimal, integer, string, token, bytes, boolean,
// date, display string.
var item = regexp.MustCompile(`^(?:-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|"(?:[ !#-\[\]-~]|\\["\\])*"` +
	"|[A-Za-z*][!#$%&'*+.^_|~0-9A-Za-z:/`-]*" +
	`|:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?:|\?[01]|@-?[0-9]{1,15}` +
	`|%"(?:[ !#$&-~]|%[0-7][0-9a-f]|%[cd][0-9a-f]%[89ab][0-9a-f]|` +
	`%e[0-9a-f](?:%[89ab][0-9a-f]){2}|%f[0-7](?:%[89ab][0-9a-f]){3})*")`)

// parameter is the name of an item's parameter, section 3.1.2.
var parameter = regexp.MustCompile(`^; *[a-z*][a-z0-9_.*-]*`)

// A scanner reads structured fields as RFC 9651, section 4.2, says. It reads lists alone, which is
// what RateLimit is. What does not fit makes the whole field invalid, as the RFC demands.
type scanner struct{ rest string }

// consume returns what the pattern matches and goes on behind it; "" if it does not match.
func (s *scanner) consume(pattern *regexp.Regexp) string {
	found := pattern.FindString(s.rest)
	s.rest = s.rest[len(found):]
	return found
}

// skip goes on behind one byte, if it comes next.
func (s *scanner) skip(c byte) bool {
	found := s.rest != "" && s.rest[0] == c
	if found {
		s.rest = s.rest[1:]
	}
	return found
}

// parameters reads what follows an item, and keeps r and t, or, without an r, what the proposal 166 has in their place,
// a and w. The last of each counts.
func (s *scanner) parameters() (q quota, ok bool) {
	q = quota{remaining: -1, grows: -1}
	proposed, draft := q, false
	for name := s.consume(parameter); name != ""; name = s.consume(parameter) {
		value := ""
		if s.skip('=') {
			if value = s.consume(item); value == "" {
				return q, false
			}
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			n = -1
		}
		switch strings.TrimLeft(name, "; ") {
		case "r":
			q.remaining, draft = n, true
		case "t":
			q.grows = n
		case "a":
			proposed.remaining = n
		case "w":
			proposed.grows = n
		}
	}
	if !draft && proposed.remaining >= 0 {
		return proposed, true
	}
	return q, true
}

// inner reads an inner list behind its parenthesis.
func (s *scanner) inner() bool {
	for first := true; ; first = false {
		items := strings.TrimLeft(s.rest, " ")
		spaced := first || len(items) < len(s.rest)
		s.rest = items
		if s.skip(')') {
			return true
		}
		if !spaced || s.consume(item) == "" {
			return false
		}
		if _, ok := s.parameters(); !ok {
			return false
		}
	}
}

// parseQuotas reads RateLimit: a list of strings with the parameters r and t. Members of another
// kind are left out. A field that is no list has nothing to say as a whole. Parameters whose names
// are not known are skipped, with values of any type.
func parseQuotas(field string) (quotas []quota, ok bool) {
	s := scanner{rest: strings.TrimLeft(field, " ")}
	for ok = s.rest == ""; !ok; ok = s.rest == "" {
		text := s.consume(item)
		if text == "" && (!s.skip('(') || !s.inner()) {
			return nil, false
		}
		q, fits := s.parameters()
		if !fits {
			return nil, false
		}
		if strings.HasPrefix(text, `"`) {
			quotas = append(quotas, q)
		}
		if s.rest = strings.TrimLeft(s.rest, " \t"); s.rest == "" {
			break
		}
		if !s.skip(',') {
			return nil, false
		}
		if s.rest = strings.TrimLeft(s.rest, " \t"); s.rest == "" {
			return nil, false
		}
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
	return min(max(time.Unix(n, 0).Sub(now), 0), longestPause), true
}

// decimal reads digits and nothing else. A number that is too large becomes the largest int64.
func decimal(text string) (int64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ := strconv.ParseInt(text, 10, 64) // too large is the only fault left
	return n, true
}

// seconds is n seconds, at most longestPause.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(longestPause/time.Second))) * time.Second
}
