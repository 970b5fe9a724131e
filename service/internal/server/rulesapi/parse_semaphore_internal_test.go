package rulesapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server/problem"
)

func readAll(_ http.ResponseWriter, r *http.Request, _ int64) (string, func(), error) {
	text, err := io.ReadAll(r.Body)
	return string(text), nil, err
}

// Every document and rule that is large waits until no other is parsed; small ones do not wait, and a client that leaves does not either.
func TestLargeBodiesWait(t *testing.T) {
	a := &API{config: Config{MaxBodyBytes: 1 << 20, ReadBody: readAll}, parsing: make(chan struct{}, 1)}
	request := func(ctx context.Context) *call {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("[]"+strings.Repeat(" ", largeBody)))
		r.Header.Set("Content-Type", "application/yaml")
		return &call{api: a, w: httptest.NewRecorder(), r: r}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, read := range map[string]func(*call) error{
		"document": func(c *call) error { _, _, err := c.document(false); return err },
		"value":    func(c *call) error { _, err := c.value(ruleBody); return err },
	} {
		for range 2 { // the first leaves when it has been read
			if err := read(request(t.Context())); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		a.parsing <- struct{}{}
		var failed *problem.Error
		if err := read(request(gone)); !errors.As(err, &failed) || failed.Status != http.StatusServiceUnavailable {
			t.Errorf("%s: %v; want 503", name, err)
		}
		small := request(t.Context())
		small.r.Body = io.NopCloser(strings.NewReader("[]"))
		if err := read(small); err != nil {
			t.Errorf("%s: a small one: %v", name, err)
		}
		waiting, read := make(chan error), read
		go func() { waiting <- read(request(t.Context())) }()
		<-a.parsing
		if err := <-waiting; err != nil {
			t.Errorf("%s: one that waited: %v", name, err)
		}
	}
}

// A small document that is checked as a part of many rules waits as a large one does.
func TestPartOfManyRulesWaits(t *testing.T) {
	list := make([]rules.Rule, largeBody/ruleBytes)
	for i := range list {
		list[i] = rules.Rule{ID: fmt.Sprint(i), Scope: []string{rules.Global}, Unlimited: true}
	}
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	limiter := must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set}))(t)
	a := &API{config: Config{ReadBody: readAll, Limiter: limiter}, parsing: make(chan struct{}, 1)}
	a.parsing <- struct{}{}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	read := func(partial bool) error {
		r := httptest.NewRequestWithContext(gone, http.MethodPost, "/", strings.NewReader("[]"))
		r.Header.Set("Content-Type", "application/yaml")
		_, _, err := (&call{api: a, w: httptest.NewRecorder(), r: r}).document(partial)
		return err
	}
	var failed *problem.Error
	if err := read(true); !errors.As(err, &failed) || failed.Status != http.StatusServiceUnavailable {
		t.Errorf("%v; want 503", err)
	}
	if err := read(false); err != nil {
		t.Errorf("alone: %v", err)
	}
}
