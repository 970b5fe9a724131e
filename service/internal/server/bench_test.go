package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server"
)

// discard is a response writer that keeps nothing but its header, as net/http does
// it between a handler's start and its end.
type discard struct {
	header http.Header
	status int
}

func (w *discard) Header() http.Header            { return w.header }
func (w *discard) Write(text []byte) (int, error) { return len(text), nil }
func (w *discard) WriteHeader(status int)         { w.status = status }

func serve(h http.Handler, w *discard, r *http.Request) {
	clear(w.header)
	w.status = http.StatusOK
	h.ServeHTTP(w, r)
}

// bare writes the bytes of a response to a check and decides nothing.
func bare(header http.Header, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for name, values := range header {
			h[name] = values
		}
		_, _ = w.Write(body)
	})
}

func liveService(t testing.TB) http.Handler {
	t.Helper()
	config, _, _ := testConfig()
	config.Store = memstore.New(memstore.Config{})
	s := must.Get(server.New(config))(t)
	return s.Handler()
}

func BenchmarkCheck(b *testing.B) {
	service := liveService(b)
	recorder := httptest.NewRecorder()
	service.ServeHTTP(recorder, httptest.NewRequestWithContext(b.Context(), http.MethodGet, check+"?key=user:123&algorithm=TOKEN_BUCKET", nil))
	for name, handler := range map[string]http.Handler{
		"handler=stint": service, "handler=bare": bare(recorder.Result().Header, recorder.Body.Bytes()),
	} {
		b.Run(name, func(b *testing.B) {
			w := &discard{header: http.Header{}}
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, check+"?key=user:123&algorithm=TOKEN_BUCKET", nil)
			b.ReportAllocs()
			for b.Loop() {
				serve(handler, w, r)
			}
		})
	}
}

// A check allocates the text of its header values and the array that holds them,
// and nothing else.
func TestCheckAllocates(t *testing.T) {
	f := newFixture(t, nil)
	w := &discard{header: http.Header{}}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, apipath.Check+"?key=user:123&algorithm=FIXED_WINDOW", nil)
	budget := 2.0
	if raceEnabled {
		budget = 6 // the race detector makes pools forget
	}
	if n := testing.AllocsPerRun(1000, func() { serve(f, w, r) }); n > budget {
		t.Errorf("a check allocates %v times, want at most %v", n, budget)
	}
}
