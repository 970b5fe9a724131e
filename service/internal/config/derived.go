package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
)

// What follows from settings stands here, and config.go has the settings alone.

// An Overload is what is done with a check for which there is no time.
type Overload uint8

// What is done under overload.
const (
	Reject Overload = iota
	Admit
)

// String is the name in the configuration.
func (o Overload) String() string {
	if o == Admit {
		return "admit"
	}
	return "reject"
}

// OverloadAdmits reports whether a check for which there is no time is admitted.
func (c *Config) OverloadAdmits() bool { return c.OnOverload == Admit }

// RulesRequired reports whether nothing is admitted while no rules are known.
func (c *Config) RulesRequired() bool { return c.OnStoreFailure != failover.Open }

// LongestWait is how long a rule may hold a request so that it is answered in time. A body may take
// BodyTimeout before the rules are asked. What is left of WriteTimeout is for the wait, or half of
// it if BodyTimeout leaves less.
func (h HTTP) LongestWait() time.Duration {
	return max(h.WriteTimeout-h.BodyTimeout, h.WriteTimeout/2)
}

// LeastBodyMemory is the least MaxBodyMemory with which one client alone may send a request of the greatest sizes: half
// of it has room for the body twice, once in chunks of 8 KiB and once as a text, and for the head in many fields.
func (h HTTP) LeastBodyMemory() int64 { return 4*h.MaxBodyBytes + 16*h.MaxHeaderBytes + 4*(8<<10) }

// validate reports a MaxBodyMemory below the least.
func (h HTTP) validate() error {
	least := h.LeastBodyMemory()
	if h.MaxBodyMemory == 0 || h.MaxBodyMemory >= least {
		return nil
	}
	return stint.Invalid("http.max_body_memory", h.MaxBodyMemory, fmt.Sprintf(
		"at least %d: 4 times http.max_body_size, 16 times http.max_header_size and 32KiB together", least))
}

// Memory reports whether state lives in this process.
func (s Store) Memory() bool { return s.URL == memoryURL }

// Clustered reports whether state lives in a Redis Cluster, in several partitions.
func (s Store) Clustered() bool {
	scheme, _, _ := strings.Cut(s.URL, "://")
	return strings.HasSuffix(scheme, "-cluster") && s.Partitions != 1
}

// Fields are the fields as package httplimit has them.
func (h Headers) Fields() (fields httplimit.Fields) {
	fields = h.IETF
	if h.XRateLimit {
		fields |= httplimit.XRateLimit
	}
	if h.RetryAfter {
		fields |= httplimit.RetryAfter
	}
	return fields
}

// DefaultLimits returns the limits that the algorithms' names stand for when the configuration says
// nothing else: 100 permits, refilled or drained at 10 per second, or per 60 seconds.
func DefaultLimits() map[stint.Algorithm]stint.Limit {
	// The numbers are those of the REST API's contract: clients may rely on them without configuring
	// anything.
	const permits, window = 100, 60 * time.Second
	limits := map[stint.Algorithm]stint.Limit{}
	for _, limit := range []stint.Limit{
		stint.TokenBucket(permits, stint.PerSecond(10)),
		stint.LeakyBucket(permits, stint.PerSecond(10)),
		stint.FixedWindow(permits, window),
		stint.SlidingWindowLog(permits, window),
		stint.SlidingWindowCounter(permits, window),
	} {
		limits[limit.Algorithm] = limit
	}
	return limits
}

// Enabled reports whether the listener speaks TLS.
func (t TLS) Enabled() bool { return t.CertFile != "" }
