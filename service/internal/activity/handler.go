package activity

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/spell"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// An endpoint answers one path with a document.
type endpoint struct {
	// query are the parameters that it knows; others are refused.
	query []string
	serve func(r *Recorder, ctx context.Context, q problem.Query, a audience) (any, error)
}

// An audience is the caller of an endpoint.
type audience struct {
	// names says that clients are shown by name.
	names bool
	// keysOf are the keys under which rules count a client that the caller names.
	keysOf func(client string) []string
}

// endpoints are those of the paths; all of them only read. Their answers are documents of the wire
// types of this package.
var endpoints = map[string]endpoint{
	PathStats: {[]string{"seconds", "rules", "rule"}, (*Recorder).serveStats},
	PathTop:   {[]string{"limit"}, (*Recorder).serveTop},
	PathDenials: {
		[]string{"scope", "rule", "client", "reason", "shadow", "since", "q", "before", "limit"},
		(*Recorder).serveDenials,
	},
	PathTimeline:  {[]string{"client", "rule", "limit"}, (*Recorder).serveTimeline},
	PathProcesses: {nil, (*Recorder).serveProcesses},
}

// Handlers answer the paths of this package, by their patterns. Their callers are shown clients by name,
// or not: holders of a token are. Else a name is replaced by a text that is the same for the same
// client, and a client can't be asked for.
//
// keysOf are the keys under which a client is counted that a caller asks for, such as the hash of an API key. It must
// be safe for concurrent use. nil stands for the name itself.
func (r *Recorder) Handlers(keysOf func(client string) []string) map[string]problem.Handler[bool] {
	if keysOf == nil {
		keysOf = func(client string) []string { return []string{client} }
	}
	handlers := map[string]problem.Handler[bool]{"GET " + PathEvents: r.serveEvents}
	for path, e := range endpoints {
		handlers["GET "+path] = func(w http.ResponseWriter, req *http.Request, names bool) error {
			q, err := problem.ParseQuery(req.URL.RawQuery, e.query)
			if err != nil {
				return err
			}
			document, err := e.serve(r, req.Context(), q, audience{names, keysOf})
			if err != nil {
				return err
			}
			return problem.Answer(w, req, http.StatusOK, document)
		}
	}
	return handlers
}

// stats are the totals of the last seconds that have ended, and the busiest rules, or the one that
// is named. Seconds that have not ended are left out, so that no rate is too low.
func (r *Recorder) stats(seconds, most int, rule string) Stats {
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

// serveStats answers with totals and rules. The rules are this process's; rates of all processes
// come with them.
func (r *Recorder) serveStats(ctx context.Context, q problem.Query, _ audience) (any, error) {
	seconds, err := q.Integer("seconds", totalSeconds, 1, totalSeconds)
	most, fault := q.Integer("rules", snapshotRules, 0, maxRules)
	if err = cmp.Or(err, fault); err != nil {
		return nil, err
	}
	s := r.stats(int(seconds), int(most), q.Get("rule"))
	s.All = r.view(ctx).rates()
	return s, nil
}

// serveTop answers with the heaviest clients of all processes.
func (r *Recorder) serveTop(ctx context.Context, q problem.Query, a audience) (any, error) {
	n, err := q.Integer("limit", 20, 1, topItems)
	if err != nil {
		return nil, err
	}
	return r.view(ctx).top(int(n), r.mask(a.names)), nil
}

// errNames refuses to look for a client by name, which would confirm a guess. Even the answer that
// a client is not among the denied ones would tell something.
func errNames() error {
	return problem.New(
		http.StatusForbidden,
		"client is given; allowed: with a token only, to whose holders clients are shown by name; "+
			"admin.tokens_file (--admin-tokens-file) says where tokens are",
	)
}

// reasons are those that a denial can have.
var reasons = []string{
	string(stint.ReasonLimit), string(stint.ReasonMinInterval), string(stint.ReasonNever), string(stint.ReasonBlocked),
	string(stint.ReasonBanned),
	string(stint.ReasonMissing), string(stint.ReasonDefault), string(stint.ReasonHolds),
}

// Since reads a time, or a span before now, which is in UTC then. param is what a fault calls it.
func Since(param, text string, now time.Time) (time.Time, error) {
	if since, err := time.Parse(time.RFC3339, text); err == nil {
		return since, nil
	}
	span, err := notation.ParseDuration(text)
	if err != nil || span <= 0 {
		return now, stint.Invalid(param, problem.Short(text), "a time such as 2026-11-23T10:04:11Z, or a span such as 15m")
	}
	return now.Add(-span).UTC(), nil
}

// denialQueryOf reads which denials are wanted.
func denialQueryOf(q problem.Query, a audience, now time.Time) (wanted denialQuery, err error) {
	wanted = denialQuery{
		Rule: q.Get("rule"), Reason: q.Get("reason"), Shadow: q.Get("shadow"), Text: q.Get("q"), Masked: !a.names,
	}
	for _, name := range []string{"rule", "reason", "q"} {
		if text := q.Get(name); len(text) > maxClient { // which other processes are asked for
			return wanted, stint.Invalid(name, problem.Short(text), fmt.Sprintf("at most %d bytes", maxClient))
		}
	}
	if client := q.Get("client"); client != "" {
		if !a.names {
			return wanted, errNames()
		}
		wanted.of(a.keysOf(client))
	}
	if q.Has("shadow") && wanted.Shadow != "true" && wanted.Shadow != "false" {
		return wanted, stint.Invalid("shadow", problem.Short(wanted.Shadow), "true or false")
	}
	if wanted.Reason != "" && !slices.Contains(reasons, wanted.Reason) {
		return wanted, stint.Invalid("reason", problem.Short(wanted.Reason),
			strings.Join(reasons, ", ")+spell.DidYouMean(wanted.Reason, reasons))
	}
	if q.Has("since") {
		since, err := Since("since", q.Get("since"), now)
		if err != nil {
			return wanted, err
		}
		wanted.Since = stint.Instant(since.UnixMicro())
	}
	before, err := q.Integer("before", 0, 1, math.MaxInt64)
	wanted.before = uint64(before)
	return wanted, err
}

// serveDenials answers with what was denied: by all processes, or page by page of this one. Of all processes there is
// one page, as each keeps its own; pages go by numbers of denials, which stay right while denials come.
func (r *Recorder) serveDenials(ctx context.Context, q problem.Query, a audience) (any, error) {
	wanted, err := denialQueryOf(q, a, r.config.Now())
	most, fault := q.Integer("limit", topItems, 1, MaxAsked)
	if err = cmp.Or(err, fault); err != nil {
		return nil, err
	}
	n, d := int(most), Denials{}
	switch scope := q.Get("scope"); {
	case q.Has("scope") && scope != ScopeAll && scope != ScopeProcess:
		return nil, stint.Invalid("scope", problem.Short(scope), "all or process")
	case wanted.before > 0 && scope != ScopeProcess:
		return nil, stint.Invalid("before", wanted.before, "with scope=process only, as each process counts its own")
	case scope == ScopeProcess:
		d = r.pageOf(&wanted, n)
	default:
		if d, err = r.askDenials(ctx, wanted, n); err != nil {
			return nil, err
		}
	}
	r.maskDenials(d.Denials, a.names)
	return d, nil
}

// pageOf is a page of this process's denials.
func (r *Recorder) pageOf(q *denialQuery, n int) Denials {
	d := Denials{Scope: ScopeProcess, Processes: 1}
	d.Kept, d.From = r.known(q)
	d.Denials, d.More = r.denialsOf(q, n)
	d.bound(n)
	if d.More {
		d.Next = d.Denials[len(d.Denials)-1].Seq
	}
	return d
}

// serveTimeline answers with what one client did lately, if it is in the sample.
func (r *Recorder) serveTimeline(_ context.Context, q problem.Query, a audience) (any, error) {
	if !a.names {
		return nil, errNames()
	}
	client := q.Get("client")
	if client == "" {
		return nil, stint.Invalid("client", "", "the client as the top shows it")
	}
	n, err := q.Integer("limit", topItems, 1, 1000)
	if err != nil {
		return nil, err
	}
	t := Timeline{Scope: ScopeProcess, Client: client, Decisions: []Decision{}}
	held := r.Hold()
	t.Sample = held.Sample
	t.Sampled = held.of(a.keysOf(client), func(d Decision) bool {
		if rule := q.Get("rule"); rule != "" && d.Rule != rule {
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
	return t, nil
}

// serveProcesses answers with the processes that share the store.
func (r *Recorder) serveProcesses(ctx context.Context, _ problem.Query, _ audience) (any, error) {
	return r.view(ctx).processes(), nil
}
