package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// A TransportConfig says what a [Transport] is made of. With the zero value calls only heed what servers say. Its
// functions must be safe for concurrent use.
type TransportConfig struct {
	// Limiter paces the calls by plain limits. Default: nil, only servers do, or Rules.
	Limiter *stint.Limiter
	// Rules pace the calls by all rules that match them, in place of Limiter. A call that they
	// deny is not made, and waits only where a rule says so (rules.Wait), whatever Refuse says.
	// A call has the attribute "host", which is what Key is by default, and no client
	// address: a rule that counts addresses denies it. Default: nil.
	Rules enforce.Decider
	// Key is whom a call counts for with Limiter, 1 to 256 bytes; what a server asks of one call the
	// other calls of its key to the same host heed as well. Default: nil, the host, with its port when that is not
	// the scheme's own.
	Key func(*http.Request) (string, error)
	// Cost is how many permits of Limiter a call takes. A cost of 0 does not ask it. Default: nil, 1.
	Cost func(*http.Request) (int64, error)
	// Describe completes what Rules know of a call, such as its user and further attributes. There is
	// a map of attributes, with "host", to which it may add; in one that it puts in its place "host"
	// is added where it is missing, to a copy. It is called again for a call that a pause kept. Default: nil.
	Describe func(*http.Request, *rules.Request) error
	// Refuse refuses a call that may not be made at once. Default: false, the call waits. A leaky bucket's turn
	// is waited for in either case.
	Refuse bool
	// MaxWait bounds how long a call waits before it is made, for pauses, permits and turns together. One that would
	// wait longer, or past its context's deadline, is refused at once. One whose limiter could not decide by then,
	// since its store was away, fails with stint.ErrUnavailable. Default: 0, a minute.
	MaxWait time.Duration
	// MaxPause is the longest pause that a server is granted; it is called again after
	// that, whatever it said. Default: 0, a day.
	MaxPause time.Duration
	// Base makes the calls. Default: nil, http.DefaultTransport.
	Base http.RoundTripper
}

// A RefusedError says that a call was not made. It wraps stint.ErrDeadline when the call would have
// waited, but its context ends before. Of several reasons it tells the first that was met: the host's
// pause, then the limiter's or the rules' decision.
type RefusedError struct {
	// Host is whom the call was for.
	Host string
	// Server says that the host asked for a pause; otherwise it was the limiter.
	Server bool
	// Rule is the ID of the rule that refused. It is "" when it was the host, or no rule.
	Rule string
	// RetryAfter is how long until the call may be made, stint.Never when no wait will do. Of a
	// turn of a leaky bucket that the call does not last for it is how far off that is. 0 says that it is not known, as
	// rules held the call until it could wait no longer.
	RetryAfter time.Duration

	cause error
}

// Error names the host, who refused, and for how long.
func (e *RefusedError) Error() string {
	who := "the limit of calls"
	switch {
	case e.Server:
		who = "the server"
	case e.Rule != "":
		who = "rule " + e.Rule
	}
	text := fmt.Sprintf("stint: no call to %s for %v, says %s", e.Host, e.RetryAfter, who)
	if e.RetryAfter == stint.Never || e.RetryAfter == 0 {
		text = fmt.Sprintf("stint: no call to %s, says %s", e.Host, who)
	}
	if e.cause != nil {
		text += ": " + prefix.Trim(e.cause.Error())
	}
	return text
}

// Unwrap returns stint.ErrDeadline or nil.
func (e *RefusedError) Unwrap() error { return e.cause }

// A Transport is an http.RoundTripper that limits outgoing calls, by a limiter or rules and by
// what the hosts that are called ask for:
//
//   - Retry-After, in seconds or as a date, of a response of status 429 or 503;
//   - RateLimit of the IETF's draft, revision 11 or the proposal 166, when nothing remains (r=0, a=0): the
//     longest t of such limits, of any status;
//   - X-RateLimit-Remaining, when it is 0, with X-RateLimit-Reset: below 10^9 seconds
//     from now, else Unix seconds.
//
// The first of these that a response has counts, for all further calls to the host, by the same Key,
// whatever their path, also those that wait for the limiter: a permit that a call gets during
// the pause is spent, and it gets another one afterwards, so that calls leave at the limit's
// pace again. A field that can't be read is passed over; the response
// reaches the caller as it came, that of a denial too: the transport never sends a
// request again. Each hop of a redirection is a call of its own.
//
// It is safe for concurrent use; make it with [NewTransport]. Errors are those of the limiter, of
// the context, a [RefusedError], or Base's. It keeps no connection and no state but the pauses and,
// in the limiter's store, the permits.
type Transport struct {
	config TransportConfig
	client adapt.Client
}

// NewTransport makes a transport, or reports everything that is wrong with the configuration.
func NewTransport(config TransportConfig) (*Transport, error) {
	t := &Transport{config: config, client: adapt.Client{
		Limiter: config.Limiter, Rules: config.Rules,
		Refuse: config.Refuse, MaxWait: config.MaxWait, MaxPause: config.MaxPause,
	}}
	functions := adapt.Functions{Cost: config.Cost != nil, Describe: config.Describe != nil}
	if err := prefix.Join(t.client.Faults(functions)...); err != nil {
		return nil, err
	}
	t.client.Complete()
	if config.Base == nil {
		t.config.Base = http.DefaultTransport
	}
	return t, nil
}

// RoundTrip implements [http.RoundTripper]. A failed call says nothing of its host's limits. The
// response's fields are read before the caller sees it, so that a call that it makes next meets the
// pause already.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil {
		return t.config.Base.RoundTrip(r) // which says what is wrong with it
	}
	call, err := t.describe(r)
	if err == nil {
		err = t.client.Await(r.Context(), call)
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must; it was not read
		}
		return nil, err
	}
	response, err := t.config.Base.RoundTrip(r)
	if err != nil || response == nil {
		return response, err
	}
	if wait, ok := pauseOf(response, time.Now()); ok {
		t.client.Pause(call, wait)
	}
	return response, nil
}

// CloseIdleConnections has Base close them, if it can.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.config.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// hostAttribute is the attribute of a call that tells whom it is for.
const hostAttribute = "host"

// describe tells whom a call counts for, how much, and how it is described and refused.
func (t *Transport) describe(r *http.Request) (call *adapt.Call, err error) {
	host := hostOf(r)
	call = &adapt.Call{Server: host, Key: host, Cost: 1}
	if t.config.Key != nil {
		if call.Key, err = t.config.Key(r); err != nil {
			return nil, err
		}
	}
	if t.config.Cost != nil {
		if call.Cost, err = t.config.Cost(r); err != nil {
			return nil, err
		}
	}
	call.Describe = func(e *adapt.Evaluation) error { return t.describeToRules(r, host, &e.Request) }
	call.Refused = func(refusal *adapt.Refusal) error { return refusedError(host, refusal) }
	return call, nil
}

// describeToRules is a call as rules see it.
func (t *Transport) describeToRules(r *http.Request, host string, q *rules.Request) error {
	*q = rules.FromHTTP(r)
	q.Method, q.Host = cmp.Or(r.Method, http.MethodGet), cmp.Or(r.Host, r.URL.Host)
	q.Attributes = map[string]string{hostAttribute: host}
	if t.config.Describe != nil {
		if err := t.config.Describe(r, q); err != nil {
			return err
		}
	}
	q.SetDefault(hostAttribute, host)
	return nil
}

// refusedError is the error of a call that may not be made.
func refusedError(host string, refusal *adapt.Refusal) error {
	refused := &RefusedError{Host: host, Server: refusal.Verdict == nil, RetryAfter: refusal.RetryAfter}
	if v := refusal.Verdict; v != nil && v.Rule != nil { // otherwise it was the limiter, or no rule holds for it
		refused.Rule = v.Rule.ID
	}
	if refusal.Late {
		refused.cause = stint.ErrDeadline
	}
	return refused
}

// hostOf is the host that a request is for, in lower case, with its port when that is not the
// scheme's own. It is what servers count calls by: a host and port, as they are called.
func hostOf(r *http.Request) string {
	host := strings.ToLower(r.URL.Host)
	switch r.URL.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return host
}
