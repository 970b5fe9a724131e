package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server"
)

func TestPanic(t *testing.T) {
	f := newFixture(t, nil)
	f.store.enter = func(context.Context) { panic("a secret of the store") }
	got := f.get(check + "?key=k")
	got.problem(500)
	if strings.Contains(got.body, "secret") || strings.Contains(got.body, ".go") {
		t.Errorf("the response tells what went wrong inside: %s", got.body)
	}
	if f.log.lines() != 1 || !strings.Contains(f.log.String(), "a secret of the store") {
		t.Errorf("the log, want one line that says what:\n%s", f.log)
	}
}

// surviving puts the fixture's store into one of package failover.
func surviving(t *testing.T, mode failover.Mode) func(*server.Config) {
	return func(c *server.Config) {
		away := c.Store.(*store)
		local := memstore.New(memstore.Config{Now: func() time.Time { return time.UnixMicro(away.now.Load()) }})
		store, err := failover.New(away, failover.Config{Mode: mode, Local: local, Instances: func() int { return 1 }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		c.Store = store
	}
}

// A client that hangs up says nothing about the store.
func TestClientGone(t *testing.T) {
	f := newFixture(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, check+"?key=k", nil).WithContext(ctx)
	f.do(r).problem(503, "the client")
	if f.log.lines() != 0 {
		t.Errorf("the log:\n%s", f.log)
	}
	if got := f.get(apipath.Metrics); !strings.Contains(got.body, "rate_limiter_store_errors_total 0") {
		t.Error("a client that hung up is counted as a failure of the store")
	}
}

// A store that is back decides again.
func TestStoreComesBack(t *testing.T) {
	f := newFixture(t, surviving(t, failover.Open))
	f.store.fail(errors.New("no route"))
	if c := f.get(check + "?key=k").check(); !c.Degraded {
		t.Errorf("without the store: %+v", c)
	}
	f.store.fail(nil)
	eventually(t, func() bool {
		c := f.get(check + "?key=k").check()
		return !c.Degraded && c.Remaining == 99
	})
}
