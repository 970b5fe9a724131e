package activity

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/server/problem"
)

// A Caller is who asks.
type Caller struct {
	// Names says that clients are shown by name, to holders of a token. Default: false, a name is replaced by a
	// text that is the same for the same client, and a client can't be asked for.
	Names bool
}

// An Authorize tells who sent a request, or why it is refused, by an error that has a status by problem.Of.
type Authorize func(r *http.Request) (Caller, error)

// An endpoint answers one path, with a document unless it writes the answer itself.
type endpoint struct {
	query []string // the parameters that it knows
	serve func(r *Recorder, q query, caller Caller, req *http.Request) (any, error)
}

func endpointOf(path string) (endpoint, bool) {
	switch path {
	case PathStats:
		return endpoint{[]string{"seconds", "rules", "rule"}, serveStats}, true
	case PathTop:
		return endpoint{[]string{"limit"}, serveTop}, true
	case PathDenials:
		return endpoint{[]string{"scope", "rule", "client", "reason", "q", "before", "limit"}, serveDenials}, true
	case PathTimeline:
		return endpoint{[]string{"client", "rule", "limit"}, serveTimeline}, true
	case PathProcesses:
		return endpoint{nil, serveProcesses}, true
	case PathEvents:
		return endpoint{}, true
	default:
		return endpoint{}, false
	}
}

// Serves reports whether a path is one of the handler's.
func Serves(path string) bool {
	_, known := endpointOf(path)
	return known
}

// Handler serves the paths of this package to those whom authorize admits. Errors are problem documents.
func (r *Recorder) Handler(authorize Authorize) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := r.serve(w, req, authorize); err != nil {
			problem.Write(w, err)
		}
	})
}

func (r *Recorder) serve(w http.ResponseWriter, req *http.Request, authorize Authorize) error {
	caller, err := authorize(req)
	if err != nil {
		return err
	}
	e, known := endpointOf(req.URL.Path)
	if !known {
		return problem.NoPath(req.URL.Path)
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return problem.Method(req.Method, "GET, HEAD")
	}
	q, err := parseQuery(req.URL.RawQuery, e.query)
	if err != nil {
		return err
	}
	if e.serve == nil {
		if req.Method == http.MethodHead {
			return problem.Method(req.Method, "GET")
		}
		return r.serveEvents(w, req, caller)
	}
	document, err := e.serve(r, q, caller, req)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(text.Len()))
	if req.Method == http.MethodGet {
		_, _ = w.Write(text.Bytes()) // a client that is gone has no use for the error
	}
	return nil
}

// A query is the parameters of a request, each once.
type query map[string]string

func parseQuery(text string, known []string) (query, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, stint.Invalid("query", short(text), "NAME=VALUE, percent-encoded, joined by &")
	}
	q := query{}
	for name, all := range values {
		if !slices.Contains(known, name) {
			allowed := "none"
			if len(known) > 0 {
				allowed = strings.Join(known, ", ")
			}
			return nil, stint.Invalid("parameter", short(name), allowed)
		}
		if len(all) > 1 {
			return nil, stint.Invalid("parameter", name, "once")
		}
		q[name] = all[0]
	}
	return q, nil
}

// integer reads a parameter between bounds; without it, it is otherwise.
func (q query) integer(name string, otherwise, least, most uint64) (uint64, error) {
	text, given := q[name]
	if !given {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, stint.Invalid(name, short(text), fmt.Sprintf("%d to %d", least, most))
	}
	return n, nil
}

func short(text string) string {
	const most = 64
	return clip.To(most, text)
}

// stats are the totals of the last seconds that have ended, and the busiest rules, or the one that is named.
func (r *Recorder) stats(seconds, most int, rule string) Stats {
	r.flush()
	now, figures := r.now(), r.storeFigures()
	second := uint32(now / 1e6)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stats{
		Scope: ScopeProcess, Process: r.config.Process.Name, At: now, Rules: []RuleSeries{},
		Totals: r.totals.series(second-uint32(seconds), seconds), Store: r.changes.store(), Changes: r.changes.list(0),
	}
	show := func(series *ruleSeries) RuleSeries {
		n := min(seconds, ruleSeconds)
		minutes := seriesOf(series.minutes[:], second/60-ruleMinutes+1, ruleMinutes, 60)
		shown := series.show(second-uint32(n), n)
		shown.Minutes = &minutes
		return shown
	}
	s.Store.Figures = figures
	s.Others = show(&r.rules.others)
	for _, known := range r.rules.busiest(second / 60) {
		if len(s.Rules) < most && (rule == "" || rule == known.id) {
			s.Rules = append(s.Rules, show(known))
		}
	}
	return s
}

// storeFigures are the store's, nil if they are not known.
func (r *Recorder) storeFigures() *StoreFigures {
	if r.config.StoreFigures == nil {
		return nil
	}
	figures := r.config.StoreFigures()
	return &figures
}

func serveStats(r *Recorder, q query, _ Caller, req *http.Request) (any, error) {
	seconds, err := q.integer("seconds", totalSeconds, 1, totalSeconds)
	if err != nil {
		return nil, err
	}
	most, err := q.integer("rules", snapshotRules, 0, maxRules)
	if err != nil {
		return nil, err
	}
	s := r.stats(int(seconds), int(most), q["rule"])
	v := r.view(req.Context())
	s.All = v.rates()
	return s, nil
}

func serveTop(r *Recorder, q query, caller Caller, req *http.Request) (any, error) {
	n, err := q.integer("limit", 20, 1, topItems)
	if err != nil {
		return nil, err
	}
	v := r.view(req.Context())
	return v.top(int(n), func(client string) string { return r.mask(caller.Names, client) }), nil
}

func errNames() error {
	return problem.New(http.StatusForbidden, "client is given; allowed: with a token only, to whose holders clients are shown by name")
}

func serveDenials(r *Recorder, q query, caller Caller, req *http.Request) (any, error) {
	wanted := denialQuery{rule: q["rule"], client: q["client"], reason: q["reason"], text: q["q"], masked: !caller.Names}
	if wanted.client != "" && !caller.Names {
		return nil, errNames()
	}
	n, err := q.integer("limit", topItems, 1, 1000)
	if err != nil {
		return nil, err
	}
	if wanted.before, err = q.integer("before", 0, 1, 1<<63); err != nil {
		return nil, err
	}
	clientOf := func(client string) string { return r.mask(caller.Names, client) }
	switch scope, given := q["scope"]; {
	case given && scope != ScopeAll && scope != ScopeProcess:
		return nil, stint.Invalid("scope", short(scope), "all or process")
	case wanted.before > 0 && scope != ScopeProcess:
		return nil, stint.Invalid("before", strconv.FormatUint(wanted.before, 10), "with scope=process only, as each process counts its own")
	case scope != ScopeProcess:
		v := r.view(req.Context())
		return v.denials(wanted, int(n), clientOf), nil
	}
	r.flush()
	r.mu.Lock()
	found, more := r.denialsOf(wanted, int(n))
	r.mu.Unlock()
	d := Denials{Scope: ScopeProcess, Processes: 1, Denials: found}
	if more {
		d.Next = found[len(found)-1].Seq
	}
	for i := range found {
		found[i].Client = clientOf(found[i].Client)
	}
	return d, nil
}

func serveTimeline(r *Recorder, q query, caller Caller, _ *http.Request) (any, error) {
	if !caller.Names {
		return nil, errNames()
	}
	client := q["client"]
	if client == "" {
		return nil, stint.Invalid("client", "", "the client as the top shows it")
	}
	n, err := q.integer("limit", topItems, 1, 1000)
	if err != nil {
		return nil, err
	}
	t := Timeline{Scope: ScopeProcess, Client: client, Decisions: []Decision{}}
	t.Sample = r.recentOf(client, func(d Decision) bool {
		if rule := q["rule"]; rule != "" && d.Rule != rule {
			return true
		}
		if len(t.Decisions) == int(2*n) { // the older half is not wanted
			t.Decisions = append(t.Decisions[:0], t.Decisions[n:]...)
		}
		t.Decisions = append(t.Decisions, d)
		return true
	})
	slices.SortStableFunc(t.Decisions, func(a, b Decision) int { return cmp.Compare(b.At, a.At) })
	t.Decisions = t.Decisions[:min(len(t.Decisions), int(n))]
	t.Sampled = r.isSampled(client, t.Sample)
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Denials, _ = r.denialsOf(denialQuery{client: client, rule: q["rule"]}, int(n))
	return t, nil
}

func serveProcesses(r *Recorder, _ query, _ Caller, req *http.Request) (any, error) {
	v := r.view(req.Context())
	return v.processes(), nil
}
