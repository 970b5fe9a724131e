package rulesapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint/rules/notation"
)

// One large document is read at a time; small ones do not wait, and who leaves does not either.
func TestReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReading()
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
		var refusal *Refusal
		if err := <-left; !errors.As(err, &refusal) || refusal.Status != http.StatusServiceUnavailable {
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

// Every document and rule that is large waits.
func TestLargeBodiesWait(t *testing.T) {
	a := &API{config: Config{MaxBodyBytes: 1 << 20}, reading: newReading()}
	call := func(ctx context.Context) *Call {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("[]"+strings.Repeat(" ", largeBody)))
		r.Header.Set("Content-Type", "application/yaml")
		return &Call{api: a, w: httptest.NewRecorder(), r: r}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, read := range map[string]func(*Call) error{
		"document": func(c *Call) error { _, _, err := c.document(); return err },
		"value":    func(c *Call) error { _, err := c.value(ruleBody, new(notation.Faults)); return err },
	} {
		for range 2 { // the first leaves when it has been read
			if err := read(call(t.Context())); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		leave, err := a.reading.enter(t.Context(), largeBody)
		if err != nil {
			t.Fatal(err)
		}
		var refusal *Refusal
		if err := read(call(gone)); !errors.As(err, &refusal) || refusal.Status != http.StatusServiceUnavailable {
			t.Errorf("%s: %v; want 503", name, err)
		}
		leave()
	}
}
