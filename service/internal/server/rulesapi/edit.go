package rulesapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// editTimeout bounds the reading and the editing of rules. An edit reads and writes once, or
// several times if others edit, too.
const editTimeout = 10 * time.Second

// edit makes the next revision of the rules, and sets the answer's header. change is called as
// [rulestore.Manager.Edit] says. what is the author's action, such as "replace login". The draft is
// looked at once more after the change, as a whole: an API key that was hidden must not become
// readable by it.
func (c *call) edit(what string, change func(*rulestore.Draft) error) (rulestore.Edited, error) {
	return c.commit(what, func(
		ctx context.Context, m *rulestore.Manager, author rulestore.Author,
	) (rulestore.Edited, error) {
		return m.Edit(ctx, author, func(d *rulestore.Draft) error {
			if err := change(d); err != nil {
				return err
			}
			return refuseExposedKey(d)
		})
	})
}

// commit has the manager make a revision. The revision goes into the audit and into the answer's
// header. Where rules come from files nothing can be changed here, as the next reading would undo
// it.
func (c *call) commit(
	what string,
	do func(context.Context, *rulestore.Manager, rulestore.Author) (rulestore.Edited, error),
) (rulestore.Edited, error) {
	comment, err := c.comment()
	if err != nil {
		return rulestore.Edited{}, err
	}
	m := c.api.config.Manager
	if m == nil {
		return rulestore.Edited{}, problem.New(
			http.StatusConflict, "rules can't be changed here: they come from %s; change them there", c.api.config.RulesFrom,
		)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), editTimeout)
	defer cancel()
	e, err := do(ctx, m, rulestore.Author{By: c.caller.Name, Action: what, Comment: comment})
	if err != nil {
		return rulestore.Edited{}, editFault(err)
	}
	c.revision, c.texts = e.Number, e.Texts
	if e.None() {
		c.outcome = outcomeUnchanged
	} else if c.api.config.Forgotten {
		c.api.tellForgotten.Do(func() {
			c.api.config.Logger.Warn("edited rules are kept in the memory of this process, and are lost when it ends; " +
				"to keep them, set rules_from to a folder of files or to a database, or store.url to a Redis")
		})
	}
	c.w.Header().Set(adminapi.HeaderRevision, strconv.FormatInt(e.Number, 10))
	return e, nil
}

// errUnconfirmed says that an edit may have been made.
var errUnconfirmed = errors.New("not confirmed")

// editFault turns the error of an edit into one with a status. Of an edit that failed, three cases
// have to be told apart for who repeats it: nothing was changed; others came first; nobody knows.
// The texts say what is certain: a caller that gets the last one has to look before it repeats.
func editFault(err error) error {
	switch {
	case errors.Is(err, rulestore.ErrUnreadable):
		return unreachable(err)
	case errors.Is(err, rulestore.ErrConflict):
		return problem.New(http.StatusConflict, "other edits came first, several times; try again")
	case errors.Is(err, rulestore.ErrRefused):
		return unavailable(err, "the server that keeps the rules refused the edit; nothing was changed. The log says why")
	case !isUnreachable(err):
		return err
	case errors.Is(err, rulestore.ErrNotBegun):
		return unavailable(err, "the rules could not be read"+inTime(err)+", nothing was changed; the log says why")
	default:
		return unavailable(
			errors.Join(err, errUnconfirmed),
			"the edit was not confirmed"+inTime(err)+"; GET /api/v1/rule-revisions shows whether it was made",
		)
	}
}

// edited answers an edit of several rules. The tag is that of the list of all rules, so that the
// caller can make the next edit depend on it.
func (c *call) edited(e *rulestore.Edited) (answer adminapi.Edited, err error) {
	tag, err := listTag(e.ID, nil) // before the first revision there are no rules
	if err != nil {
		return answer, err
	}
	c.w.Header().Set("Etag", tag)
	return adminapi.Edited{Revision: e.Number, At: timeOf(e.ID), RuleChanges: changesOf(e.Changes)}, nil
}

// changesOf converts changes to their wire type.
func changesOf(ids rulediff.Changes) adminapi.RuleChanges {
	list := func(ids []string) []string { return append([]string{}, ids...) }
	return adminapi.RuleChanges{Added: list(ids.Added), Removed: list(ids.Removed), Changed: list(ids.Changed)}
}

// timeOf is the time of a revision. Without a revision it is the zero time.
func timeOf(id rulestore.ID) time.Time {
	if id.At == 0 {
		return time.Time{}
	}
	return id.Time().UTC()
}

// create makes a rule. If its ID exists already, the answer is 409. Unlike put it never replaces a
// rule, so that two who choose the same ID do not overwrite each other.
func (c *call) create() error {
	rule, err := c.readRule()
	if err != nil {
		return err
	}
	c.rule = rule.ID
	_, err = c.edit("create "+rule.ID, func(d *rulestore.Draft) error {
		if err := c.checkList(d); err != nil {
			return err
		}
		if was, exists := d.Rule(rule.ID); exists {
			text, err := rulefile.JSON(was)
			if err != nil {
				return err
			}
			return &problem.Error{
				Status: http.StatusConflict,
				Detail: "there is a rule " + rule.ID + " already",
				Field:  "Etag",
				Value:  tagOf(text),
			}
		}
		d.Put(rule)
		return nil
	})
	if err != nil {
		return err
	}
	return c.stored(&rule, true)
}

// put makes a rule, or replaces the rule with its ID.
func (c *call) put() error {
	rule, err := c.readRule()
	if err != nil {
		return err
	}
	return c.editOne("put", true, func(was *rules.Rule) error {
		*was = rule
		return nil
	})
}

// readPatch reads a JSON merge patch (RFC 7396).
func (c *call) readPatch() (document.Value, error) {
	change, err := c.value(patchBody)
	if err == nil && change.Kind != document.KindMapping {
		err = stint.Invalid("the patch", document.Verbatim(change.String()), "an object with what changes")
	}
	return change, err
}

// patch changes parts of a rule.
func (c *call) patch() error {
	change, err := c.readPatch()
	if err != nil {
		return err
	}
	return c.editOne("patch", false, func(rule *rules.Rule) (err error) {
		*rule, err = patched(*rule, change)
		return err
	})
}

// patched returns a rule with a patch applied. An ID can't be changed by a patch, as it names the
// clients' states. The patch works on the rule as it is written in documents, where what is as by
// default is left out; null makes a parameter the default again.
func patched(rule rules.Rule, patch document.Value) (rules.Rule, error) {
	written, err := rulefile.Written(rule)
	if err != nil {
		return rule, err
	}
	var faults document.Faults
	changed := rulefile.Rule(merge(written, patch), "the rule", &faults)
	if err := faults.Err(); err != nil {
		return rule, err
	}
	if changed.ID != rule.ID {
		return rule, invalid("id", changed.ID, rule.ID+", as an ID can't be changed: the state of clients belongs to it")
	}
	return changed, nil
}

// remove removes a rule, or the override of a client.
func (c *call) remove() error {
	what := "delete"
	if c.client != "" {
		what = "delete an override of"
	}
	_, err := c.edit(what+" "+problem.Short(c.rule), func(d *rulestore.Draft) error {
		rule, exists, err := c.checkOne(d)
		switch {
		case err != nil:
			return err
		case !exists:
			return c.missing(&rule)
		case c.client == "":
			d.Delete(c.rule)
		default:
			at := overrideIndex(&rule, c.client)
			rule.Overrides = slices.Delete(rule.Overrides, at, at+1)
			d.Put(rule)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.empty(http.StatusNoContent)
}

// checkOne checks the conditions against the rule or override that the path names. It returns the
// rule, and whether the rule or override exists. It answers for If-Match and If-None-Match (RFC
// 9110, section 13.1): the tag is of what the path names, "" where that does not exist.
func (c *call) checkOne(d *rulestore.Draft) (rule rules.Rule, exists bool, err error) {
	rule, found := d.Rule(c.rule)
	if !found {
		if c.client != "" {
			return rule, false, noRule(c.rule)
		}
		return rule, false, c.conditions.check("")
	}
	if c.client != "" {
		c.about(&rule, c.client)
	}
	text, err := c.written(&rule)
	if err != nil || text == nil {
		return rule, false, errors.Join(err, c.conditions.check(""))
	}
	return rule, true, c.conditions.check(tagOf(text))
}

// editOne changes the rule or override that the path names, and answers with the result. With anew it makes one that
// does not exist.
func (c *call) editOne(what string, anew bool, change func(*rules.Rule) error) error {
	rule, created, err := c.changeOne(what, anew, change)
	if err != nil {
		return err
	}
	return c.stored(&rule, created)
}

// changeOne is editOne before the answer. change may be called several times, each time with the
// rule as it is then.
func (c *call) changeOne(
	what string,
	anew bool,
	change func(*rules.Rule) error,
) (rule rules.Rule, created bool, err error) {
	exists := false
	_, err = c.edit(what+" "+problem.Short(c.rule), func(d *rulestore.Draft) (err error) {
		if rule, exists, err = c.checkOne(d); err != nil {
			return err
		}
		if !exists && !anew {
			return c.missing(&rule)
		}
		if err = change(&rule); err == nil {
			d.Put(rule)
		}
		return err
	})
	return rule, !exists, err
}

// replaceAll replaces all rules by those of a document.
func (c *call) replaceAll() (answer adminapi.Edited, err error) {
	// The manager would find the same faults, but knows no lines and columns.
	_, list, err := c.document(false)
	if err != nil {
		return answer, err
	}
	return c.editMany("replace all rules", func(d *rulestore.Draft) error {
		d.Replace(list)
		return nil
	})
}

// patchSelected patches all rules that the query selects.
func (c *call) patchSelected() (answer adminapi.Edited, err error) {
	change, err := c.readPatch()
	if err != nil {
		return answer, err
	}
	return c.editSelected("patch rules", func(d *rulestore.Draft, rule rules.Rule) error {
		rule, err := patched(rule, change)
		if err == nil {
			d.Put(rule)
		}
		return err
	})
}

// removeSelected removes all rules that the query selects.
func (c *call) removeSelected() (answer adminapi.Edited, err error) {
	return c.editSelected("delete rules", func(d *rulestore.Draft, rule rules.Rule) error {
		d.Delete(rule.ID)
		return nil
	})
}

// editSelected edits all rules that the query selects, by their label or the prefix of their ID. At
// least one condition is needed, so that a forgotten query does not empty the rules.
func (c *call) editSelected(
	what string, change func(*rulestore.Draft, rules.Rule) error,
) (answer adminapi.Edited, err error) {
	f, err := c.filter()
	if err != nil {
		return answer, err
	}
	if f.set == "" && len(f.labels) == 0 && f.prefix == "" {
		return answer, stint.Invalid(
			"the query", document.Verbatim("without set, label and prefix"),
			"set=NAME, label=NAME:VALUE or prefix=TEXT, to select rules",
		)
	}
	return c.editMany(what+" of "+f.String(), func(d *rulestore.Draft) error {
		for _, rule := range d.Rules() {
			if !f.has(&rule) {
				continue
			}
			if err := change(d, rule.Clone()); err != nil {
				return err
			}
		}
		return nil
	})
}

// editMany edits several rules, under conditions about the list of all. All of it is one revision:
// either every rule is changed or none.
func (c *call) editMany(what string, change func(*rulestore.Draft) error) (answer adminapi.Edited, err error) {
	e, err := c.edit(what, func(d *rulestore.Draft) error {
		if err := c.checkList(d); err != nil {
			return err
		}
		return change(d)
	})
	if err != nil {
		return answer, err
	}
	return c.edited(&e)
}

// validate says whether a document's rules could be enforced, alone or as a part of those in force.
// Of a partial document the rules in force stay beside it; warnings of those are left out unless
// the document causes them. Faults are part of a good answer, 200, as the question was answered.
func (c *call) validate() (validation adminapi.Validation, err error) {
	inForce := c.api.config.Limiter.Set()
	partial, err := c.query.Flag("partial")
	if err != nil {
		return validation, err
	}
	set, list, err := c.document(partial)
	var faults document.Faults
	if errors.As(err, &faults) {
		validation.Rules = len(list)
		validation.Faults = RuleFaults(faults[:min(len(faults), document.MaxFaults)])
		return validation, nil
	}
	if err != nil {
		return validation, err
	}
	changes := changesOf(rulediff.Between(inForce, set))
	validation = adminapi.Validation{Valid: true, Rules: len(list), RuleChanges: &changes}
	given := make(map[string]bool, len(list))
	for i := range list {
		given[list[i].ID] = true
		if !list[i].Disabled {
			validation.Enabled++
		}
	}
	for _, rule := range set.Rules() {
		for _, warning := range set.Warnings(rule.ID, c.api.config.Clustered) {
			if given[rule.ID] || !slices.Contains(inForce.Warnings(rule.ID, c.api.config.Clustered), warning) {
				validation.Warnings = append(validation.Warnings, "rule "+rule.ID+": "+warning.String())
			}
		}
	}
	validation.Warnings = validation.Warnings[:min(len(validation.Warnings), document.MaxFaults)]
	return validation, nil
}

// RuleFaults converts faults to their wire type.
func RuleFaults(faults document.Faults) (list []adminapi.RuleFault) {
	for _, fault := range faults {
		list = append(list, adminapi.RuleFault{
			Line: fault.Position.Line, Column: fault.Position.Column, Rule: fault.Rule, Detail: fault.Message,
		})
	}
	return list
}

// checkList checks the conditions against the list of all rules of the draft. The tag is the
// revision's; before the first one it is made of the rules themselves.
func (c *call) checkList(d *rulestore.Draft) error {
	var list []rules.Rule
	if d.ID() == (rulestore.ID{}) {
		list = d.Rules()
	}
	tag, err := listTag(d.ID(), list)
	if err != nil {
		return err
	}
	return c.conditions.check(tag)
}

// merge applies a JSON merge patch (RFC 7396, section 2): members of the patch replace members of the target, null
// removes them, and objects are merged by name. Its time is linear in the size of both, because other edits wait
// meanwhile.
func merge(target, patch document.Value) document.Value {
	if patch.Kind != document.KindMapping {
		return patch
	}
	merged := document.Value{At: patch.At, Kind: document.KindMapping}
	if target.Kind == document.KindMapping {
		merged.Fields = slices.Clone(target.Fields)
	}
	places := make(map[string]int, len(merged.Fields))
	for i, field := range merged.Fields {
		places[field.Name] = i
	}
	removed := map[string]bool{}
	for _, field := range patch.Fields {
		at, there := places[field.Name]
		switch {
		case field.Value.Kind == document.KindNull:
			removed[field.Name] = there
		case there:
			was := merged.Fields[at].Value
			merged.Fields[at] = document.Field{At: field.At, Name: field.Name, Value: merge(was, field.Value)}
		default:
			merged.Fields = append(
				merged.Fields,
				document.Field{At: field.At, Name: field.Name, Value: merge(document.Value{}, field.Value)},
			)
		}
	}
	merged.Fields = slices.DeleteFunc(merged.Fields, func(f document.Field) bool { return removed[f.Name] })
	return merged
}
