package httplimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
)

// A limiter that is the zero value is refused when the middleware is made, and by a request that gets one.
func TestZeroLimiter(t *testing.T) {
	_, err := httplimit.New(httplimit.Config{Limiter: &stint.Limiter{}})
	if want := `stint: Limiter is "the zero value"; allowed: one that stint.New or NewLimiter made`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	var failed error
	m := must.Get(httplimit.New(httplimit.Config{
		LimiterOf: func(*http.Request) (*stint.Limiter, error) { return new(stint.Limiter), nil },
		Failed:    func(_ *http.Request, err error) { failed = err },
	}))(t)
	w := httptest.NewRecorder()
	m.Wrap(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if w.Code != http.StatusServiceUnavailable || !errors.Is(failed, stint.ErrUnavailable) {
		t.Errorf("status %d, error %v", w.Code, failed)
	}
}
