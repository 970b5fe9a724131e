package file

import (
	"cmp"
	"slices"

	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// A parsed is what was read of one source.
type parsed struct {
	rules  []rules.Rule
	items  []document.Value // of each rule
	broken []bool           // the rules that could not be read in whole
	faults document.Faults
}

// breaks notes the rules in which some of the faults are: the last one that begins before each.
func (d *parsed) breaks(faults document.Faults) {
	for _, fault := range faults {
		i, begins := slices.BinarySearchFunc(d.items, fault.Position, func(item document.Value, at document.Position) int {
			return cmp.Or(cmp.Compare(item.At.Line, at.Line), cmp.Compare(item.At.Column, at.Column))
		})
		if !begins {
			i--
		}
		if i >= 0 {
			d.broken[i] = true
		}
	}
}

// positions are where the rules begin.
func (d *parsed) positions() []document.Position {
	positions := make([]document.Position, len(d.items))
	for i, item := range d.items {
		positions[i] = item.At
	}
	return positions
}

// once records the rules whose ID is among those that came first, to which it adds the others.
func (d *parsed) once(first map[string]document.Position) {
	for i := range d.rules {
		id, at := d.rules[i].ID, d.items[i].At
		was, twice := first[id]
		switch {
		case id == "":
		case twice:
			d.faults.AddOf(id, at, "rule %q is given twice, first at %v", id, was)
		default:
			first[id] = at
		}
	}
}

// check records what does not make sense of the rules that could be read, each by itself.
func (d *parsed) check(options rules.Options) {
	for i := range d.rules {
		if len(d.faults) > document.MaxFaults {
			return // no more are kept
		}
		if d.broken[i] {
			continue
		}
		_, err := rules.Compile(d.rules[i:i+1], options)
		for _, fault := range notation.Unjoin[*rules.Fault](err) {
			fault.Index = i
			d.faults.AddOf(fault.ID, d.items[i].Place(fault.Param), "%v", fault)
		}
	}
}
