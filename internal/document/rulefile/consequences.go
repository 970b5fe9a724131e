package rulefile

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/rules"
)

// basis are the parameters of a rule without which another can't be judged.
var basis = map[string][]string{
	"missing": {"scope", "match.path"}, "max_wait": {"on_exceed"}, "max_waiters": {"on_exceed"},
	"limits": {"unlimited", "banned"}, "banned": {"unlimited", "limits"}, "overrides": {"scope"},
	"block": {"limits", "reserve", "unlimited", "banned", "within", "otherwise", "on_exceed"},
	"cost":  {"limits"}, "classes": {"limits", "cost"},
}

// consequences says which faults of rules may only follow from how they are written: those of a parameter with a fault,
// of one that is judged by such a parameter, and of one that is not there in a rule with a name that is not known,
// which may be meant. All others stand beside them.
func consequences(items []document.Value, written document.Faults) func(*rules.Fault) bool {
	wrong := make([]map[string]bool, len(items)) // by rule; "" is all of it
	for _, fault := range written {
		if i := itemAt(items, fault.Position); i >= 0 {
			if wrong[i] == nil {
				wrong[i] = map[string]bool{}
			}
			wrong[i][partAt(items[i], fault.Position)] = true
		}
	}
	return func(fault *rules.Fault) bool {
		in, param := wrong[fault.Index], part(fault.Param)
		_, given := items[fault.Index].Find(top(param))
		is := func(name string) bool { return in[name] || in[top(name)] }
		return in[""] || in[unknown] && !given || is(param) || slices.ContainsFunc(basis[top(param)], is)
	}
}

// top is the parameter of the rule in which a part is.
func top(part string) string {
	if i := strings.IndexAny(part, "[."); i >= 0 {
		return part[:i]
	}
	return part
}

// place is where a rule has a parameter. A single pattern may be in a list.
func place(rule document.Value, param string) document.Position {
	if listed, found := rule.Find(param + "s[0]"); found {
		return listed.At
	}
	return rule.Place(param)
}

// unknown stands for a name that a rule can't have.
const unknown = "?"

// part is the parameter that a place in a rule is of: one of the rule, of its match, or one of its
// overrides.
func part(param string) string {
	if rest, in := strings.CutPrefix(param, "match."); in {
		name, _, _ := strings.Cut(rest, "[")
		name, _, _ = strings.Cut(name, ".")
		return "match." + strings.TrimSuffix(name, "s")
	}
	if strings.HasPrefix(param, "overrides[") {
		param, _, _ = strings.Cut(param, ".")
		return param
	}
	return top(param)
}

// partAt is the part of a rule in which a place is.
func partAt(rule document.Value, at document.Position) string {
	f := fieldAt(rule, at)
	if f < 0 {
		return ""
	}
	field := rule.Fields[f]
	switch {
	case !isParameter[rules.Rule](field.Name):
		return unknown
	case field.Name == "match" && field.Value.Kind == document.KindMapping:
		if f := fieldAt(field.Value, at); f >= 0 && isParameter[rules.Match](field.Value.Fields[f].Name) {
			return part("match." + field.Value.Fields[f].Name)
		}
	case field.Name == "overrides" && field.Value.Kind == document.KindList:
		if i := itemAt(field.Value.Items, at); i >= 0 {
			return fmt.Sprintf("overrides[%d]", i)
		}
	}
	return field.Name
}

// isParameter reports whether a mapping for the fields of T has the name.
func isParameter[T any](name string) bool {
	return slices.ContainsFunc(reflect.VisibleFields(reflect.TypeFor[T]()), func(f reflect.StructField) bool {
		return name == f.Tag.Get("doc") || name == f.Tag.Get("one")
	})
}

// itemAt and fieldAt are the last of several items, and of a mapping's fields, that begins where a place is or before
// it; -1 if there is none.
func itemAt(items []document.Value, at document.Position) int {
	return before(items, at, func(v *document.Value) document.Position { return v.At })
}

func fieldAt(of document.Value, at document.Position) int {
	return before(of.Fields, at, func(f *document.Field) document.Position { return f.At })
}

// before is the last of a list that is not behind a place.
func before[T any](list []T, at document.Position, place func(*T) document.Position) int {
	for i := len(list) - 1; i >= 0; i-- {
		if p := place(&list[i]); p.Source == at.Source &&
			cmp.Or(cmp.Compare(p.Line, at.Line), cmp.Compare(p.Column, at.Column)) <= 0 {
			return i
		}
	}
	return -1
}
