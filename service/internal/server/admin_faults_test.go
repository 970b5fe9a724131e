package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// A wrong store answers with an error, once it has one, and keeps only revisions from first on.
type wrong struct {
	rulestore.Store
	err, put atomic.Pointer[error]
	first    atomic.Int64
}

func (w *wrong) Put(ctx context.Context, expected rulestore.ID, next *rulestore.Revision) error {
	if err := w.put.Load(); err != nil {
		return *err
	}
	return w.Store.Put(ctx, expected, next)
}

func (w *wrong) Head(ctx context.Context) (rulestore.ID, error) {
	if err := w.err.Load(); err != nil {
		return rulestore.ID{}, *err
	}
	return w.Store.Head(ctx)
}

func (w *wrong) Load(ctx context.Context, number int64) (rulestore.Revision, error) {
	if err := w.err.Load(); err != nil {
		return rulestore.Revision{}, *err
	} else if number > 0 && number < w.first.Load() {
		return rulestore.Revision{}, rulestore.ErrNotKept
	}
	return w.Store.Load(ctx, number)
}

func (w *wrong) History(ctx context.Context, before int64, n int) ([]rulestore.Info, error) {
	if err := w.err.Load(); err != nil {
		return nil, *err
	}
	return w.Store.History(ctx, before, n)
}

// newWrongFixture runs a server on rules of a store, which it does not follow.
func newWrongFixture(t *testing.T, kept rulestore.Store) *adminFixture {
	t.Helper()
	r := must.Get(rulestore.NewManager(kept, rulestore.Options{}))(t)
	return &adminFixture{manager: r, running: run(t, func(c *server.Config) { c.AdminListen, c.Manager = "127.0.0.1:0", r })}
}

// What is wrong inside is not told as the caller's mistake, and stands in the log.
func TestWhatIsWrongInsideIsLogged(t *testing.T) {
	garbled := stint.Invalid("the rules in Redis", "WRONGTYPE", "what stint wrote; DEL a b")
	for _, test := range []struct {
		err     error
		status  int
		detail  string
		outcome string
		logged  string
	}{
		{fmt.Errorf("%w: %w", rulestore.ErrUnreadable, garbled), 503, "can't be read", "failed", "DEL a b"},
		{errors.New("the cable is loose"), 500, "log says more", "failed", "the cable is loose"},
		{fmt.Errorf("dialling 192.0.2.9: %w", stint.ErrUnavailable), 503, "the rules could not be read", "failed", "192.0.2.9"},
		{context.DeadlineExceeded, 503, "the rules could not be read in time", "failed", "deadline exceeded"},
	} {
		kept := &wrong{Store: rulestore.NewMemory()}
		d := newWrongFixture(t, kept)
		d.ask("PUT", "/api/v1/rules/a", `{"scope":"global","unlimited":true}`).is(201)
		kept.err.Store(&test.err)
		for _, call := range [][2]string{
			{"GET", "/api/v1/rules"},
			{"GET", "/api/v1/rules/a"},
			{"GET", "/api/v1/rules/a/overrides"},
			{"GET", "/api/v1/rule-statistics"},
			{"GET", "/api/v1/rule-revisions"},
			{"GET", "/api/v1/rule-revisions/1"},
			{"DELETE", "/api/v1/rules/a"},
			{"POST", "/api/v1/rule-revisions/0/rollback"},
		} {
			before := len(d.log.String())
			got := d.ask(call[0], call[1], "")
			got.problem(test.status, test.detail)
			if strings.Contains(got.body, "DEL a b") || strings.Contains(got.body, "cable") || strings.Contains(got.body, "192.0.2.9") {
				t.Errorf("%v of %v is told: %s", call, test.err, got.body)
			}
			line := d.log.String()[before:]
			says(t, line, test.logged)
			if call[0] != "GET" && (!strings.Contains(line, "outcome="+test.outcome+" ") || strings.Count(line, "\n") != 1) {
				t.Errorf("%v of %v is recorded as %q, want outcome %s", call, test.err, line, test.outcome)
			}
			if call[0] == "DELETE" && test.detail == "the rules could not be read" {
				got.problem(503, "nothing was changed")
			}
		}
		kept.err.Store(nil)
		d.ask("GET", "/api/v1/rules/a", "").is(200)
	}
}

// An edit that was refused is told from one that may have been made, and the log says why, without
// what is secret.
func TestEditsThatFailAreLogged(t *testing.T) {
	const url = "dialling redis://ann:s3cret@192.0.2.9:6379"
	for _, test := range []struct {
		err     error
		detail  string
		outcome string
		logged  string
	}{
		{
			fmt.Errorf("%w: %w: OOM command not allowed", rulestore.ErrRefused, stint.ErrUnavailable),
			"the server that keeps the rules refused the edit; nothing was changed. The log says why", "failed", "OOM command not allowed",
		},
		{
			fmt.Errorf("%s: %w", url, stint.ErrUnavailable),
			`"the edit was not confirmed; GET /api/v1/rule-revisions shows whether it was made"`, "unconfirmed", "dialling redis://redacted@192.0.2.9:6379",
		},
		{
			fmt.Errorf("%s: %w", url, context.DeadlineExceeded),
			"the edit was not confirmed in time; GET /api/v1/rule-revisions shows whether it was made", "unconfirmed", "dialling redis://redacted@192.0.2.9:6379",
		},
	} {
		kept := &wrong{Store: rulestore.NewMemory()}
		d := newWrongFixture(t, kept)
		kept.put.Store(&test.err)
		got := d.ask("PUT", "/api/v1/rules/a", `{"scope":"global","unlimited":true}`)
		got.problem(503, strings.Trim(test.detail, `"`))
		if !strings.Contains(got.body, test.detail) || strings.Contains(got.body, "192.0.2.9") || strings.Contains(got.body, "OOM") {
			t.Errorf("%v is told as %s", test.err, got.body)
		}
		lines := d.auditLines()
		if len(lines) != 1 || !strings.Contains(lines[0], " outcome="+test.outcome+" ") || !strings.Contains(lines[0], test.logged) || strings.Contains(lines[0], "s3cret") {
			t.Errorf("%v is recorded as %q", test.err, lines)
		}
	}
}

// Repeated requests for rules that can't be read do not fill the log.
func TestAbsenceDoesNotFillTheLog(t *testing.T) {
	kept := &wrong{Store: rulestore.NewMemory()}
	d := newWrongFixture(t, kept)
	away := stint.ErrUnavailable
	kept.err.Store(&away)
	begun := time.Now()
	for range 100 {
		d.ask("GET", "/api/v1/rules", "").problem(503, "the rules could not be read")
	}
	most := 10 + int(time.Since(begun)/(10*time.Second))
	if lines := strings.Count(d.log.String(), "a request failed"); lines < 10 || lines > most {
		t.Errorf("%d lines, want 10 to %d", lines, most)
	}
}

// However much is wrong with a body, the answer to it is short, and says how much there is.
func TestDetailsAreClipped(t *testing.T) {
	t.Parallel()
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	const faults = document.MaxFaults + 1 // and that there are more
	got := d.ask("PUT", "/api/v1/rules", "["+strings.Repeat("0,", 2*document.MaxFaults)+"0]")
	got.problem(400, "body.json:1:2: ")
	var problem api.Problem
	got.into(&problem)
	lines := strings.Split(problem.Detail, "\n")
	if want := fmt.Sprintf("and %d more", faults-(len(lines)-1)); len(problem.Detail) > 16<<10+100 || lines[len(lines)-1] != want {
		t.Errorf("%d lines of %d bytes end with %q, want %q", len(lines), len(problem.Detail), lines[len(lines)-1], want)
	}
	got = d.ask("PUT", "/api/v1/rules/a", `{"`+strings.Repeat("é", 50_000)+`":1}`)
	got.problem(400, "body.json:1:2: ")
	if !strings.Contains(got.body, `éé…\" is not a name in the rule; allowed: id, `) || len(got.body) > 1<<10 {
		t.Errorf("one long fault is told in %d bytes: %.1000s", len(got.body), got.body)
	}
}

func TestRevisionsThatAreNotKept(t *testing.T) {
	kept := &wrong{Store: rulestore.NewMemory()}
	d := newAdminFixture(t, kept, nil)
	for i := range 60 {
		d.ask("PUT", "/api/v1/rules/a", fmt.Sprintf(`{"priority":%d,"scope":"global","unlimited":true}`, i+1)).is(map[bool]int{true: 201, false: 200}[i == 0])
	}
	var list adminapi.RuleRevisionList
	d.ask("GET", "/api/v1/rule-revisions?limit=60", "").is(200).into(&list) // more than are read at a time
	if len(list.Revisions) != 60 || list.Revisions[59].Revision != 1 || list.Next != 0 {
		t.Errorf("%d revisions, then %d", len(list.Revisions), list.Next)
	}
	kept.first.Store(3)
	d.ask("GET", "/api/v1/rule-revisions/2", "").problem(410, "revision 2, or the revision that it is compared with, is no longer kept")
	d.ask("GET", "/api/v1/rule-revisions/0", "").problem(404, "no revision 0")
	d.ask("POST", "/api/v1/rule-revisions/1/rollback", "").problem(410)
	d.ask("GET", "/api/v1/rule-revisions/3", "").problem(410, "that it is compared with")
	d.ask("GET", "/api/v1/rule-revisions/3?since=0", "").is(200)
	d.ask("POST", "/api/v1/rule-revisions/3/rollback", "").is(200)
	says(t, d.ask("GET", "/api/v1/rules/a", "").body, `"priority":3`)
}
