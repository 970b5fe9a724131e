package rulesapi

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/store"
	"github.com/stint-go/stint/server/problem"
)

// noOverride tells that a client of a rule has no override, or can have none.
func noOverride(rule *rules.Rule, client string) error {
	if _, err := rule.OverrideKey(client); err != nil {
		return err
	}
	return problem.New(http.StatusNotFound, "rule %q has no override for this client", rule.ID)
}

// get shows a rule.
func (c *call) get() error {
	rule, head, err := c.find()
	if err != nil {
		return err
	}
	text, err := notation.JSON(rule)
	if err != nil {
		return err
	}
	return c.show(head.Number, tagOf(text), func() ([]byte, error) { return notation.JSON(c.masked(rule)) })
}

// listOverrides shows what holds for single clients of a rule.
func (c *call) listOverrides() error {
	rule, head, err := c.find()
	if err != nil {
		return err
	}
	list := api.OverrideList{Version: head.Number, Rule: rule.ID, Overrides: []json.RawMessage{}}
	shown := c.masked(rule)
	var all []byte
	for i := range rule.Overrides {
		text, err := notation.OverrideJSON(rule.Overrides[i])
		if err != nil {
			return err
		}
		all = append(append(all, text...), '\n')
		if text, err = notation.OverrideJSON(shown.Overrides[i]); err != nil {
			return err
		}
		list.Overrides = append(list.Overrides, text)
	}
	return c.show(head.Number, tagOf(all), func() ([]byte, error) { return marshal(list) })
}

// getOverride shows what holds for one client.
func (c *call) getOverride() error {
	rule, head, err := c.find()
	if err != nil {
		return err
	}
	at := place(&rule, c.client)
	if at < 0 {
		return noOverride(&rule, c.client)
	}
	text, err := notation.OverrideJSON(rule.Overrides[at])
	if err != nil {
		return err
	}
	return c.show(head.Number, tagOf(text), func() ([]byte, error) { return notation.OverrideJSON(c.masked(rule).Overrides[at]) })
}

// putOverride lets something else hold for a client.
func (c *call) putOverride() error {
	override, err := c.readOverride()
	if err != nil {
		return err
	}
	exists := false
	err = c.editRule("put an override of", func(rule *rules.Rule) error {
		at := place(rule, c.client)
		if exists = at >= 0; !exists {
			rule.Overrides = append(rule.Overrides, override)
			return c.asked.hold("")
		}
		if err := c.holdOverride(rule.Overrides[at]); err != nil {
			return err
		}
		rule.Overrides[at] = override
		return nil
	})
	if err != nil {
		return err
	}
	text, err := notation.OverrideJSON(override)
	if err != nil {
		return err
	}
	return c.stored(text, !exists, c.rule, "overrides", c.client)
}

// removeOverride lets the rule's own limits hold for a client again.
func (c *call) removeOverride() error {
	err := c.editRule("delete an override of", func(rule *rules.Rule) error {
		at := place(rule, c.client)
		if at < 0 {
			return noOverride(rule, c.client)
		}
		if err := c.holdOverride(rule.Overrides[at]); err != nil {
			return err
		}
		rule.Overrides = slices.Delete(rule.Overrides, at, at+1)
		return nil
	})
	if err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}

// editRule changes the rule of the path, which has to be there.
func (c *call) editRule(what string, change func(*rules.Rule) error) error {
	_, err := c.edit(what+" "+short(c.rule), func(d *store.Draft) error {
		rule, exists := d.Rule(c.rule)
		if !exists {
			return noRule(c.rule)
		}
		c.about(&rule, c.client)
		if err := change(&rule); err != nil {
			return err
		}
		d.Put(rule)
		return nil
	})
	return err
}

// readOverride reads an override of the body, with the client of the path. The body may leave the
// client out.
func (c *call) readOverride() (override rules.Override, err error) {
	err = c.readOne(func(written document.Value, faults *document.Faults) {
		override = notation.Override(written, "the override", faults)
	})
	if err != nil {
		return override, err
	}
	if override.Key == "" {
		override.Key = c.client
	}
	if override.Key != c.client {
		return override, problem.New(http.StatusBadRequest, "key differs from the client in the path; allowed: the same, or no key")
	}
	return override, nil
}

func (c *call) holdOverride(override rules.Override) error {
	text, err := notation.OverrideJSON(override)
	if err != nil {
		return err
	}
	return c.asked.hold(tagOf(text))
}
