// Package rulediff tells what differs between two sets of rules.
package rulediff

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/rules"
)

// Changes are the IDs in which a set differs from an older one, each list sorted.
type Changes struct {
	Added, Removed, Changed []string
}

// None reports whether the sets have the same rules.
func (c Changes) None() bool { return len(c.Added)+len(c.Removed)+len(c.Changed) == 0 }

// Between compares a set with an older one, which may be nil.
func Between(old, now *rules.Set) Changes {
	if old == nil {
		old = &rules.Set{}
	}
	was, is := old.Rules(), now.Rules()
	for _, list := range [][]rules.Rule{was, is} {
		slices.SortStableFunc(list, func(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) })
	}
	return Summarize(Diff(was, is))
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
func Summarize(changes []Change) (ids Changes) {
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
