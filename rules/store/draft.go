package store

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/rules"
)

// A Draft is the rules as an edit has them so far. It is not safe for concurrent use.
type Draft struct {
	from   Revision
	edited []rules.Rule // by ID, a slice of the draft's own; nil: as from has them
}

// ID is that of the revision that the draft began with.
func (d *Draft) ID() ID { return d.from.ID }

// Rule returns a rule as the draft has it, which the caller may change without effect on the draft.
func (d *Draft) Rule(id string) (rules.Rule, bool) {
	if at, found := search(d.now(), id); found {
		return d.now()[at].Clone(), true
	}
	return rules.Rule{}, false
}

// now are all rules as the draft has them.
func (d *Draft) now() []rules.Rule {
	if d.edited == nil {
		return d.from.Rules
	}
	return d.edited
}

// own makes the slice the draft's own, with room for another rule.
func (d *Draft) own() {
	if d.edited == nil {
		d.edited = append(make([]rules.Rule, 0, len(d.from.Rules)+1), d.from.Rules...)
	}
}

// Put adds a rule, or replaces the one with its ID.
func (d *Draft) Put(rule rules.Rule) {
	d.own()
	if at, found := search(d.edited, rule.ID); found {
		d.edited[at] = rule.Clone()
	} else {
		d.edited = slices.Insert(d.edited, at, rule.Clone())
	}
}

// Delete removes a rule. It reports whether there was one.
func (d *Draft) Delete(id string) bool {
	d.own()
	at, found := search(d.edited, id)
	if found {
		d.edited = slices.Delete(d.edited, at, at+1)
	}
	return found
}

// Replace puts a list in the place of all rules. Of those with one ID the last counts.
func (d *Draft) Replace(list []rules.Rule) {
	d.edited = make([]rules.Rule, 0, len(list))
	places := make(map[string]int, len(list))
	for i := range list {
		at, again := places[list[i].ID]
		if !again {
			at, d.edited = len(d.edited), append(d.edited, rules.Rule{})
			places[list[i].ID] = at
		}
		d.edited[at] = list[i].Clone()
	}
	slices.SortFunc(d.edited, byID)
}

// Rules are all rules as the draft has them, by ID. They must not be changed.
func (d *Draft) Rules() []rules.Rule { return slices.Clone(d.now()) }

// Changes are what the draft changes so far, by ID.
func (d *Draft) Changes() []rules.Change { return rules.Diff(d.from.Rules, d.now()) }

// Rule returns the rule of an ID, false if there is none. It must not be changed.
func (r *Revision) Rule(id string) (rules.Rule, bool) {
	if at, found := search(r.Rules, id); found {
		return r.Rules[at], true
	}
	return rules.Rule{}, false
}

// search finds the place of a rule among those that are sorted by ID.
func search(list []rules.Rule, id string) (at int, found bool) {
	return slices.BinarySearchFunc(list, id, func(rule rules.Rule, id string) int { return strings.Compare(rule.ID, id) })
}

func byID(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) }
