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
func (d *Draft) Changes() []rules.Change {
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
	return rules.Diff(old, now)
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
