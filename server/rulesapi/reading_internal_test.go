package rulesapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/server/problem"
)

// One large document is read at a time; small ones do not wait, and who leaves does not either.
func TestReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newParseSemaphore()
		leave, err := r.enter(t.Context(), largeBody)
		if err != nil {
			t.Fatal(err)
		}
		if leaveSmall, err := r.enter(t.Context(), largeBody-1); err != nil {
			t.Error(err)
		} else {
			leaveSmall()
		}
		gone, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := r.enter(gone, largeBody)
			left <- err
		}()
		synctest.Wait()
		cancel()
		var failed *problem.Error
		if err := <-left; !errors.As(err, &failed) || failed.Status != http.StatusServiceUnavailable {
			t.Errorf("%v; want 503", err)
		}
		entered := make(chan func())
		go func() {
			leave, _ := r.enter(t.Context(), largeBody)
			entered <- leave
		}()
		synctest.Wait()
		select {
		case <-entered:
			t.Fatal("two large documents at a time")
		default:
		}
		leave()
		(<-entered)()
	})
}

func readAll(_ http.ResponseWriter, r *http.Request, _ int64) (string, func(), error) {
	text, err := io.ReadAll(r.Body)
	return string(text), nil, err
}

// Every document and rule that is large waits.
func TestLargeBodiesWait(t *testing.T) {
	a := &API{config: Config{MaxBodyBytes: 1 << 20, ReadBody: readAll}, parsing: newParseSemaphore()}
	request := func(ctx context.Context) *call {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("[]"+strings.Repeat(" ", largeBody)))
		r.Header.Set("Content-Type", "application/yaml")
		return &call{api: a, w: httptest.NewRecorder(), r: r}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, read := range map[string]func(*call) error{
		"document": func(c *call) error { _, _, err := c.document(); return err },
		"value":    func(c *call) error { _, err := c.value(ruleBody, new(document.Faults)); return err },
	} {
		for range 2 { // the first leaves when it has been read
			if err := read(request(t.Context())); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		leave, err := a.parsing.enter(t.Context(), largeBody)
		if err != nil {
			t.Fatal(err)
		}
		var failed *problem.Error
		if err := read(request(gone)); !errors.As(err, &failed) || failed.Status != http.StatusServiceUnavailable {
			t.Errorf("%s: %v; want 503", name, err)
		}
		leave()
	}
}
