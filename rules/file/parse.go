// Package file reads rules from files and folders of YAML and JSON.
//
//	list, positions, err := file.Read("/etc/stint/rules")
//
// A document is a list of rules, or a mapping with such a list under the name rules.
// Reading is strict, and everything that is wrong is reported at once with line and
// column; see package notation. A [Source] follows a path, and keeps the rules that it has while
// what is there can't be used.
package file

import (
	"cmp"
	"errors"
	"slices"

	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// MaxBytes bounds a document of rules: 100,000 rules of 300 bytes, as JSON. YAML may have as many bytes, and fewer values.
const MaxBytes = 32 << 20

// Parse reads the rules of one document, and where each of them begins. A source whose name
// ends in .json is JSON, every other one is YAML. The document is a list of rules or a mapping
// with one under the name rules; an empty document is not taken for an empty list,
// since it may be half of a file. The error is [document.Faults].
//
// What is returned is well written. Whether it makes sense [rules.Compile] says, and [ParseSet] both.
func Parse(source string, data []byte) ([]rules.Rule, []document.Position, error) {
	d := parse(source, data)
	if err := d.faults.Err(); err != nil {
		return nil, nil, err
	}
	return d.rules, d.positions(), nil
}

// parse reads a document.
func parse(source string, data []byte) *parsed {
	d := &parsed{}
	whole := document.Parse(source, data, MaxBytes, &d.faults)
	read := len(d.faults)
	if read > 0 && whole.Kind == document.KindNull {
		return d // nothing could be read
	}
	list, found := d.list(whole)
	if !found {
		return d
	}
	framed := len(d.faults)
	d.rules = notation.Rules(list, "rules", &d.faults)
	d.items, d.broken = list.Items, make([]bool, len(list.Items))
	d.breaks(d.faults[:read])
	d.breaks(d.faults[framed:])
	return d
}

// list is the list of rules in a document, which has one.
func (d *parsed) list(whole document.Value) (list document.Value, found bool) {
	list = whole
	if whole.Kind == document.KindMapping {
		if name := configured(whole); name != "" {
			d.faults.Add(whole.At, "the document has %q, as a configuration of the service has; allowed: "+
				"a list of rules, or a mapping with one under rules: those of a configuration are under its rules, or where its rules_from says", name)
			return list, false
		}
		list = document.Value{At: whole.At}
		d.faults.Mapping("the document", whole, func(f document.Field) bool {
			if f.Name != "rules" {
				return false
			}
			list = f.Value
			return true
		}, []string{"rules"})
	}
	if list.Kind == document.KindNull {
		d.faults.Add(list.At, "there are no rules; allowed: a list of rules, [] for none")
		return list, false
	}
	return list, true
}

// configured is a name in a mapping that configurations of the service have and nothing else is likely to;
// "" if there is none.
func configured(whole document.Value) string {
	for _, f := range whole.Fields {
		switch f.Name {
		case "listen", "admin_listen", "store", "policies", "rules_from", "trusted_proxies":
			return f.Name
		}
	}
	return ""
}

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

// ParseSet reads the rules of one document as [Parse] does, and makes a set of them. Everything that
// is wrong is reported at once: how rules are written, and of those that could be read what does not make
// sense, each at its place. list are the rules that were read, also with an error, which is
// [document.Faults].
func ParseSet(name string, data []byte, options rules.Options) (set *rules.Set, list []rules.Rule, err error) {
	return setOf([]source{{name, data}}, options)
}

// ReadSet reads the rules of a file or a folder as [Read] does, and makes a set of them. It reports
// what [ParseSet] does.
func ReadSet(path string, options rules.Options) (*rules.Set, error) {
	sources, err := load(path)
	if err != nil {
		return nil, err
	}
	set, _, err := setOf(sources, options)
	return set, err
}

// setOf makes a set of the rules of several files.
func setOf(sources []source, options rules.Options) (*rules.Set, []rules.Rule, error) {
	documents := parseEach(sources)
	list, positions, err := together(documents)
	var senseless error
	if err == nil {
		set, err := rules.Compile(list, options)
		if err == nil {
			return set, list, nil
		}
		senseless = err
	}
	var faults document.Faults
	for _, d := range documents {
		d.check(options)
		faults.Join(d.faults)
	}
	if len(faults) == 0 {
		locate(senseless, positions, &faults) // what is wrong with all of them together
	}
	return nil, list, faults.Err()
}

// parseEach reads the rules of several files, each ID of which may be there only once.
func parseEach(sources []source) []*parsed {
	first := map[string]document.Position{}
	documents := make([]*parsed, 0, len(sources))
	for _, s := range sources {
		d := parse(s.name, s.data)
		d.once(first)
		documents = append(documents, d)
	}
	return documents
}

// together are the rules of several documents, and where they begin, also with an error.
func together(documents []*parsed) (list []rules.Rule, positions []document.Position, err error) {
	var faults document.Faults
	for _, d := range documents {
		list, positions = append(list, d.rules...), append(positions, d.positions()...)
		faults.Join(d.faults)
	}
	return list, positions, faults.Err()
}

// Compile makes a set of rules that were read, and says where they are that don't make sense. The
// error is [document.Faults].
func Compile(list []rules.Rule, positions []document.Position, options rules.Options) (*rules.Set, error) {
	set, err := rules.Compile(list, options)
	if err == nil {
		return set, nil
	}
	var faults document.Faults
	locate(err, positions, &faults)
	return nil, faults.Err()
}

// locate takes joined faults apart and adds each with its rule's position.
func locate(err error, positions []document.Position, faults *document.Faults) {
	for _, part := range notation.Unjoin[error](err) {
		var at document.Position
		rule := ""
		fault, ok := errors.AsType[*rules.Fault](part)
		if ok {
			rule = fault.ID
		}
		if ok && fault.Index < len(positions) {
			at = positions[fault.Index]
		} else if len(positions) > 0 {
			at.Source = positions[0].Source
		}
		faults.AddOf(rule, at, "%v", part)
	}
}
