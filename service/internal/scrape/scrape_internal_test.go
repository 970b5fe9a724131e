package scrape

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Metrics are gathered by one request at a time and once a second, however many ask and whatever they accept.
func TestScrapesAreShared(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "things_total", Help: "Things."}))
	var gathering, gathered, most atomic.Int64
	slow := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		defer gathering.Add(-1)
		most.Store(max(most.Load(), gathering.Add(1)))
		gathered.Add(1)
		return registry.Gather()
	})
	s := New(slow, 0)
	var now atomic.Int64
	s.now = func() time.Time { return time.Unix(0, now.Load()) }

	accepts := []string{"", "text/plain", "application/vnd.google.protobuf;q=1", "application/openmetrics-text", "x/" + strings.Repeat("y", 999)}
	var group sync.WaitGroup
	for i := range 64 {
		group.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept", accepts[i%len(accepts)])
			if i%2 == 0 {
				r.Header.Set("Accept-Encoding", "br, gzip")
			}
			p := s.Of(r)
			body := io.Reader(strings.NewReader(p.body.String()))
			if i%2 == 0 {
				unpacked, err := gzip.NewReader(body)
				if err != nil {
					t.Error(err)
					return
				}
				body = unpacked
			}
			text, err := io.ReadAll(body)
			if err != nil || p.status != http.StatusOK || !strings.Contains(string(text), "things_total") {
				t.Errorf("%d, %v: %q", p.status, err, text)
			}
		})
	}
	group.Wait()
	if gathered.Load() != 1 || most.Load() != 1 || len(s.pages) != 4 {
		t.Errorf("gathered %d times, %d at once, and written %d times; want 1, 1 and 4", gathered.Load(), most.Load(), len(s.pages))
	}
	for i, want := range []int64{1, 2, 2} {
		s.Of(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if gathered.Load() != want {
			t.Errorf("request %d: gathered %d times, want %d", i, gathered.Load(), want)
		}
		now.Add(int64(metricsAge) / 2)
		if i == 0 {
			now.Add(int64(metricsAge) / 2)
		}
	}
}
