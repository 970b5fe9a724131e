// Package rulesapi is the administration of rules over HTTP, on the admin listener: reading and
// editing them, their revisions, explaining their decisions, and resets.
//
// [API.Register] puts all routes on a mux; api.go has their table. A request is one [call]: prepare
// reads the path, the query and the conditions, a method of the route serves it, and note records
// what changed in the audit. edit.go changes rules, under the ETags that http.go reads;
// revisions.go has the history; overrides.go one client's limits; read.go lists and explains;
// reset.go and holds.go change the state of clients.
//
// Edits are made by the rulestore.Manager, which repeats them if another one came first: so the
// function that edits may be called several times, and must have no effect but on its draft. An
// edit that was not confirmed may have been made; the answer says so.
package rulesapi

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/logsampler"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// A Config says what an [API] is made of. Limiter, Store, ReadRequest, ReadBody, Logger and Registerer have no
// defaults.
//
// All functions are called by many goroutines at once.
type Config struct {
	// Manager edits the rules. Default: nil, the rules of Limiter are shown and can't be edited.
	Manager *rulestore.Manager
	// RulesFrom says where rules come from that can't be edited, such as "the file rules.yaml".
	// Default: "", which is "the configuration".
	RulesFrom string
	// Forgotten says that edited rules are lost when the process ends. Default: false.
	Forgotten bool
	// Limiter has the rules in force.
	Limiter *enforce.Limiter
	// Loaded is when the rules of Limiter were put in force; the zero time before any were read. It is asked only
	// without a Manager.
	Loaded func() time.Time
	// Store has the state of the rules' clients.
	Store stint.Store
	// Policies are those by which the service decides about keys that its callers name, with their names; those of
	// defaults are called by their algorithms.
	Policies func() iter.Seq2[string, *stint.Policy]
	// IPv6Prefix is by how many bits IPv6 clients are counted, as in rules.Options. Default: 0, which
	// is 64.
	IPv6Prefix int
	// Clustered says that the state is on a cluster, which is so while the process runs.
	Clustered bool
	// ReadRequest reads the request to explain from a body like that of an evaluation.
	ReadRequest func(body string) (*rules.Request, error)
	// MaxBodyBytes bounds a body; documents of rules may have file.MaxBytes instead.
	MaxBodyBytes int64
	// ReadBody reads a body of at most so many bytes. release, unless it is nil, is called after the
	// request is answered.
	ReadBody func(w http.ResponseWriter, r *http.Request, most int64) (text string, release func(), err error)
	// Logger receives an audit record of every change and of every refused attempt, and
	// internal errors.
	Logger *slog.Logger
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
}

// An API answers the administrators' requests. It is safe for concurrent use; make it with [New].
type API struct {
	config  Config
	clients *clientip.Resolver // says by which keys addresses are counted
	metrics *metrics
	// tellForgotten logs, once, that edits are lost when the process ends.
	tellForgotten sync.Once
	// unknownCallers samples records of refused callers without a name.
	unknownCallers *logsampler.Sampler
	// unreachableLines samples lines about requests for rules that could not be read.
	unreachableLines *logsampler.Sampler
	// parsing holds one while a large document is parsed, since that takes many times its bytes.
	parsing chan struct{}
}

// New makes an API, or reports that IPv6Prefix is none, or that its metrics can't be registered.
func New(config Config) (*API, error) {
	if config.RulesFrom == "" {
		config.RulesFrom = "the configuration"
	}
	clients, err := clientip.New(clientip.Config{IPv6Prefix: config.IPv6Prefix})
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, err
	}
	return &API{
		config: config, clients: clients, metrics: m, parsing: make(chan struct{}, 1),
		unknownCallers: logsampler.New(10, time.Second, nil), unreachableLines: logsampler.New(10, 10*time.Second, nil),
	}, nil
}

// A Place says what becomes of edits.
type Place struct {
	// From says where rules come from, such as "the files of /etc/stint/rules".
	From string `json:"from"`
	// Editable says that rules can be edited here.
	Editable bool `json:"editable"`
	// Forgotten says that edits are lost when the process ends.
	Forgotten bool `json:"forgotten"`
}

// Place says what becomes of edits.
func (a *API) Place() Place {
	return Place{From: a.config.RulesFrom, Editable: a.config.Manager != nil, Forgotten: a.config.Forgotten}
}

// A route is one method of a path. action names it in the audit and in metrics; query are the
// parameters that it takes.
type route struct {
	pattern, action string
	serve           func(*call) error
	// changes says that it changes rules or the state of clients: it needs role write, and is
	// recorded.
	changes bool
	query   []string
}

// routes are all routes. Their patterns are net/http's, below /api/v1/.
var routes = []route{
	{"POST rules/validate", "validate", answers((*call).validate), false, []string{"partial"}},
	{"POST rules/explain", "explain", answers((*call).explain), false, nil},
	{"GET clients/{client}", "explain_client", answers((*call).explainClient), false, nil},
	{"GET rules", "list", (*call).list, false, []string{"enabled", "set", "label", "prefix", "after", "limit"}},
	{"GET rule-statistics", "statistics", answers((*call).statistics), false, nil},
	{"PUT rules", "replace_all", answers((*call).replaceAll), true, []string{"comment"}},
	{"POST rules", "create", (*call).create, true, []string{"comment"}},
	{
		"PATCH rules", "patch_selected", answers((*call).patchSelected), true,
		[]string{"comment", "enabled", "set", "label", "prefix"},
	},
	{
		"DELETE rules", "delete_selected", answers((*call).removeSelected), true,
		[]string{"comment", "enabled", "set", "label", "prefix"},
	},
	{"GET rules/{rule}", "get", (*call).get, false, nil},
	{"PUT rules/{rule}", "put", (*call).put, true, []string{"comment"}},
	{"PATCH rules/{rule}", "patch", (*call).patch, true, []string{"comment"}},
	{"DELETE rules/{rule}", "delete", (*call).remove, true, []string{"comment"}},
	{"GET rules/{rule}/overrides", "list_overrides", (*call).listOverrides, false, nil},
	{"GET rules/{rule}/overrides/{client}", "get_override", (*call).get, false, nil},
	{"PUT rules/{rule}/overrides/{client}", "put_override", (*call).putOverride, true, []string{"comment", "reset"}},
	{"DELETE rules/{rule}/overrides/{client}", "delete_override", (*call).remove, true, []string{"comment"}},
	{"POST rules/{rule}/reset", "reset", answers((*call).reset), true, nil},
	{"POST reset", "reset_all", answers((*call).resetEverything), true, nil},
	{"DELETE holds/{id}", "drop_hold", answers((*call).dropHold), true, []string{"client", "key"}},
	{"GET rule-revisions", "list_revisions", answers((*call).listRevisions), false, []string{"before", "limit", "rule"}},
	{"GET rule-revisions/{number}", "get_revision", (*call).getRevision, false, []string{"since"}},
	{"POST rule-revisions/{number}/rollback", "rollback", answers((*call).rollback), true, []string{"comment", "rule"}},
}

// answers has a call answered with what do returns, as JSON.
func answers[A any](do func(*call) (A, error)) func(*call) error {
	return func(c *call) error {
		answer, err := do(c)
		if err != nil {
			return err
		}
		return problem.Answer(c.w, c.r, http.StatusOK, answer)
	}
}

// Register has the API answer its paths on a listener. Calls that change something and refused calls are recorded in
// the audit; of other calls the log has internal errors.
func (a *API) Register(mux *problem.Mux[Caller]) {
	for i := range routes {
		t := &routes[i]
		method, path, _ := strings.Cut(t.pattern, " ")
		mux.Handle(method+" /api/v1/"+path, func(w http.ResponseWriter, r *http.Request, caller Caller) error {
			c := &call{
				route: t, api: a, w: w, r: r, caller: caller, action: t.action,
				rule: r.PathValue("rule"), client: r.PathValue("client"),
			}
			return c.run()
		})
	}
}

// A Caller is the sender of a request.
type Caller struct {
	// Name identifies the caller, such as a token's name. "" is unknown.
	Name string
	// From is the address of the caller's end of the connection.
	From string
	// Writes says that the caller may change rules and state, and sees API keys in overrides as they are. Default: false,
	// it sees their SHA-256, as in the keys of state.
	Writes bool
	// Fault is the reason to refuse all requests of the caller. Default: nil, they are served.
	Fault error
}

// A call serves one request. It is of one goroutine.
type call struct {
	*route
	api    *API
	w      http.ResponseWriter
	r      *http.Request
	caller Caller
	// rule is the ID in the path; "" is none.
	rule string
	// client is named as overrides name it.
	client     string
	number     int64 // of a revision
	query      problem.Query
	conditions conditions

	action string
	// shown is the client as the audit names it.
	shown string
	// hold is the ID of one.
	hold     string
	revision int64
	// target is the number of the revision that the call goes back to; "" is none.
	target string
	// texts are the rules that the call has changed, by ID, as file.JSON writes them.
	texts   map[string][]byte
	outcome string
	// release gives back the body's memory; nil is nothing.
	release func()
}

// run refuses the caller, or serves the request and records it. A refused change is counted with
// its action.
func (c *call) run() error {
	err := c.caller.Fault
	if err == nil && c.changes && !c.caller.Writes {
		err = problem.New(http.StatusForbidden, "the token has role read; allowed: role write")
	}
	if err != nil {
		if c.changes {
			c.api.metrics.edits.WithLabelValues(c.action, outcomeOf(err)).Inc()
		}
		c.api.refused(c.r.Context(), c.caller, c.action, c.rule, err)
		return err
	}
	if err = c.prepare(); err == nil {
		err = c.serve(c)
	}
	if c.release != nil {
		c.release()
	}
	if c.changes {
		c.note(err)
	} else if cause := hidden(err); cause != nil {
		c.api.report(c.r.Context(), c.caller, c.action, c.rule, err, cause)
	}
	return err
}

// prepare reads the path, the query and the conditions.
func (c *call) prepare() (err error) {
	if text := c.r.PathValue("number"); text != "" {
		if c.number, err = parseNumber(text); err != nil {
			return problem.NoPath(c.r.URL.Path)
		}
	}
	if c.query, err = problem.ParseQuery(c.r.URL.RawQuery, c.route.query); err != nil {
		return err
	}
	c.conditions, err = conditionsOf(c.r.Header)
	return err
}

// current returns the rules of the store, or without a manager the rules in force.
func (c *call) current() (rulestore.Revision, error) {
	if c.api.config.Manager == nil {
		list := c.api.config.Limiter.Set().Rules()
		slices.SortStableFunc(list, func(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) })
		return rulestore.Revision{Rules: list}, nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), editTimeout)
	defer cancel()
	now, err := c.api.config.Manager.Current(ctx)
	return now, unreachable(err)
}

// find returns the rule of the path.
func (c *call) find() (rules.Rule, rulestore.ID, error) {
	now, err := c.current()
	if err != nil {
		return rules.Rule{}, rulestore.ID{}, err
	}
	rule, found := now.Rule(c.rule)
	if !found {
		return rule, now.ID, noRule(c.rule)
	}
	return rule, now.ID, nil
}

// unavailable is a 503 with its cause for the log.
func unavailable(cause error, detail string) error {
	return &problem.Error{Status: http.StatusServiceUnavailable, Detail: detail, Cause: cause}
}

// unreachable turns the error of a read of rules into one with a status.
func unreachable(err error) error {
	switch {
	case errors.Is(err, rulestore.ErrUnreadable):
		return unavailable(err, "the stored rules can't be read; nothing was changed. The log says more")
	case errors.Is(err, context.Canceled):
		return problem.New(http.StatusServiceUnavailable, "the rules could not be read") // the caller is gone
	case isUnreachable(err):
		return unavailable(err, "the rules could not be read"+inTime(err)+"; the log says why")
	default:
		return err
	}
}

// isUnreachable reports whether the manager's store did not answer.
func isUnreachable(err error) bool {
	return errors.Is(err, stint.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled)
}

// inTime returns " in time" if an error is a timeout, to be added to a message.
func inTime(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return " in time"
	}
	return ""
}

// stateUnreachable turns the error of a store of state that did not answer into a 503 with this
// detail.
func stateUnreachable(err error, detail string) error {
	if errors.Is(err, stint.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return problem.New(http.StatusServiceUnavailable, "%s", detail)
	}
	return err
}

// noRule is answered 404.
func noRule(id string) error {
	return problem.New(http.StatusNotFound, "there is no rule %q", problem.Short(id))
}

// invalid is the fault of a parameter.
func invalid(param, value, allowed string) error {
	return stint.Invalid(param, problem.Short(value), allowed)
}
