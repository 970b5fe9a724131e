package rls

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxSeries bounds the statistics with values in their names. What is beyond is counted together as
// other. Values are the clients' to choose, so without a bound they could fill the memory.
const maxSeries = 10_000

// maxName bounds the bytes of a name with values in it. A request has up to 256 KiB of them, which would be kept, and
// served with the metrics, for each series.
const maxName = 512

// other names what is beyond maxSeries or maxName.
const other = "other"

// counters are the statistics of a limit, in hits, as the reference service has them: a request of
// 3 hits counts 3.
type counters struct {
	// labels are the domain and the first two keys, as the reference service's statsd mapping has
	// them.
	labels [3]string // domain, key1, key2
	// the reference service's
	name                                                   string
	totalHits, overLimit, nearLimit, withinLimit, shadowed atomic.Uint64
}

// statistics are those of a service, under the reference service's names. It is safe for concurrent
// use.
type statistics struct {
	mu sync.RWMutex
	// byName and unknown only grow, up to maxSeries and a tenth of it.
	byName map[string]*counters
	// requests for domains that there are not, by their names
	unknown map[string]*atomic.Uint64

	loads, failedLoads, globalShadow, storeErrors, serviceErrors atomic.Uint64
	requests                                                     atomic.Uint64

	elapsed prometheus.Histogram
	commits func() (waiting int, lost uint64)
}

// newStatistics makes statistics in which nothing was counted.
func newStatistics() *statistics {
	return &statistics{
		byName: map[string]*counters{}, unknown: map[string]*atomic.Uint64{},
		elapsed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        "ratelimit_service_response_time_seconds",
			Help:        "How long ShouldRateLimit took.",
			ConstLabels: prometheus.Labels{"grpc_method": method},
			Buckets:     []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .02, .05, .1, .25, 1},
		}),
	}
}

// method is the one that is measured.
const method = "ShouldRateLimit"

// of is the counters of a name, which is the caller's to change again.
func (s *statistics) of(name []byte) *counters {
	if len(name) > maxName {
		domain, _, _ := bytes.Cut(name[:maxName], []byte("."))
		if len(domain) > maxName/2 {
			domain = []byte(other)
		}
		name = fmt.Appendf(nil, "%s.%s", domain, other)
	}
	s.mu.RLock()
	c := s.byName[string(name)]
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text := string(name)
	if c := s.byName[text]; c != nil {
		return c
	}
	if len(s.byName) >= maxSeries {
		domain, _, _ := strings.Cut(text, ".")
		if text = domain + "." + other; s.byName[text] == nil && len(s.byName) >= maxSeries+maxSeries/10 {
			text = other + "." + other
		}
		if c := s.byName[text]; c != nil {
			return c
		}
	}
	c = newCounters(text)
	s.byName[text] = c
	return c
}

// addresses are IPv4 addresses, whose dots would be taken for those between keys.
var addresses = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)

// newCounters makes the counters of a name. Its labels are what the reference service's own mapping
// makes of it.
func newCounters(name string) *counters {
	clean := strings.NewReplacer(":", "_", "|", "_").Replace(strings.ToValidUTF8(name, "_"))
	clean = addresses.ReplaceAllStringFunc(clean, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
	c := &counters{name: clean}
	copy(c.labels[:], strings.Split(clean, "."))
	return c
}

// domainUnknown counts a request for a domain that there is not.
func (s *statistics) domainUnknown(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(name) > maxName {
		name = other
	}
	name = strings.ToValidUTF8(name, "_") // as a label has to be
	n := s.unknown[name]
	if n == nil {
		if len(s.unknown) >= maxSeries/10 {
			name = other
		}
		if n = s.unknown[name]; n == nil {
			n = new(atomic.Uint64)
			s.unknown[strings.Clone(name)] = n
		}
	}
	n.Add(1)
}

// count counts hits of a limit, after which so many of it are used, as far as that is known. With L
// the limit, a what is counted after the request and h its hits:
//
//	within: near gets min(h, a - L x near), if that is above 0
//	beyond: over gets h, or a - L if the request crossed the limit,
//	        near then gets the part from L x near to L
func (c *counters) count(k *check, near float32) {
	hits, after := uint64(k.hits), uint64(k.after)
	c.totalHits.Add(hits)
	most := uint64(k.limit.RequestsPerUnit)
	before := after - min(hits, after)
	nearly := uint64(float32(most) * near)
	if !k.over {
		c.withinLimit.Add(hits)
		if after > nearly {
			c.nearLimit.Add(min(hits, after-nearly))
		}
		return
	}
	beyond := hits
	if before < most && after > most {
		beyond = after - most
		c.nearLimit.Add(most - min(most, max(nearly, before)))
	}
	c.overLimit.Add(beyond)
	if k.limit.shadow {
		c.shadowed.Add(beyond)
	}
}

var limitLabels = []string{"domain", "key1", "key2"}

// The metrics, by the names that the reference service's own mapping gives them.
var (
	totalHits   = prometheus.NewDesc("ratelimit_service_rate_limit_total_hits", "Hits of a limit.", limitLabels, nil)
	overLimit   = prometheus.NewDesc("ratelimit_service_rate_limit_over_limit", "Hits beyond a limit.", limitLabels, nil)
	nearLimit   = prometheus.NewDesc("ratelimit_service_rate_limit_near_limit", "Hits near a limit.", limitLabels, nil)
	withinLimit = prometheus.NewDesc("ratelimit_service_rate_limit_within_limit", "Hits within a limit.", limitLabels, nil)
	shadowMode  = prometheus.NewDesc("ratelimit_service_rate_limit_shadow_mode",
		"Hits beyond a limit in shadow mode.", limitLabels, nil)

	domainNotFound = prometheus.NewDesc("ratelimit_service_rate_limit_domain_not_found",
		"Requests for a domain that there is not.", []string{"domain"}, nil)
	configLoads    = prometheus.NewDesc("ratelimit_service_config_load_success", "Configurations put in force.", nil, nil)
	configFailures = prometheus.NewDesc("ratelimit_service_config_load_error", "Configurations refused.", nil, nil)
	errorsByType   = prometheus.NewDesc("ratelimit_service_should_rate_limit_error", "Requests that were not decided.",
		[]string{"err_type"}, nil)
	globalShadows = prometheus.NewDesc("ratelimit_service_global_shadow_mode",
		"Requests that were admitted by SHADOW_MODE alone.", nil, nil)
	requests = prometheus.NewDesc("ratelimit_service_total_requests", "Requests.", []string{"grpc_method"}, nil)

	commitsWaiting = prometheus.NewDesc("rate_limiter_commits_waiting",
		"Commits of Envoy's streams that failed, and that are sent again.", nil, nil)
	commitsLost = prometheus.NewDesc("rate_limiter_commits_lost_total",
		"Commits of Envoy's streams that were given up: the store had forgotten the hold, too many waited, or "+
			"the service stopped.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (s *statistics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		totalHits, overLimit, nearLimit, withinLimit, shadowMode, domainNotFound, configLoads, configFailures,
		errorsByType, globalShadows, requests, commitsWaiting, commitsLost,
	} {
		to <- d
	}
	s.elapsed.Describe(to)
}

// Collect implements [prometheus.Collector].
func (s *statistics) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	s.mu.RLock()
	merged := map[[3]string]*[5]uint64{} // the mapping leaves out what is behind the second key
	for _, c := range s.byName {
		sum := merged[c.labels]
		if sum == nil {
			sum = new([5]uint64)
			merged[c.labels] = sum
		}
		for i, n := range c.values() {
			sum[i] += n
		}
	}
	for name, n := range s.unknown {
		send(domainNotFound, n.Load(), name)
	}
	s.mu.RUnlock()
	for labels, sum := range merged {
		for i, d := range []*prometheus.Desc{totalHits, overLimit, nearLimit, withinLimit, shadowMode} {
			send(d, sum[i], labels[:]...)
		}
	}
	send(configLoads, s.loads.Load())
	send(configFailures, s.failedLoads.Load())
	send(errorsByType, s.storeErrors.Load(), "redis_error")
	send(errorsByType, s.serviceErrors.Load(), "service_error")
	send(globalShadows, s.globalShadow.Load())
	send(requests, s.requests.Load(), method)
	waiting, lost := s.commits()
	to <- prometheus.MustNewConstMetric(commitsWaiting, prometheus.GaugeValue, float64(waiting))
	send(commitsLost, lost)
	s.elapsed.Collect(to)
}

// values are the counters in the order of their metrics.
func (c *counters) values() [5]uint64 {
	return [5]uint64{c.totalHits.Load(), c.overLimit.Load(), c.nearLimit.Load(), c.withinLimit.Load(), c.shadowed.Load()}
}

// observe counts a request that began at a time.
func (s *statistics) observe(start time.Time) {
	s.requests.Add(1)
	s.elapsed.Observe(time.Since(start).Seconds())
}
