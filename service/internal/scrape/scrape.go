// Package scrape serves metrics to whoever asks, and gathers them once a second at most.
package scrape

import (
	"bytes"
	"maps"
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
	// protobufAccept asks for the format that carries native histograms, as Prometheus does.
	protobufAccept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// Pages serve the metrics to whoever asks. To gather, write and compress them takes milliseconds, and nobody needs a
// token for it. So it is done by one request at a time, and its page serves all others of its kind until it is too old.
// It is safe for concurrent use.
type Pages struct {
	gatherer prometheus.Gatherer
	age      time.Duration
	now      func() time.Time

	mu      sync.Mutex // held while metrics are gathered
	began   time.Time  // when handler was made
	handler http.Handler
	pages   map[kind]*Page // that handler has written
}

// A kind is how a page is written. There are four, whatever requests say.
type kind struct{ protobuf, gzip bool }

// A Page is an answer. It does not change once [Pages.Of] has returned it.
type Page struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Send answers with the page, and header fields besides its own that w has.
func (p *Page) Send(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.header)
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body.Bytes()) // a client that is gone has no use for the error
}

// New serves what the gatherer had at most so long ago; 0 is metricsAge.
func New(gatherer prometheus.Gatherer, age time.Duration) *Pages {
	s := &Pages{gatherer: gatherer, age: age, now: time.Now}
	if age == 0 {
		s.age = metricsAge
	}
	return s
}

// begin makes a handler that gathers once.
func (s *Pages) begin() {
	once := prometheus.GathererFunc(sync.OnceValues(s.gatherer.Gather))
	s.handler = promhttp.HandlerFor(once,
		promhttp.HandlerOpts{OfferedCompressions: []promhttp.Compression{promhttp.Identity, promhttp.Gzip}})
	s.began, s.pages = s.now(), map[kind]*Page{}
}

// Of returns the page for a request.
func (s *Pages) Of(r *http.Request) *Page {
	k := kind{
		protobuf: strings.Contains(r.Header.Get("Accept"), "application/vnd.google.protobuf"),
		gzip:     problem.AcceptsGzip(r),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handler == nil || s.now().Sub(s.began) >= s.age {
		s.begin()
	}
	p := s.pages[k]
	if p == nil {
		p = &Page{header: http.Header{}, status: http.StatusOK}
		s.handler.ServeHTTP(p, k.request(r))
		s.pages[k] = p
	}
	return p
}

// request is a request for a page of the kind, whatever else the one at hand asks for: its query, by which promhttp
// would leave metrics out for all who are served the page, too.
func (k kind) request(r *http.Request) *http.Request {
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
func (p *Page) Header() http.Header { return p.header }

// WriteHeader implements [http.ResponseWriter].
func (p *Page) WriteHeader(status int) { p.status = status }

// Write implements [http.ResponseWriter].
func (p *Page) Write(text []byte) (int, error) { return p.body.Write(text) }
