package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/notation"
)

// defaults takes over the limits that the algorithms' names stand for. What a
// default leaves out keeps its built-in value.
func (l *loader) defaults(v notation.Value) {
	var names []string
	for _, algorithm := range stint.Algorithms() {
		names = append(names, strings.ToLower(algorithm.String()))
	}
	l.faults.Mapping("defaults", v, func(f notation.Field) bool {
		place := slices.Index(names, f.Name)
		if place < 0 {
			return false
		}
		algorithm := stint.Algorithms()[place]
		if limit, ok := notation.Limit("defaults."+f.Name, f.Value, l.config.Defaults[algorithm], l.faults); ok {
			l.config.Defaults[algorithm] = limit
		}
		return true
	}, names)
}

// policies takes over the named lists of limits.
func (l *loader) policies(v notation.Value) {
	l.faults.Mapping("policies", v, func(f notation.Field) bool {
		path := "policies." + f.Name
		if f.Name == "" {
			l.faults.Add(f.At, "a policy's name is empty; allowed: 1 to %d printable ASCII characters", stint.MaxNameBytes)
			return true
		}
		if limits, ok := notation.Limits(path, f.Value, l.faults); ok {
			l.policy(f, limits)
		}
		return true
	}, []string{"policies by name"})
}

// policy takes over limits that are sound each alone.
func (l *loader) policy(f notation.Field, limits []stint.Limit) {
	_, err := stint.NewPolicy(f.Name, limits...)
	for _, invalid := range notation.Invalids(err) {
		at, place := f.At, 0
		if _, err := fmt.Sscanf(invalid.Param, "limit %d:", &place); err == nil {
			at = f.Value.Items[place].At
		}
		l.faults.Add(at, "policies.%s: %v", f.Name, invalid)
	}
	if err == nil {
		l.config.Policies[f.Name] = limits
	}
}

// rules takes over the list of rules and where each begins.
func (l *loader) rules(v notation.Value) {
	if list := notation.Rules(v, "rules", l.faults); len(list) > 0 {
		l.config.Rules = list
	}
	for _, item := range v.Items {
		l.config.RulesAt = append(l.config.RulesAt, item.At)
	}
}
