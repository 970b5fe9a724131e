package httplimit

import (
	"net/http"
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

// parseQuotas reads RateLimit: a list of strings with the parameters r and t. Members
// of another kind are left out. A field that is no list has nothing to say as a whole.
func parseQuotas(field string) ([]quota, bool) {
	var quotas []quota
	s := scanner{rest: field}
	ok := s.list(func(k kind) func(string, kind, int64) {
		if k != kindString {
			return func(string, kind, int64) {}
		}
		quotas = append(quotas, quota{remaining: -1, grows: -1})
		q := &quotas[len(quotas)-1]
		return func(name string, k kind, n int64) {
			if k != kindInteger || n < 0 {
				n = -1
			}
			switch name {
			case "r":
				q.remaining = n
			case "t":
				q.grows = n
			}
		}
	})
	if !ok {
		return nil, false
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

// holds remembers until when hosts asked not to be called. It is safe for concurrent
// use.
type holds struct {
	most int // hosts that are remembered

	mu    sync.Mutex
	until map[string]time.Time
}

// left is how long the host is still held, 0 for one that is not.
func (h *holds) left(host string, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, held := h.until[host]
	if !held {
		return 0
	}
	if left := until.Sub(now); left > 0 {
		return left
	}
	delete(h.until, host)
	return 0
}

// hold keeps the host for so long, or for what is left of an earlier hold if that is
// longer: responses come in any order.
func (h *holds) hold(host string, wait time.Duration, now time.Time) {
	if wait <= 0 {
		return
	}
	until := now.Add(wait)
	h.mu.Lock()
	defer h.mu.Unlock()
	earlier, held := h.until[host]
	if held && earlier.After(until) {
		return
	}
	if !held && len(h.until) >= h.most {
		h.makeRoom(now)
	}
	h.until[host] = until
}

// makeRoom forgets what is over, or else the host that would be free first.
func (h *holds) makeRoom(now time.Time) {
	var first string
	var soonest time.Time
	for host, until := range h.until {
		if !until.After(now) {
			delete(h.until, host)
			continue
		}
		if soonest.IsZero() || until.Before(soonest) {
			first, soonest = host, until
		}
	}
	if len(h.until) >= h.most {
		delete(h.until, first)
	}
}
