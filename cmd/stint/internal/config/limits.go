package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules/file"
)

// ReadDocument takes over the limits that the algorithms' names stand for. What a
// default leaves out keeps its built-in value.
func (d *defaults) ReadDocument(path document.Path, v document.Value, faults *document.Faults) {
	var names []string
	for _, algorithm := range stint.Algorithms() {
		names = append(names, strings.ToLower(algorithm.String()))
	}
	faults.Mapping(path.String(), v, func(f document.Field) bool {
		place := slices.Index(names, f.Name)
		if place < 0 {
			return false
		}
		algorithm := stint.Algorithms()[place]
		if limit, ok := file.Limit(path.Field(f.Name).String(), f.Value, (*d)[algorithm], faults); ok {
			(*d)[algorithm] = limit
		}
		return true
	}, names)
}

// ReadDocument takes over the named lists of limits.
func (p *policies) ReadDocument(path document.Path, v document.Value, faults *document.Faults) {
	faults.Mapping(path.String(), v, func(f document.Field) bool {
		if f.Name == "" {
			faults.Add(f.At, "a policy's name is empty; allowed: 1 to %d printable ASCII characters", stint.MaxNameBytes)
			return true
		}
		name := path.Field(f.Name).String()
		limits, ok := file.Limits(name, f.Value, faults)
		if !ok {
			return true
		}
		_, err := stint.NewPolicy(f.Name, limits...)
		for _, invalid := range file.Unjoin[*stint.InvalidError](err) {
			at, place := f.At, 0
			if _, err := fmt.Sscanf(invalid.Param, "limit %d:", &place); err == nil {
				at = f.Value.Items[place].At
			}
			faults.Add(at, "%s: %v", name, invalid)
		}
		if err == nil {
			(*p)[f.Name] = limits
		}
		return true
	}, []string{"policies by name"})
}

// ReadDocument takes over the list of rules.
func (l *ruleList) ReadDocument(path document.Path, v document.Value, faults *document.Faults) {
	if list := file.Rules(v, path.String(), faults); len(list) > 0 {
		*l = list
	}
}
