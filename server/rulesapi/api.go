// Package rulesapi is the administration of rules over HTTP, on the admin listener: reading and
// editing them, their versions, what they make of a request, and resets.
//
// It finds what a request is about ([API.Route]) before it serves it ([Call.Serve]), so that
// who serves the listener can decide in between who may.
package rulesapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/logsampler"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/store"
)

// A Config says what an [API] is made of. Limiter, Store, ReadRequest, Logger and Registerer have no
// defaults.
type Config struct {
	// Manager edits the rules. Default: nil, those of Limiter are shown and can't be edited.
	Manager *store.Manager
	// RulesFrom says where rules come from that can't be edited, such as "the file rules.yaml".
	// Default: "", which is "the configuration".
	RulesFrom string
	// Limiter has the rules in force.
	Limiter *enforce.Limiter
	// Store has the states of the rules' clients.
	Store stint.Store
	// IPv6Prefix is by how many bits IPv6 clients are counted, as in rules.Options. Default: 0, which is 64.
	IPv6Prefix int
	// ReadRequest reads a request that is to be explained, as an evaluation's body does.
	ReadRequest func(body string) (*rules.Request, error)
	// MaxBodyBytes bounds a body, but for documents of rules: those may have file.MaxBytes.
	MaxBodyBytes int64
	// ReadBody reads a body to its end; release, unless it is nil, is called when its request was answered.
	// A *Refusal is the answer. Default: nil, which is io.ReadAll.
	ReadBody func(io.Reader) (text string, release func(), err error)
	// Logger receives an audit record of every change and of every attempt that was refused, and
	// what went wrong inside.
	Logger *slog.Logger
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
}

// An API answers the administrators' requests. It is safe for concurrent use; make it with
// [New].
type API struct {
	config    Config
	metrics   *metrics
	strangers *logsampler.Sampler // records of refused callers who are not known
	absence   *logsampler.Sampler // lines about requests for rules that could not be read
	reading   reading
}

// New makes an API, or reports that its metrics can't be registered.
func New(config Config) (*API, error) {
	if config.RulesFrom == "" {
		config.RulesFrom = "the configuration"
	}
	m, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, err
	}
	return &API{config: config, metrics: m, strangers: newStrangers(nil), absence: newAbsence(nil), reading: newReading()}, nil
}

// current is the rules as they are kept, or as they are in force where none are kept.
func (a *API) current(ctx context.Context) (store.Revision, error) {
	if a.config.Manager == nil {
		return inForce(a.config.Limiter.Set()), nil
	}
	ctx, cancel := context.WithTimeout(ctx, editTimeout)
	defer cancel()
	snapshot, err := a.config.Manager.Current(ctx)
	return snapshot, away(err)
}

// inForce is a set as a snapshot of no version.
func inForce(set *rules.Set) store.Revision {
	list := set.Rules()
	slices.SortFunc(list, func(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) })
	return store.Revision{Rules: list}
}

// find returns the rule of an ID.
func (a *API) find(ctx context.Context, id string) (rules.Rule, store.ID, error) {
	snapshot, err := a.current(ctx)
	if err != nil {
		return rules.Rule{}, store.ID{}, err
	}
	rule, found := snapshot.Rule(id)
	if !found {
		return rule, snapshot.ID, noRule(id)
	}
	return rule, snapshot.ID, nil
}

// away tells that the rules can't be asked for.
func away(err error) error {
	switch {
	case errors.Is(err, store.ErrUnreadable):
		return unreadable(err)
	case errors.Is(err, context.Canceled):
		return &Refusal{Status: http.StatusServiceUnavailable, Detail: "the rules could not be read"} // which nobody hears
	case isAway(err):
		return &Refusal{Status: http.StatusServiceUnavailable, Detail: "the rules could not be read" + inTime(err) + "; the log says why", cause: err}
	default:
		return err
	}
}

// isAway reports whether an error is that a manager's store could not be asked.
func isAway(err error) bool {
	return errors.Is(err, stint.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// inTime is what to add to what did not happen, if time was the reason.
func inTime(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return " in time"
	}
	return ""
}
