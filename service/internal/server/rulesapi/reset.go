package rulesapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// resetTimeout bounds a reset.
const resetTimeout = 10 * time.Second

// resetBody describes the body of a reset.
const resetBody = `{"key": CLIENT} for one client, or {"all": true} for all of the rule`

// readReset reads the client to reset. "" is all clients, which the body must name
// explicitly, so that a client left out by mistake resets nobody.
func (c *call) readReset() (client string, err error) {
	var asked struct {
		Key string `doc:"key"`
		All bool   `doc:"all"`
	}
	body, err := c.readStruct(&asked, resetBody)
	if err != nil {
		return "", err
	}
	_, named := body.Find("key")
	_, all := body.Find("all")
	switch {
	case named && all:
		return "", stint.Invalid("the body", document.Verbatim("one with both key and all"), "one of them")
	case !named && !all:
		return "", stint.Invalid("the body", document.Verbatim("without key and all"), resetBody)
	case all && !asked.All:
		return "", stint.Invalid("all", false, "true, for all clients of the rule")
	case named && asked.Key == "":
		return "", invalid("key", asked.Key, "a client, as an override names it")
	}
	return asked.Key, nil
}

// readStruct reads a body into a struct by its tags. allowed describes the body in errors.
func (c *call) readStruct(into any, allowed string) (body document.Value, err error) {
	if body, err = c.value(jsonBody); err != nil {
		return body, err
	}
	var faults document.Faults
	if body.Kind != document.KindMapping {
		return body, stint.Invalid("the body", document.Verbatim(body.String()), allowed)
	}
	document.Kinds(nil).Read(document.Root("the body", ""), body, into, &faults)
	return body, faults.Err()
}

// reset clears the state of one client of a rule, or of all.
func (c *call) reset() (any, error) {
	client, err := c.readReset()
	if err != nil {
		return nil, err
	}
	rule, found := c.api.config.Limiter.Set().Rule(c.rule)
	if !found {
		return nil, problem.New(http.StatusNotFound, "there is no rule %q in force", problem.Short(c.rule))
	}
	if client == "" {
		c.action = "reset_rule"
		return c.resetMany("a whole rule; reset its clients one by one", stint.Scope{Policy: rules.PolicyPrefix + c.rule})
	}
	c.action = "reset_client"
	key, err := rule.ClientKey(client)
	if err != nil {
		return nil, err
	}
	c.shown = key
	ctx, cancel := context.WithTimeout(c.r.Context(), resetTimeout)
	defer cancel()
	if err := c.api.config.Limiter.ResetClient(ctx, rule.ID, client); err != nil {
		return nil, stateUnreachable(err, "the store did not confirm the reset; whether it was made is not known")
	}
	return adminapi.ClientReset{Rule: rule.ID, Key: key, Reset: true}, nil
}

// resetEverything clears the state of all clients of everything: rules, policies, defaults and limiters of programs
// that keep state under the store's prefix.
func (c *call) resetEverything() (any, error) {
	const allowed = `{"all": true}, to clear the state of all clients of everything`
	var asked struct {
		All bool `doc:"all"`
	}
	if _, err := c.readStruct(&asked, allowed); err != nil {
		return nil, err
	}
	if !asked.All {
		return nil, stint.Invalid("the body", document.Verbatim("without all"), allowed)
	}
	return c.resetMany("everything", stint.Scope{All: true})
}

// resetMany lets the store reset many clients, counts the outcome and answers.
func (c *call) resetMany(what string, scope stint.Scope) (any, error) {
	start := time.Now()
	err := c.resetStore("the store can't reset "+what, scope)
	if err != nil {
		c.api.metrics.resets.WithLabelValues(outcomeOf(err)).Inc()
		return nil, err
	}
	c.api.metrics.resets.WithLabelValues(outcomeDone).Inc()
	return adminapi.RuleReset{
		Rule: c.rule, By: c.caller.Name, State: adminapi.ResetDone, StartedAt: start.UTC(), EndedAt: time.Now().UTC(),
	}, nil
}

// resetStore resets everything in a scope. A store that can't do that at all, which is its
// ErrInvalid, is answered by 501 with cannot.
func (c *call) resetStore(cannot string, scope stint.Scope) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), resetTimeout)
	defer cancel()
	err := c.api.config.Store.ResetAll(ctx, scope)
	if errors.Is(err, stint.ErrInvalid) {
		return &problem.Error{Status: http.StatusNotImplemented, Detail: cannot, Cause: err}
	}
	return stateUnreachable(err,
		"the store did not confirm the reset; whether it was made is not known. Repeat it: that completes it")
}
