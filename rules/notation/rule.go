package notation

import (
	"fmt"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
)

// Rules reads the list of rules at path, such as rules. It returns one rule for each item,
// in order, also for those with faults. A fault names the rule by its ID, or by its place
// in the list. What depends on several parameters is left to [rules.Compile].
func Rules(v Value, path string, faults *Faults) []rules.Rule {
	if v.Kind != KindList && v.Kind != KindNull {
		faults.Invalid(path, v, "a list of rules")
		return nil
	}
	if len(v.Items) > rules.MaxRules {
		faults.Invalid(path, v, fmt.Sprintf("at most %d rules", rules.MaxRules))
		return nil
	}
	list := make([]rules.Rule, 0, len(v.Items))
	for i, item := range v.Items {
		sound := len(*faults)
		list = append(list, Rule(item, fmt.Sprintf("%s[%d]", path, i), faults))
		faults.Blame(list[i].ID, sound)
	}
	return list
}

// Rule reads one rule, called by its ID in messages, or path if it has none.
func Rule(v Value, path string, faults *Faults) (rule rules.Rule) {
	if v.Kind != KindMapping {
		faults.Invalid(path, v, "a mapping with the parameters of a rule")
		return rule
	}
	if id, _ := v.Find("id"); id.Kind == KindText && id.Text != "" {
		path = "rule " + id.String()
	}
	whole := document.Root(path, path+": ")
	kinds.Read(whole, v, &rule, faults)
	rule.Costs = costs(whole, v, faults)
	overrides, _ := v.Find("overrides")
	for i := range min(len(overrides.Items), len(rule.Overrides)) {
		rule.Overrides[i].Costs = costs(whole.Field("overrides").Item(i), overrides.Items[i], faults)
	}
	return rule
}

// Override reads what holds for a single client. path is what it is called in messages.
func Override(v Value, path string, faults *Faults) (override rules.Override) {
	whole := document.Root(path, path+".")
	kinds.Read(whole, v, &override, faults)
	override.Costs = costs(whole, v, faults)
	return override
}

// costs reads the costs of a rule's or an override's limits, nil if none has its own. Limits are
// read without them.
func costs(path document.Path, of Value, faults *Faults) (list []rules.Cost) {
	limits, _ := of.Find("limits")
	for i, item := range limits.Items {
		if v, given := item.Find("cost"); given {
			if list == nil {
				list = make([]rules.Cost, len(limits.Items))
			}
			cost(&list[i]).ReadDocument(path.Field("limits").Item(i).Field("cost"), v, faults)
		}
	}
	return list
}

// cost reads what a request takes: a number, or where to find it.
func cost(field *rules.Cost) document.ReaderFunc {
	return func(path document.Path, v Value, faults *Faults) {
		if v.Kind != KindMapping {
			document.Integer(&field.Permits, 1, stint.MaxPermits).ReadDocument(path, v, faults)
			return
		}
		costKinds.Read(path, v, field, faults)
		if field.Header == "" && field.Attribute == "" && !gives(v, "header") && !gives(v, "attribute") {
			faults.Add(v.At, "%s has no source; allowed: a number, or a mapping with header or attribute", path)
		}
	}
}

// gives reports whether a mapping has a field of the name.
func gives(v Value, name string) bool {
	_, found := v.Find(name)
	return found
}
