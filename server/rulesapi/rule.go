package rulesapi

import (
	"net/http"
	"net/url"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/store"
)

// get shows a rule.
func (c *Call) get() error {
	if err := c.query.only(); err != nil {
		return err
	}
	rule, head, err := c.api.find(c.r.Context(), c.Rule)
	if err != nil {
		return err
	}
	text, err := notation.JSON(rule)
	if err != nil {
		return err
	}
	return c.show(head.Number, tagOf(text), func() ([]byte, error) { return notation.JSON(c.masked(rule)) })
}

// create makes a rule that is not there yet.
func (c *Call) create() error {
	rule, conditions, err := c.readRule("")
	if err != nil {
		return err
	}
	c.Rule = rule.ID
	_, err = c.edit("create "+rule.ID, func(d *store.Draft) error {
		if err := holdList(conditions, d); err != nil {
			return err
		}
		if was, exists := d.Rule(rule.ID); exists {
			tag, err := ruleTag(&was)
			if err != nil {
				return err
			}
			return &Refusal{Status: http.StatusConflict, Detail: "there is a rule " + rule.ID + " already", Field: "Etag", Value: tag}
		}
		d.Put(rule)
		return nil
	})
	if err != nil {
		return err
	}
	return c.made(&rule, true)
}

// put makes a rule, or puts it in the place of the one with its ID.
func (c *Call) put() error {
	rule, conditions, err := c.readRule(c.Rule)
	if err != nil {
		return err
	}
	exists := false
	_, err = c.edit("put "+c.Rule, func(d *store.Draft) error {
		if exists, err = holdRule(conditions, d, c.Rule); err != nil {
			return err
		}
		d.Put(rule)
		return nil
	})
	if err != nil {
		return err
	}
	return c.made(&rule, !exists)
}

// patch changes parts of a rule, by a JSON merge patch (RFC 7396).
func (c *Call) patch() error {
	if err := c.query.only("comment"); err != nil {
		return err
	}
	conditions, err := conditionsOf(c.r.Header)
	if err != nil {
		return err
	}
	var faults notation.Faults
	change, err := c.value(patchBody, &faults)
	if err != nil {
		return err
	}
	if err := faults.Err(); err != nil {
		return err
	}
	if change.Kind != notation.KindMapping {
		return stint.Invalid("the patch", notation.Verbatim(change.String()), "an object with what changes")
	}
	var rule rules.Rule
	_, err = c.edit("patch "+c.Rule, func(d *store.Draft) error {
		was, err := existing(conditions, d, c.Rule)
		if err != nil {
			return err
		}
		if rule, err = patched(was, change); err != nil {
			return err
		}
		d.Put(rule)
		return nil
	})
	if err != nil {
		return err
	}
	return c.made(&rule, false)
}

// patched is a rule with a patch applied.
func patched(rule rules.Rule, patch notation.Value) (rules.Rule, error) {
	text, err := notation.JSON(rule)
	if err != nil {
		return rule, err
	}
	var faults notation.Faults
	written := merge(notation.ParseJSON("rule", text, &faults), patch)
	changed := notation.Rule(written, "the rule", &faults)
	if err := faults.Err(); err != nil {
		return rule, err
	}
	if changed.ID != rule.ID {
		return rule, invalid("id", changed.ID, rule.ID+", as an ID can't be changed: it is what the states of clients belong to")
	}
	return changed, nil
}

// remove removes a rule.
func (c *Call) remove() error {
	if err := c.query.only("comment"); err != nil {
		return err
	}
	conditions, err := conditionsOf(c.r.Header)
	if err != nil {
		return err
	}
	_, err = c.edit("delete "+clip(c.Rule), func(d *store.Draft) error {
		if _, err := existing(conditions, d, c.Rule); err != nil {
			return err
		}
		d.Delete(c.Rule)
		return nil
	})
	if err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}

// readRule reads a rule of the body, with the ID of the path, and what the request asks of what is
// there. The body may leave the ID out that the path has.
func (c *Call) readRule(id string) (rule rules.Rule, asked conditions, err error) {
	asked, err = c.readEdit(func(written notation.Value, faults *notation.Faults) {
		rule = notation.Rule(written, "the rule", faults)
	})
	if err != nil {
		return rule, asked, err
	}
	if rule.ID == "" {
		rule.ID = id
	}
	if id != "" && rule.ID != id {
		return rule, asked, invalid("id", rule.ID, id+", as in the path, or none")
	}
	return rule, asked, nil
}

// readEdit hands the body of an edit of one thing to read, and returns what the request asks of
// what is there.
func (c *Call) readEdit(read func(notation.Value, *notation.Faults)) (asked conditions, err error) {
	if err = c.query.only("comment"); err != nil {
		return asked, err
	}
	if asked, err = conditionsOf(c.r.Header); err != nil {
		return asked, err
	}
	var faults notation.Faults
	written, err := c.value(ruleBody, &faults)
	if err != nil {
		return asked, err
	}
	if faults.Err() == nil {
		read(written, &faults)
	}
	return asked, faults.Err()
}

// made answers with a rule as an edit made it.
func (c *Call) made(rule *rules.Rule, created bool) error {
	text, err := notation.JSON(*rule)
	if err != nil {
		return err
	}
	c.w.Header().Set("Etag", tagOf(text))
	if !created {
		return c.write(http.StatusOK, text)
	}
	c.w.Header().Set("Location", api.PathRules+"/"+url.PathEscape(rule.ID))
	return c.write(http.StatusCreated, text)
}

// existing returns a rule of the draft that has to be there and be as the caller believes.
func existing(asked conditions, d *store.Draft, id string) (rules.Rule, error) {
	exists, err := holdRule(asked, d, id)
	if err != nil {
		return rules.Rule{}, err
	}
	if !exists {
		return rules.Rule{}, noRule(id)
	}
	rule, _ := d.Rule(id)
	return rule, nil
}

// holdRule holds the conditions against a rule of the draft, which need not be there.
func holdRule(asked conditions, d *store.Draft, id string) (exists bool, err error) {
	rule, exists := d.Rule(id)
	if !exists {
		return false, asked.hold("")
	}
	tag, err := ruleTag(&rule)
	if err != nil {
		return true, err
	}
	return true, asked.hold(tag)
}

// holdList holds the conditions against all rules of the draft.
func holdList(asked conditions, d *store.Draft) error {
	tag, err := listTag(d.ID(), d.Rules())
	if err != nil {
		return err
	}
	return asked.hold(tag)
}
