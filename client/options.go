package client

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// DefaultTimeout bounds a request unless the Options say otherwise.
const DefaultTimeout = 5 * time.Second

// DefaultMaxIdleConns is how many idle connections are kept unless the Options say otherwise.
const DefaultMaxIdleConns = 64

// Options say how a [Client] asks. The zero value is a good choice for a service on loopback.
type Options struct {
	// Token is the bearer token that lets the client name keys: printable ASCII without spaces. It is
	// sent as it is, so it should travel by https. No error repeats it. Default: "", none.
	Token string
	// Timeout bounds each request, from the dialling to the end of the answer. A context may end
	// sooner. Default: 0, which is DefaultTimeout. It should be longer than the service's own
	// store.timeout, so that the service's answer to a slow store still arrives. After it nobody knows
	// whether permits were taken.
	Timeout time.Duration
	// TLS says whom to believe and who the client is. It is copied. Only for an https
	// URL, and not with HTTPClient. Default: nil, whom the system believes.
	TLS *tls.Config
	// MaxIdleConns is how many connections are kept between requests; as many callers at once find one
	// open. Not with HTTPClient. Default: 0, which is DefaultMaxIdleConns. Fewer than there are
	// callers at once costs a handshake for many requests; more costs sockets that stay open for 30s.
	MaxIdleConns int
	// HTTPClient carries the requests, for programs with a transport of their own. It
	// must not repeat a POST. Redirects are not followed, whatever it says. Default: nil,
	// a client with connections of its own.
	HTTPClient *http.Client
	// Defaults are the limits that the service has configured for its algorithms, where
	// they differ from the built-in ones; one for each algorithm at most. They say which
	// policies without a name can be asked for. Default: none, the built-in ones of 100
	// permits, refilled or drained at 10 per second, or per 60 seconds.
	Defaults []stint.Limit
}

// EnsureDefaults returns the options with every default filled in, except for those of
// TLS and HTTPClient.
func (o Options) EnsureDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxIdleConns == 0 && o.HTTPClient == nil {
		o.MaxIdleConns = DefaultMaxIdleConns
	}
	const permits, window = 100, 60 * time.Second
	o.Defaults = slices.Clone(o.Defaults)
	for _, limit := range []stint.Limit{
		stint.TokenBucket(permits, stint.PerSecond(10)),
		stint.LeakyBucket(permits, stint.PerSecond(10)),
		stint.FixedWindow(permits, window),
		stint.SlidingWindowLog(permits, window),
		stint.SlidingWindowCounter(permits, window),
	} {
		if !slices.ContainsFunc(o.Defaults, func(l stint.Limit) bool { return l.Algorithm == limit.Algorithm }) {
			o.Defaults = append(o.Defaults, limit)
		}
	}
	return o
}

// validate reports everything that is wrong with the options, joined. Each fault is
// a [stint.InvalidError].
func (o Options) validate() error {
	var faults []error
	add := func(param string, value any, allowed string) {
		faults = append(faults, stint.Invalid(param, value, allowed))
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		add("token", fmt.Sprintf("of %d bytes", len(o.Token)), "printable ASCII without spaces")
	}
	if o.Timeout < 0 {
		add("timeout", o.Timeout, "above 0, or 0 for the default")
	}
	if o.MaxIdleConns < 0 {
		add("idle connections", o.MaxIdleConns, "1 or more, or 0 for the default")
	}
	if o.HTTPClient != nil && o.TLS != nil {
		add("tls", "given", "only without an HTTP client, whose transport has its own")
	}
	if o.HTTPClient != nil && o.MaxIdleConns > 0 {
		add("idle connections", o.MaxIdleConns, "only without an HTTP client, whose transport has its own")
	}
	for i, limit := range o.Defaults {
		if err := limit.Validate(); err != nil {
			faults = append(faults, prefix.Errorf("default %d: %w", i, err))
		}
		if slices.ContainsFunc(o.Defaults[:i], func(l stint.Limit) bool { return l.Algorithm == limit.Algorithm }) {
			add(fmt.Sprintf("default %d", i), limit.Algorithm, "one default for each algorithm")
		}
	}
	return prefix.Join(faults...)
}

// parseBase reads the service's URL. No error shows a password in it.
func parseBase(text string, o *Options) (*url.URL, error) {
	const allowed = "an http or https URL of a service, such as http://127.0.0.1:8080, without query and fragment"
	base, err := url.Parse(text)
	if err != nil {
		return nil, stint.Invalid("url", "not one", allowed) // the error's text repeats it
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https",
		base.Host == "",
		base.RawQuery != "",
		base.ForceQuery,
		base.Fragment != "":
		base.RawQuery, base.Fragment = "", "" // which may hold secrets
		return nil, stint.Invalid("url", base.Redacted(), allowed)
	case base.User != nil && o.Token != "":
		return nil, stint.Invalid("token", "beside a user in the url", "one of them")
	case base.Scheme == "http" && o.TLS != nil:
		return nil, stint.Invalid("tls", "given", "only with an https URL")
	}
	return base, nil
}
