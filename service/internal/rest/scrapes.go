package rest

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stint-go/stint/service/internal/server/problem"
)

const (
	// metricsAge is how old metrics may be that are served, unless a configuration says otherwise:
	// shorter than any scrape interval, and long enough that a flood of requests costs what one a
	// second does.
	metricsAge = time.Second
	// scrapeOperations is how much work it is to answer a scrape by a page at hand, in operations: it
	// is copied.
	scrapeOperations = 8
	// protobufAccept asks for the format that carries native histograms, as Prometheus does.
	protobufAccept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// scrapes serve the metrics to whoever asks. To gather, write and compress them takes milliseconds, and nobody needs a
// token for it. So it is done by one request at a time, and its page serves all others of its kind until it is too old.
// It is safe for concurrent use.
type scrapes struct {
	gatherer prometheus.Gatherer
	age      time.Duration
	now      func() time.Time

	mu      sync.Mutex // held while metrics are gathered
	began   time.Time  // when handler was made
	handler http.Handler
	pages   map[pageKind]*page // that handler has written
}

// A pageKind is how a page is written. There are four, whatever requests say.
type pageKind struct{ protobuf, gzip bool }

// A page is an answer. It does not change.
type page struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// newScrapes serves what the gatherer had at most so long ago; 0 is metricsAge.
func newScrapes(gatherer prometheus.Gatherer, age time.Duration) *scrapes {
	s := &scrapes{gatherer: gatherer, age: age, now: time.Now}
	if age == 0 {
		s.age = metricsAge
	}
	return s
}

// begin makes a handler that gathers once.
func (s *scrapes) begin() {
	once := prometheus.GathererFunc(sync.OnceValues(s.gatherer.Gather))
	s.handler = promhttp.HandlerFor(once,
		promhttp.HandlerOpts{OfferedCompressions: []promhttp.Compression{promhttp.Identity, promhttp.Gzip}})
	s.began, s.pages = s.now(), map[pageKind]*page{}
}

// page returns the page for a request.
func (s *scrapes) page(r *http.Request) *page {
	kind := pageKind{
		protobuf: strings.Contains(r.Header.Get("Accept"), "application/vnd.google.protobuf"),
		gzip:     problem.AcceptsGzip(r),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handler == nil || s.now().Sub(s.began) >= s.age {
		s.begin()
	}
	p := s.pages[kind]
	if p == nil {
		p = &page{header: http.Header{}, status: http.StatusOK}
		s.handler.ServeHTTP(p, kind.request(r))
		s.pages[kind] = p
	}
	return p
}

// request is a request for a page of the kind, whatever else the one at hand asks for: its query, by which promhttp
// would leave metrics out for all who are served the page, too.
func (k pageKind) request(r *http.Request) *http.Request {
	header := http.Header{}
	if k.protobuf {
		header.Set("Accept", protobufAccept)
	}
	if k.gzip {
		header.Set("Accept-Encoding", "gzip")
	}
	return (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: r.URL.Path}, Header: header}).WithContext(
		r.Context(),
	)
}

// Header implements [http.ResponseWriter].
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements [http.ResponseWriter].
func (p *page) WriteHeader(status int) { p.status = status }

// Write implements [http.ResponseWriter].
func (p *page) Write(text []byte) (int, error) { return p.body.Write(text) }

// scrapeMetrics answers with the metrics, which may be a second old. The work is over before the answer is sent, since
// a client may read it slowly.
func (s *Service) scrapeMetrics(w http.ResponseWriter, r *http.Request) error {
	r, work, err := s.enter(r, scrapeOperations)
	if err != nil {
		return err
	}
	p := s.scrapes.page(r)
	work.Leave()
	header := w.Header()
	for name, values := range p.header {
		header[name] = values
	}
	header["Cache-Control"] = noStore
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body.Bytes()) // a client that is gone has no use for the error
	return nil
}
