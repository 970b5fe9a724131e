package rulesapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/server/problem"
)

// resetTimeout bounds a reset.
const resetTimeout = 10 * time.Second

// resetBody is what the body of a reset may be.
const resetBody = `{"key": CLIENT} for one client, or {"all": true} for all of the rule`

// reset makes a client of a rule as new, or all of them.
func (c *call) reset() error {
	client, err := c.readReset()
	if err != nil {
		return err
	}
	rule, found := c.api.config.Limiter.Set().Rule(c.rule)
	if !found {
		return problem.New(http.StatusNotFound, "there is no rule %q in force", short(c.rule))
	}
	if client == "" {
		return c.resetAll()
	}
	return c.resetClient(&rule, client)
}

// readReset reads which client is to be reset; "" is all, which has to be asked for in so many words:
// who leaves a client out by mistake resets nobody.
func (c *call) readReset() (client string, err error) {
	var faults document.Faults
	body, err := c.value(jsonBody, &faults)
	if err != nil {
		return "", err
	}
	if body.Kind != document.KindMapping && faults.Err() == nil {
		return "", stint.Invalid("the body", document.Verbatim(body.String()), resetBody)
	}
	all, named, allNamed := false, false, false
	faults.Mapping("the body", body, func(f document.Field) bool {
		switch f.Name {
		case "key":
			named = true
			document.Text(&client)(f.Value, func(v document.Value, allowed string) { faults.Invalid("key", v, allowed) })
		case "all":
			allNamed = true
			document.Boolean(&all)(f.Value, func(v document.Value, allowed string) { faults.Invalid("all", v, allowed) })
		default:
			return false
		}
		return true
	}, []string{"key", "all"})
	if err := faults.Err(); err != nil {
		return "", err
	}
	switch {
	case named && allNamed:
		return "", stint.Invalid("the body", document.Verbatim("one with both key and all"), "one of them")
	case !named && !allNamed:
		return "", stint.Invalid("the body", document.Verbatim("without key and all"), resetBody)
	case allNamed && !all:
		return "", stint.Invalid("all", false, "true, for all clients of the rule")
	case named && client == "":
		return "", invalid("key", client, "a client, as an override names it")
	}
	return client, nil
}

// resetClient makes a client as new, under the rule's own limits and under those of its override.
func (c *call) resetClient(rule *rules.Rule, client string) error {
	c.action = "reset_client"
	claims, err := c.api.config.Limiter.Set().ClientClaims(rule.ID, client)
	if err != nil {
		return err
	}
	key, err := rule.ClientKey(client)
	if err != nil {
		return err
	}
	c.about(rule, client)
	ctx, cancel := context.WithTimeout(c.r.Context(), resetTimeout)
	defer cancel()
	for _, claim := range claims {
		d, err := c.api.config.Store.Decide(ctx, stint.Op{Verb: stint.Reset, Claim: claim})
		if err == nil && d.Degraded {
			err = stint.ErrUnavailable
		}
		if err != nil {
			return stateAway(err, "the store did not confirm the reset; whether it was made is not known")
		}
	}
	return c.answer(api.ClientReset{Rule: rule.ID, Key: key, Reset: true})
}

// resetAll clears the state of all clients of the rule.
func (c *call) resetAll() error {
	c.action = "reset_rule"
	done, err := c.resetMany("a whole rule; reset its clients one by one", func(ctx context.Context, r stint.Resetter) error {
		return r.ResetPolicy(ctx, rules.PolicyPrefix+c.rule)
	})
	if err != nil {
		return err
	}
	return c.answer(done)
}

// resetEverything clears the state of all clients of everything: rules, policies, defaults and limiters of programs that
// keep state under the store's prefix.
func (c *call) resetEverything() error {
	var faults document.Faults
	body, err := c.value(jsonBody, &faults)
	if err != nil {
		return err
	}
	all := false
	faults.Mapping("the body", body, func(f document.Field) bool {
		if f.Name == "all" {
			document.Boolean(&all)(f.Value, func(v document.Value, allowed string) { faults.Invalid("all", v, allowed) })
		}
		return f.Name == "all"
	}, []string{"all"})
	if err := faults.Err(); err != nil {
		return err
	}
	if !all {
		return stint.Invalid("the body", document.Verbatim("without all"), `{"all": true}, to clear the state of all clients of everything`)
	}
	done, err := c.resetMany("everything", func(ctx context.Context, r stint.Resetter) error { return r.ResetAll(ctx) })
	if err != nil {
		return err
	}
	return c.answer(done)
}

// resetMany has the store carry out a reset of many clients, and counts what came of it.
func (c *call) resetMany(what string, do func(context.Context, stint.Resetter) error) (done api.RuleReset, err error) {
	start := time.Now()
	err = c.resetStore("the store can't reset "+what, do)
	outcome := outcomeDone
	if err != nil {
		outcome = outcomeOf(err)
	}
	c.api.metrics.resets.WithLabelValues(outcome).Inc()
	return api.RuleReset{Rule: c.rule, By: c.caller.Name, State: api.ResetDone, StartedAt: start.UTC(), EndedAt: time.Now().UTC()}, err
}

func (c *call) resetStore(cannot string, do func(context.Context, stint.Resetter) error) error {
	resetter, ok := c.api.config.Store.(stint.Resetter)
	if !ok {
		return problem.New(http.StatusNotImplemented, "%s", cannot)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), resetTimeout)
	defer cancel()
	err := do(ctx, resetter)
	if errors.Is(err, stint.ErrInvalid) {
		return &problem.Error{Status: http.StatusNotImplemented, Detail: cannot, Cause: err}
	}
	return stateAway(err, "the store did not confirm the reset; whether it was made is not known. Repeat it: that completes it")
}
