package registry

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/rules"
)

// A Draft is the rules as an edit has them so far. It is not safe for concurrent use.
type Draft struct {
	from  Snapshot
	edits map[string]*rules.Rule // nil: deleted
}

// Head is the version that the draft began with.
func (d *Draft) Head() Head { return d.from.Head }

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
	for _, rule := range d.Rules() {
		d.Delete(rule.ID)
	}
	for _, rule := range list {
		d.Put(rule)
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
	var changes []Change
	for id, after := range d.edits {
		before := d.from.find(id)
		if before == nil && after == nil || before != nil && after != nil && before.Equal(after) {
			continue
		}
		changes = append(changes, Change{ID: id, Before: before, After: after})
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.ID, b.ID) })
	return changes
}

// find returns the rule of an ID, nil if there is none.
func (s *Snapshot) find(id string) *rules.Rule {
	i, found := slices.BinarySearchFunc(s.Rules, id, func(rule rules.Rule, id string) int { return strings.Compare(rule.ID, id) })
	if !found {
		return nil
	}
	return &s.Rules[i]
}

// Apply is the snapshot with a later version's changes, and its head.
func (s *Snapshot) Apply(v *Version) Snapshot {
	draft := Draft{from: *s}
	for _, c := range v.Changes {
		draft.edit(c.ID, c.After)
	}
	return Snapshot{Head: v.Head, Rules: draft.Rules()}
}

func byID(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) }
