package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/rules"
)

// What a [TransportConfig] means when it does not say.
const (
	// DefaultMaxHosts is how many hosts are remembered that asked for a pause.
	DefaultMaxHosts = 1024
	// DefaultMaxPause is the longest pause that a server is granted.
	DefaultMaxPause = 24 * time.Hour
)

// A TransportConfig says what a [Transport] is made of. The zero value calls whom it is
// told to, and heeds what servers say.
type TransportConfig struct {
	// Limiter paces the calls by plain limits. While its store can't decide, calls wait until
	// their context ends, unless they Refuse to wait: give them a deadline. Default: nil, only servers do, or Rules.
	Limiter *stint.Limiter
	// Key is whom a call counts for with Limiter, 1 to stint.MaxKeyBytes bytes. It must
	// be nil without one, and safe for concurrent use. It is called again for a call that a
	// pause kept. Default: nil, the host, with its port when that is not the scheme's own.
	Key func(*http.Request) (string, error)
	// Rules paces the calls by all rules that match them, in place of Limiter. A call that they
	// deny is not made, and waits only where a rule says so (rules.Wait) and its context lasts, whatever Refuse says.
	// One that a leaky bucket admits is held until its turn, whatever the rule says.
	// A call has the attribute "host", which is what Key is by default, and no client
	// address: a rule that counts addresses denies it. Default: nil.
	Rules enforce.Decider
	// Describe completes what Rules know of a call, such as its user and further attributes. There is
	// a map of attributes, with "host", to which it may add; in one that it puts in its place "host"
	// is added where it is missing, to a copy. It must be nil without Rules, and safe for concurrent
	// use. It is called again for a call that a pause kept. Default: nil.
	Describe func(*http.Request, *rules.Request) error
	// Refuse returns a [RefusedError] for a call that may not be made at once. Default:
	// false, the call waits, and gets the error when its context's deadline is nearer
	// than the wait. A leaky bucket's turn is waited for in either case, and refused in either
	// case when the deadline is nearer.
	Refuse bool
	// MaxHosts is how many hosts are remembered that asked for a pause; of more, those
	// whose pause ends first are forgotten. Default: 0, which is DefaultMaxHosts.
	MaxHosts int
	// MaxPause is the longest pause that a server is granted; it is called again after
	// that, whatever it said. Default: 0, which is DefaultMaxPause.
	MaxPause time.Duration
	// Base makes the calls. Default: nil, http.DefaultTransport.
	Base http.RoundTripper
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c TransportConfig) Validate() error {
	var faults []error
	if c.Key != nil && c.Limiter == nil {
		faults = append(faults, stint.Invalid("key", "set", "nil without a limiter"))
	}
	if c.Rules != nil && c.Limiter != nil {
		faults = append(faults, stint.Invalid("rules", "set", "nil beside a limiter of plain limits"))
	}
	if c.Describe != nil && c.Rules == nil {
		faults = append(faults, stint.Invalid("describe", "set", "nil without rules"))
	}
	if c.MaxHosts < 0 {
		faults = append(faults, stint.Invalid("max_hosts", c.MaxHosts, "1 or more; 0 for the default"))
	}
	if c.MaxPause < 0 {
		faults = append(faults, stint.Invalid("max_pause", c.MaxPause, "a positive duration; 0 for the default"))
	}
	return prefix.Join(faults...)
}

// A RefusedError says that a call was not made. It wraps stint.ErrDeadline when the call would have
// waited, but not for so long. Of several reasons it tells the first that was met: the host's
// pause, then the limiter's or the rules' decision.
type RefusedError struct {
	// Host is whom the call was for.
	Host string
	// Server says that the host asked for a pause; otherwise it was the limiter.
	Server bool
	// Rule is the ID of the rule that refused. It is "" when it was the host, or no rule.
	Rule string
	// RetryAfter is how long until the call may be made, stint.Never when no wait will do. Of a
	// turn of a leaky bucket that the call does not last for it is how far off that is.
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
	if e.RetryAfter == stint.Never {
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
//   - RateLimit of the IETF's draft, revision 11, when nothing remains (r=0): the
//     longest t of such limits, of any status;
//   - X-RateLimit-Remaining, when it is 0, with X-RateLimit-Reset: below 10^9 seconds
//     from now, else Unix seconds.
//
// The first of these that a response has counts, for all further calls to the host,
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
	config      TransportConfig
	pauses      enforce.Pauses
	evaluations enforce.Evaluations
}

// NewTransport makes a transport, or reports everything that is wrong with the configuration.
func NewTransport(config TransportConfig) (*Transport, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Base == nil {
		config.Base = http.DefaultTransport
	}
	return &Transport{config: config, pauses: enforce.Pauses{
		Most: cmp.Or(config.MaxHosts, DefaultMaxHosts), Longest: cmp.Or(config.MaxPause, DefaultMaxPause),
	}}, nil
}

// RoundTrip implements [http.RoundTripper]. A failed call says nothing of its host's limits. The
// response's fields are read before the caller sees it, so that a call that it makes next meets the
// pause already.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil {
		return t.config.Base.RoundTrip(r) // which says what is wrong with it
	}
	host := hostOf(r)
	if err := t.admit(r, host); err != nil {
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
		t.pauses.Add(host, wait)
	}
	return response, nil
}

// CloseIdleConnections has Base close them, if it can.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.config.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// admit returns when the call may be made, or why it may not. The host comes first, so that no permit is spent
// on a call that it would refuse. If the host has asked for a pause by the time at which the limiter admits, that
// permit is spent, and the limiter is asked for another one after the pause: all who waited with one would call at
// once.
func (t *Transport) admit(r *http.Request, host string) error {
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		if err := t.awaitPause(ctx, host); err != nil {
			return err
		}
		if t.config.Rules == nil && t.config.Limiter == nil {
			return nil
		}
		if err := t.decide(r, host); err != nil {
			return err
		}
		if t.pauses.Left(host) == 0 {
			return nil
		}
	}
}

// awaitPause waits until the host's pause is over. A wait that ends with the context fails with the
// context's error; one that would end after the deadline is not begun.
func (t *Transport) awaitPause(ctx context.Context, host string) error {
	if t.config.Refuse {
		if left := t.pauses.Left(host); left > 0 {
			return &RefusedError{Host: host, Server: true, RetryAfter: left}
		}
		return nil
	}
	left, err := t.pauses.Await(ctx, host)
	if errors.Is(err, stint.ErrDeadline) {
		return &RefusedError{Host: host, Server: true, RetryAfter: left, cause: stint.ErrDeadline}
	}
	return err
}

// hostAttribute is the attribute of a call that tells whom it is for.
const hostAttribute = "host"

// decide has the limiter or the rules decide, and holds an admitted call until its turn.
func (t *Transport) decide(r *http.Request, host string) (err error) {
	e := t.evaluations.Get()
	defer t.evaluations.Put(e)
	ctx, v, key := r.Context(), &e.Verdict, host
	if t.config.Key != nil {
		if key, err = t.config.Key(r); err != nil {
			return err
		}
	}
	switch {
	case t.config.Rules != nil:
		err = t.decideByRules(r, host, e)
	case t.config.Refuse:
		deadline, _ := ctx.Deadline()
		err = v.DecidePlain(ctx, t.config.Limiter, key, 1, false, deadline)
	default:
		err = v.WaitPlain(ctx, t.config.Limiter, key, 1)
	}
	if err != nil {
		return err
	}
	if v.Allowed {
		return sleep.For(ctx, v.Decision.Delay)
	}
	refused := &RefusedError{Host: host, RetryAfter: cmp.Or(v.Turn, v.Decision.RetryAfter)}
	late := v.Turn > 0 || t.config.Limiter != nil && !t.config.Refuse
	if v.Rule != nil { // otherwise it was the limiter, or no rule holds for it
		refused.Rule = v.Rule.ID
		late = late || v.Rule.OnExceed == rules.Wait && v.Outcome == rules.Limited && refused.RetryAfter != stint.Never
	}
	if late {
		refused.cause = stint.ErrDeadline
	}
	return refused
}

// decideByRules has the rules decide.
func (t *Transport) decideByRules(r *http.Request, host string, e *enforce.Evaluation) error {
	q := &e.Request
	*q = rules.FromHTTP(r)
	q.Method, q.Host = cmp.Or(r.Method, http.MethodGet), cmp.Or(r.Host, r.URL.Host)
	q.Attributes = map[string]string{hostAttribute: host}
	if t.config.Describe != nil {
		if err := t.config.Describe(r, q); err != nil {
			return err
		}
	}
	q.SetDefault(hostAttribute, host)
	return t.config.Rules.Decide(r.Context(), q, &e.Verdict)
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
