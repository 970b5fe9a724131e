package rulesapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// resetTimeout bounds the reset of a client, and the wait for a reset that is cancelled.
const resetTimeout = 10 * time.Second

// resetBody is what the body of a reset may be.
const resetBody = `{"key": CLIENT} for one client, or {"all": true} for all of the rule`

// reset makes a client of a rule as new, or begins to make all of them so.
func (c *Call) reset() error {
	if err := c.query.only(); err != nil {
		return err
	}
	client, err := c.readReset()
	if err != nil {
		return err
	}
	rule, found := c.api.config.Limiter.Set().Rule(c.Rule)
	if !found {
		return &Refusal{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no rule %q in force", clip(c.Rule))}
	}
	if client == "" {
		return c.resetAll()
	}
	return c.resetClient(&rule, client)
}

// readReset reads which client is to be reset; "" is all, which has to be asked for in so many words:
// who leaves a client out by mistake resets nobody.
func (c *Call) readReset() (client string, err error) {
	var faults notation.Faults
	body, err := c.value(jsonBody, &faults)
	if err != nil {
		return "", err
	}
	if body.Kind != notation.KindMapping && faults.Err() == nil {
		return "", stint.Invalid("the body", notation.Verbatim(body.String()), resetBody)
	}
	all, named, allNamed := false, false, false
	faults.Mapping("the body", body, func(f notation.Field) bool {
		switch f.Name {
		case "key":
			named = true
			notation.Text(&client)(f.Value, func(v notation.Value, allowed string) { faults.Invalid("key", v, allowed) })
		case "all":
			allNamed = true
			notation.Boolean(&all)(f.Value, func(v notation.Value, allowed string) { faults.Invalid("all", v, allowed) })
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
		return "", stint.Invalid("the body", notation.Verbatim("one with both key and all"), "one of them")
	case !named && !allNamed:
		return "", stint.Invalid("the body", notation.Verbatim("without key and all"), resetBody)
	case allNamed && !all:
		return "", stint.Invalid("all", false, "true, for all clients of the rule")
	case named && client == "":
		return "", invalid("key", client, "a client, as an override names it")
	}
	return client, nil
}

// resetClient makes a client as new, under the rule's own limits and under those of its override.
func (c *Call) resetClient(rule *rules.Rule, client string) error {
	c.Action = "reset_client"
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
			return storeAway(err, "the store did not confirm the reset; whether it was made is not known")
		}
	}
	return c.answer(http.StatusOK, api.ClientReset{Rule: rule.ID, Key: key, Reset: true})
}

// resetAll begins the reset of all clients.
func (c *Call) resetAll() error {
	c.Action = "reset_rule"
	reset, err := c.api.resets.start(c.Rule, c.caller)
	if err != nil {
		return err
	}
	c.outcome = outcomeStarted
	c.w.Header().Set("Location", api.PathRuleResets+"/"+strconv.FormatInt(reset.Reset, 10))
	return c.answer(http.StatusAccepted, reset)
}

// listResets shows the resets of this process.
func (c *Call) listResets() error {
	if err := c.query.only(); err != nil {
		return err
	}
	list := c.api.resets.list()
	slices.Reverse(list)
	return c.answer(http.StatusOK, api.RuleResetList{Resets: list})
}

// getReset shows how far a reset has come.
func (c *Call) getReset() error {
	if err := c.query.only(); err != nil {
		return err
	}
	reset, err := c.api.resets.find(c.number)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, reset.show())
}

// cancelReset ends a reset, and answers when it has ended.
func (c *Call) cancelReset() error {
	if err := c.query.only(); err != nil {
		return err
	}
	reset, err := c.api.resets.find(c.number)
	if err != nil {
		return err
	}
	c.Rule = reset.rule
	ended := reset.hasEnded()
	reset.cancel()
	ctx, cancel := context.WithTimeout(c.r.Context(), resetTimeout)
	defer cancel()
	select {
	case <-reset.ended:
	case <-ctx.Done():
	}
	shown := reset.show()
	switch {
	case shown.State == api.ResetRunning:
		c.outcome = outcomeStarted
	case ended, shown.State != api.ResetCancelled:
		c.outcome = outcomeUnchanged
	}
	return c.answer(http.StatusOK, shown)
}
