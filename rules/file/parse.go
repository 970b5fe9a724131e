package file

import (
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
