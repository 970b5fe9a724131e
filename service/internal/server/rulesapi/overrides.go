package rulesapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// listOverrides shows the overrides of a rule. The tag is made of what is stored, and the list of
// what the caller may see.
func (c *call) listOverrides() error {
	rule, head, err := c.find()
	if err != nil {
		return err
	}
	list := adminapi.OverrideList{Revision: head.Number, Rule: rule.ID, Overrides: []json.RawMessage{}}
	shown := c.masked(rule)
	var all []byte
	for i := range rule.Overrides {
		text, err := rulefile.OverrideJSON(rule.Overrides[i])
		if err != nil {
			return err
		}
		all = append(append(all, text...), '\n')
		if text, err = rulefile.OverrideJSON(shown.Overrides[i]); err != nil {
			return err
		}
		list.Overrides = append(list.Overrides, text)
	}
	return c.show(head.Number, tagOf(all), func() ([]byte, error) { return problem.Marshal(list) })
}

// putOverride makes or replaces the override of a client, and clears the client's state if reset is
// asked for. The reset comes after the edit: a client that is given more should have it at once,
// and one whose reset fails has the override nevertheless.
func (c *call) putOverride() error {
	reset, err := c.query.Flag("reset")
	if err != nil {
		return err
	}
	override, err := c.readOverride()
	if err != nil {
		return err
	}
	rule, created, err := c.changeOne("put an override of", true, func(rule *rules.Rule) error {
		if reset {
			if _, err := rule.ClientKey(c.client); err != nil {
				return err
			}
		}
		if at := overrideIndex(rule, c.client); at >= 0 {
			rule.Overrides[at] = override
		} else {
			rule.Overrides = append(rule.Overrides, override)
		}
		return nil
	})
	if err == nil && reset {
		err = c.resetOverridden()
	}
	if err != nil {
		return err
	}
	return c.stored(&rule, created)
}

// resetOverridden clears what the client has used of the rule. A rule that is not in force yet has
// no state.
func (c *call) resetOverridden() error {
	if _, known := c.api.config.Limiter.Set().Rule(c.rule); !known {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), resetTimeout)
	defer cancel()
	return stateUnreachable(
		c.api.config.Limiter.ResetClient(ctx, c.rule, c.client),
		"the override is stored; the store did not confirm the reset of the client, and whether it was made is not known",
	)
}

// readOverride reads an override from the body. The client is in the path, so the body need not
// name it. A body that names another client than the path is refused, as one of the two must be a
// mistake.
func (c *call) readOverride() (rules.Override, error) {
	written, err := c.value(ruleBody)
	if err != nil {
		return rules.Override{}, err
	}
	var faults document.Faults
	end := endOf(&written, time.Now(), &faults)
	override := rulefile.Override(written, "the override", &faults)
	if err := faults.Err(); err != nil {
		return override, err
	}
	if !end.IsZero() {
		override.Until = end
	}
	if override.Key == "" {
		override.Key = c.client
	}
	if override.Key != c.client {
		return override, problem.New(
			http.StatusBadRequest,
			"key differs from the client in the path; allowed: the same, or no key",
		)
	}
	return override, nil
}

// endOf takes out of an override how long it holds (for), and returns its end then, in whole seconds: a span that was
// kept would begin anew whenever it is read. The zero time is that none is given.
func endOf(written *document.Value, now time.Time, faults *document.Faults) (end time.Time) {
	at := slices.IndexFunc(written.Fields, func(f document.Field) bool { return f.Name == "for" })
	if at < 0 {
		return end
	}
	given := written.Fields[at]
	written.Fields = slices.Delete(slices.Clone(written.Fields), at, at+1)
	if _, also := written.Find("until"); also {
		faults.Add(given.At, "the override.for is given as well as until; allowed: one of them")
		return end
	}
	var span time.Duration
	document.Between(&span, time.Second, bounds.MaxPeriod)(given.Value, func(v document.Value, allowed string) {
		faults.Invalid("the override.for", v, allowed)
	})
	return now.Add(span + time.Second - 1).UTC().Truncate(time.Second)
}

// shownClient is the name of a client that readers see: an API key is replaced by its SHA-256.
func shownClient(rule *rules.Rule, client string) string {
	if !countsKeys(rule) {
		return client
	}
	if shown, err := rule.OverrideKey(client); err == nil {
		return shown
	}
	return rules.HashedClient(client) // the rule can't be enforced, or names its floors without a part of its scope
}

// countsKeys reports whether a rule counts by API key, alone or with other values.
func countsKeys(rule *rules.Rule) bool { return slices.Contains(rule.Scope, rules.PerAPIKey) }

// exposesKeys reports whether a change moves a rule's scope to or from API keys. The name of
// a client in an override may then be an API key before the change and not after it, or the reverse.
func exposesKeys(change *rulediff.Change) bool {
	before, after := change.Before, change.After
	return before != nil && after != nil && !slices.Equal(before.Scope, after.Scope) &&
		(countsKeys(before) || countsKeys(after))
}

// refuseExposedKey refuses an edit that changes a rule's scope and keeps an override, a floor or a
// weight that names an API key itself. Under the new scope readers would see the key.
func refuseExposedKey(d *rulestore.Draft) error {
	for _, change := range d.Changes() {
		if !exposesKeys(&change) {
			continue
		}
		refuse := func(place, client, remove string) error {
			was := shownClient(change.Before, client)
			if was == client || shownClient(change.After, client) == was {
				return nil
			}
			return invalid("scope", strings.Join(change.After.Scope, ", "), fmt.Sprintf(
				"%s, as rule %s has it, while %s names the API key %s itself, which would be shown to all; "+
					"remove the %s in the same edit",
				strings.Join(change.Before.Scope, ", "), change.ID, place, was, remove))
		}
		for i := range change.After.Overrides {
			client := change.After.Overrides[i].Key
			if overrideIndex(change.Before, client) < 0 {
				continue
			}
			if err := refuse(fmt.Sprintf("overrides[%d]", i), client, "override"); err != nil {
				return err
			}
		}
		for client := range change.After.Guaranteed {
			if _, was := change.Before.Guaranteed[client]; was {
				if err := refuse("guaranteed", client, "client"); err != nil {
					return err
				}
			}
		}
		for client := range change.After.Weights {
			if _, was := change.Before.Weights[client]; was {
				if err := refuse("weights", client, "client"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// masked is a rule as the caller sees it. Its ETag is that of the unmasked rule.
func (c *call) masked(rule rules.Rule) rules.Rule {
	if c.caller.Writes || !countsKeys(&rule) {
		return rule
	}
	return renamed(rule, func(client string) string { return shownClient(&rule, client) })
}

// renamed returns a rule with other names for the clients of its overrides, floors and weights.
func renamed(rule rules.Rule, name func(client string) string) rules.Rule {
	rule.Overrides = slices.Clone(rule.Overrides)
	for i := range rule.Overrides {
		rule.Overrides[i].Key = name(rule.Overrides[i].Key)
	}
	rule.Guaranteed, rule.Weights = renamedKeys(rule.Guaranteed, name), renamedKeys(rule.Weights, name)
	return rule
}

// renamedKeys is a mapping by clients with their names changed, as readers may not see those that
// are API keys; nil stays nil.
func renamedKeys[V any](clients map[string]V, name func(client string) string) map[string]V {
	if clients == nil {
		return nil
	}
	renamed := make(map[string]V, len(clients))
	for client, v := range clients {
		renamed[name(client)] = v
	}
	return renamed
}

// shownChange is a change as the caller sees it. If exposesKeys is true, readers see all clients
// hashed, before and after.
func (c *call) shownChange(change rulediff.Change) (shown adminapi.RuleChange, err error) {
	side := func(rule *rules.Rule) []byte {
		if rule == nil || err != nil {
			return nil
		}
		masked := c.masked(*rule)
		if exposesKeys(&change) && !c.caller.Writes {
			masked = renamed(*rule, rules.HashedClient)
		}
		var text []byte
		text, err = rulefile.JSON(masked)
		return text
	}
	shown = adminapi.RuleChange{ID: change.ID, Before: side(change.Before), After: side(change.After)}
	return shown, err
}

// overrideIndex is the index of a client's override in a rule, -1 if there is none. The client and the override
// may each name an API key by the key or by its hash.
func overrideIndex(rule *rules.Rule, client string) int {
	at := slices.IndexFunc(rule.Overrides, func(o rules.Override) bool { return o.Key == client })
	if at < 0 && countsKeys(rule) {
		client = shownClient(rule, client)
		at = slices.IndexFunc(rule.Overrides, func(o rules.Override) bool { return shownClient(rule, o.Key) == client })
	}
	return at
}
