package store

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/rules"
)

// A Draft is the rules as an edit has them so far. It is not safe for concurrent use.
type Draft struct {
	from  Revision
	edits map[string]*rules.Rule // nil: deleted
}

// ID is that of the revision that the draft began with.
func (d *Draft) ID() ID { return d.from.ID }

// Rule returns a rule as the draft has it, which the caller may change without effect on the draft.
func (d *Draft) Rule(id string) (rules.Rule, bool) {
	rule := d.from.find(id)
	if edited, ok := d.edits[id]; ok {
		rule = edited
	}
	if rule == nil {
		return rules.Rule{}, false
	}
	return rule.Clone(), true
}

// Put adds a rule, or replaces the one with its ID.
func (d *Draft) Put(rule rules.Rule) { d.edit(rule.ID, &rule) }

// Delete removes a rule. It reports whether there was one.
func (d *Draft) Delete(id string) bool {
	_, was := d.Rule(id)
	if was {
		d.edit(id, nil)
	}
	return was
}

// Replace puts a list in the place of all rules. Of those with one ID the last counts.
func (d *Draft) Replace(list []rules.Rule) {
	d.edits = make(map[string]*rules.Rule, len(d.from.Rules)+len(list))
	for i := range d.from.Rules {
		d.edits[d.from.Rules[i].ID] = nil
	}
	for i := range list {
		// Rules that stay need no copy, and no check.
		if was := d.from.find(list[i].ID); was != nil && was.Equal(&list[i]) {
			delete(d.edits, list[i].ID)
		} else {
			d.Put(list[i])
		}
	}
}

func (d *Draft) edit(id string, rule *rules.Rule) {
	if d.edits == nil {
		d.edits = map[string]*rules.Rule{}
	}
	if rule != nil {
		own := rule.Clone()
		rule = &own
	}
	d.edits[id] = rule
}

// Rules are all rules as the draft has them, by ID. They must not be changed.
func (d *Draft) Rules() []rules.Rule {
	list := make([]rules.Rule, 0, len(d.from.Rules)+len(d.edits))
	for _, rule := range d.from.Rules {
		if _, edited := d.edits[rule.ID]; !edited {
			list = append(list, rule)
		}
	}
	for _, rule := range d.edits {
		if rule != nil {
			list = append(list, *rule)
		}
	}
	slices.SortFunc(list, byID)
	return list
}

// Changes are what the draft changes so far, by ID.
func (d *Draft) Changes() []Change {
	var old, now []rules.Rule
	for id, after := range d.edits {
		if before := d.from.find(id); before != nil {
			old = append(old, *before)
		}
		if after != nil {
			now = append(now, *after)
		}
	}
	slices.SortFunc(old, byID)
	slices.SortFunc(now, byID)
	return Diff(old, now)
}

// A Change is what happened to one rule.
type Change struct {
	ID string
	// Before is the rule as it was; nil if there was none.
	Before *rules.Rule
	// After is the rule as it is; nil if there is none any more.
	After *rules.Rule
}

// Diff compares two lists of rules, each sorted by ID.
func Diff(old, now []rules.Rule) (changes []Change) {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].ID < now[0].ID:
			changes, old = append(changes, Change{ID: old[0].ID, Before: &old[0]}), old[1:]
		case len(old) == 0 || now[0].ID < old[0].ID:
			changes, now = append(changes, Change{ID: now[0].ID, After: &now[0]}), now[1:]
		default:
			if !old[0].Equal(&now[0]) {
				changes = append(changes, Change{ID: now[0].ID, Before: &old[0], After: &now[0]})
			}
			old, now = old[1:], now[1:]
		}
	}
	return changes
}

// Summarize returns the IDs of changes.
func Summarize(changes []Change) (ids rules.Changes) {
	for _, c := range changes {
		switch {
		case c.Before == nil:
			ids.Added = append(ids.Added, c.ID)
		case c.After == nil:
			ids.Removed = append(ids.Removed, c.ID)
		default:
			ids.Changed = append(ids.Changed, c.ID)
		}
	}
	return ids
}

// Rule returns the rule of an ID, false if there is none. It must not be changed.
func (r *Revision) Rule(id string) (rules.Rule, bool) {
	if rule := r.find(id); rule != nil {
		return *rule, true
	}
	return rules.Rule{}, false
}

func (r *Revision) find(id string) *rules.Rule {
	i, found := slices.BinarySearchFunc(r.Rules, id, func(rule rules.Rule, id string) int { return strings.Compare(rule.ID, id) })
	if !found {
		return nil
	}
	return &r.Rules[i]
}

func byID(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) }
