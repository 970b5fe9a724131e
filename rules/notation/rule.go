package notation

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

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
	list := make([]rules.Rule, 0, len(v.Items))
	for i, item := range v.Items {
		sound := len(*faults)
		list = append(list, Rule(item, fmt.Sprintf("%s[%d]", path, i), faults))
		faults.Blame(list[i].ID, sound)
	}
	return list
}

// Rule reads one rule, called by its ID in messages, or path if it has none.
func Rule(v Value, path string, faults *Faults) rules.Rule {
	r := ruleReader{faults: faults, name: path}
	for _, f := range v.Fields {
		if f.Name == "id" && f.Value.Kind == KindText && f.Value.Text != "" {
			r.name = "rule " + f.Value.String()
		}
	}
	if v.Kind != KindMapping {
		faults.Invalid(path, v, "a mapping with the parameters of a rule")
		return r.rule
	}
	faults.Mapping(r.name, v, r.field, []string{
		"id", "name", "set", "enabled", "priority", "labels", "match", "scope", "missing", "cost", "limits", "unlimited", "banned",
		"on_exceed", "max_wait", "max_waiters", "on_store_failure", "timeout", "overrides",
	})
	return r.rule
}

// ruleReader takes the fields of one rule over.
type ruleReader struct {
	faults *Faults
	name   string // of the rule, in messages
	rule   rules.Rule
}

// path is what a parameter is called in messages.
func (r *ruleReader) path(name string) string { return r.name + ": " + name }

// set hands a value to a setter, and records what is wrong with it.
func (r *ruleReader) set(name string, v Value, set Setter) {
	set(v, func(v Value, allowed string) { r.faults.Invalid(r.path(name), v, allowed) })
}

// field takes one parameter over, if there is such a one.
func (r *ruleReader) field(f Field) bool {
	switch f.Name {
	case "match":
		r.match(f.Value)
	case "labels":
		r.texts("labels", f.Value, &r.rule.Labels)
	case "cost":
		r.rule.Cost = cost(r.path("cost"), f.Value, r.faults)
	case "limits":
		r.rule.Limits, r.rule.Costs = limitsWithCosts(r.path("limits"), f.Value, r.faults)
	case "overrides":
		r.overrides(f.Value)
	default:
		set := r.scalar(f.Name)
		if set == nil {
			return false
		}
		r.set(f.Name, f.Value, set)
	}
	return true
}

// scalar is the setter of a parameter that has no parts of its own, or nil.
func (r *ruleReader) scalar(name string) Setter {
	rule := &r.rule
	switch name {
	case "id":
		return id(&rule.ID)
	case "name":
		return shortText(&rule.Name)
	case "set":
		return shortText(&rule.Set)
	case "enabled":
		return not(&rule.Disabled)
	case "priority":
		return document.Integer(&rule.Priority, math.MinInt, math.MaxInt)
	case "scope":
		return scope(&rule.Scope)
	case "missing":
		return choice(&rule.Missing, missings)
	case "unlimited":
		return Boolean(&rule.Unlimited)
	case "banned":
		return Boolean(&rule.Banned)
	case "on_exceed":
		return choice(&rule.OnExceed, excesses)
	case "max_wait":
		return document.Between(&rule.MaxWait, time.Millisecond, rules.MaxWaitLimit)
	case "max_waiters":
		return document.Integer(&rule.MaxWaiters, 1, maxWaiters)
	case "on_store_failure":
		return choice(&rule.OnStoreFailure, failures)
	case "timeout":
		return document.Between(&rule.Timeout, time.Millisecond, time.Minute)
	default:
		return nil
	}
}

// maxWaiters is the most that a rule's MaxWaiters may be.
const maxWaiters = 10_000

// match reads which requests the rule holds for.
func (r *ruleReader) match(v Value) {
	match := &r.rule.Match
	r.faults.Mapping(r.path("match"), v, func(f Field) bool {
		switch f.Name {
		case "methods":
			r.set("match.methods", f.Value, texts(&match.Methods, "methods such as GET"))
		case "path", "paths":
			r.oneOrMore(v, f, &match.Paths, "a pattern such as /users/{id}")
		case "except":
			r.set("match.except", f.Value, texts(&match.Except, "patterns such as /health or /static/**"))
		case "host", "hosts":
			r.oneOrMore(v, f, &match.Hosts, "a name such as api.example.com or *.example.com")
		case "headers":
			r.texts("match.headers", f.Value, &match.Headers)
		default:
			return false
		}
		return true
	}, []string{"methods", "path", "paths", "except", "host", "hosts", "headers"})
}

// oneOrMore reads what has one name for a single text, and one with an s for a list, of which a mapping has one at most.
func (r *ruleReader) oneOrMore(mapping Value, f Field, field *[]string, allowed string) {
	name := "match." + f.Name
	single, list := strings.CutSuffix(f.Name, "s")
	switch {
	case list && gives(mapping, single):
		r.faults.Add(f.At, "%s: %s is given as well as match.%s; allowed: one of them", r.name, name, single)
	case list:
		r.set(name, f.Value, texts(field, allowed))
	default:
		*field = make([]string, 1)
		r.set(name, f.Value, some(&(*field)[0], allowed))
	}
}

// texts reads texts by name.
func (r *ruleReader) texts(name string, v Value, field *map[string]string) {
	texts := make(map[string]string, len(v.Fields))
	switch v.Kind {
	case KindNull, KindMapping:
	default:
		r.faults.Invalid(r.path(name), v, "a mapping of texts")
	}
	for _, f := range v.Fields {
		var text string
		r.set(name+"."+f.Name, f.Value, Text(&text))
		texts[f.Name] = text
	}
	if len(texts) > 0 {
		*field = texts
	}
}

// limitsWithCosts reads limits that may have costs of their own; costs is nil if none has.
func limitsWithCosts(path string, v Value, faults *Faults) ([]stint.Limit, []rules.Cost) {
	var costs []rules.Cost
	v.Items = slices.Clone(v.Items)
	for i := range v.Items {
		item := &v.Items[i]
		at := slices.IndexFunc(item.Fields, func(f Field) bool { return f.Name == "cost" })
		if at < 0 {
			continue
		}
		if costs == nil {
			costs = make([]rules.Cost, len(v.Items))
		}
		costs[i] = cost(fmt.Sprintf("%s[%d].cost", path, i), item.Fields[at].Value, faults)
		item.Fields = slices.Delete(slices.Clone(item.Fields), at, at+1)
	}
	limits, _ := Limits(path, v, faults)
	return limits, costs
}

// cost reads what a request takes: a number, or where to find it.
func cost(path string, v Value, faults *Faults) (cost rules.Cost) {
	set := func(path string, v Value, set Setter) {
		set(v, func(v Value, allowed string) { faults.Invalid(path, v, allowed) })
	}
	permits := document.Integer(&cost.Permits, 1, stint.MaxPermits)
	if v.Kind != KindMapping {
		set(path, v, permits)
		return cost
	}
	faults.Mapping(path, v, func(f Field) bool {
		switch f.Name {
		case "header":
			set(path+".header", f.Value, some(&cost.Header, "the name of a header field"))
		case "attribute":
			set(path+".attribute", f.Value, some(&cost.Attribute, "the name of an attribute"))
		case "default":
			set(path+".default", f.Value, permits)
		default:
			return false
		}
		return true
	}, []string{"header", "attribute", "default"})
	if !gives(v, "header") && !gives(v, "attribute") {
		faults.Add(v.At, "%s has no source; allowed: a number, or a mapping with header or attribute", path)
	}
	return cost
}

// gives reports whether a mapping has a field of the name.
func gives(v Value, name string) bool {
	for _, f := range v.Fields {
		if f.Name == name {
			return true
		}
	}
	return false
}

// overrides reads what holds for single clients.
func (r *ruleReader) overrides(v Value) {
	if v.Kind != KindList && v.Kind != KindNull {
		r.faults.Invalid(r.path("overrides"), v, "a list of overrides")
		return
	}
	for i, item := range v.Items {
		r.rule.Overrides = append(r.rule.Overrides, Override(item, r.path(fmt.Sprintf("overrides[%d]", i)), r.faults))
	}
}
