package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/registry"
	"github.com/stint-go/stint/server"
)

// A wrong backend answers with an error, once it has one.
type wrong struct {
	registry.Backend
	err atomic.Pointer[error]
}

func (w *wrong) Head(ctx context.Context) (registry.Head, error) {
	if err := w.err.Load(); err != nil {
		return registry.Head{}, *err
	}
	return w.Backend.Head(ctx)
}

func (w *wrong) Versions(ctx context.Context, before int64, n int) ([]registry.Version, error) {
	if err := w.err.Load(); err != nil {
		return nil, *err
	}
	return w.Backend.Versions(ctx, before, n)
}

// What is wrong inside is not told as the caller's mistake, and stands in the log.
func TestWhatIsWrongInsideIsLogged(t *testing.T) {
	garbled := stint.Invalid("the rules in Redis", "WRONGTYPE", "what stint wrote; DEL a b")
	for _, test := range []struct {
		err     error
		status  int
		detail  string
		outcome string
		logged  string // "" is nothing
	}{
		{fmt.Errorf("%w: %w", registry.ErrUnreadable, garbled), 503, "can't be read", "failed", "DEL a b"},
		{errors.New("the cable is loose"), 500, "its log says more", "failed", "the cable is loose"},
		{fmt.Errorf("dialling 192.0.2.9: %w", stint.ErrUnavailable), 503, "", "unconfirmed", ""},
		{context.DeadlineExceeded, 503, "", "unconfirmed", ""},
	} {
		backend := &wrong{Backend: registry.NewMemory()}
		r, err := registry.New(backend, registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := &desk{registry: r, running: run(t, func(c *server.Config) { c.AdminListen, c.Registry = "127.0.0.1:0", r })}
		d.ask("PUT", "/api/v1/rules/a", `{"scope":"global","unlimited":true}`).is(201)
		backend.err.Store(&test.err)
		for _, call := range [][2]string{
			{"GET", "/api/v1/rules"},
			{"GET", "/api/v1/rules/a"},
			{"GET", "/api/v1/rules/a/overrides"},
			{"GET", "/api/v1/rule-versions"},
			{"GET", "/api/v1/rule-versions/1"},
			{"DELETE", "/api/v1/rules/a"},
			{"POST", "/api/v1/rule-versions/0/rollback"},
		} {
			before := len(d.log.String())
			got := d.ask(call[0], call[1], "")
			got.problem(test.status, test.detail)
			if strings.Contains(got.body, "DEL a b") || strings.Contains(got.body, "cable") || strings.Contains(got.body, "192.0.2.9") {
				t.Errorf("%v of %v is told: %s", call, test.err, got.body)
			}
			line := d.log.String()[before:]
			if call[0] == "GET" && test.logged == "" && line != "" || !strings.Contains(line, test.logged) {
				t.Errorf("%v of %v is logged as %q", call, test.err, line)
			}
			if call[0] != "GET" && (!strings.Contains(line, "outcome="+test.outcome+" ") || strings.Count(line, "\n") != 1) {
				t.Errorf("%v of %v is recorded as %q, want outcome %s", call, test.err, line, test.outcome)
			}
		}
	}
}

// However much is wrong with a body, the answer to it is short, and says how much there is.
func TestDetailsAreClipped(t *testing.T) {
	d := newDesk(t, registry.NewMemory(), nil)
	const faults = notation.MaxFaults + 1 // and that there are more
	got := d.ask("PUT", "/api/v1/rules", "["+strings.Repeat("0,", 100_000)+"0]")
	got.problem(400, "body.json:1:2: ")
	var problem api.Problem
	got.into(&problem)
	lines := strings.Split(problem.Detail, "\n")
	if want := fmt.Sprintf("and %d more", faults-(len(lines)-1)); len(problem.Detail) > 16<<10+100 || lines[len(lines)-1] != want {
		t.Errorf("%d lines of %d bytes end with %q, want %q", len(lines), len(problem.Detail), lines[len(lines)-1], want)
	}
	got = d.ask("PUT", "/api/v1/rules/a", `{"`+strings.Repeat("é", 50_000)+`":1}`)
	got.problem(400, "body.json:1:2: ")
	if !strings.HasSuffix(got.body, "éé…\"}\n") || len(got.body) > 16<<10+200 {
		t.Errorf("one long fault is told in %d bytes, which end with %q", len(got.body), got.body[len(got.body)-20:])
	}
}
