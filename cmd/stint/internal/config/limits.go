package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// defaults takes over the limits that the algorithms' names stand for. What a
// default leaves out keeps its built-in value.
func (l *loader) defaults(v value) {
	var names []string
	for _, algorithm := range stint.Algorithms() {
		names = append(names, strings.ToLower(algorithm.String()))
	}
	l.mapping("defaults", v, func(f field) bool {
		place := slices.Index(names, f.name)
		if place < 0 {
			return false
		}
		algorithm := stint.Algorithms()[place]
		if limit, ok := l.limit("defaults."+f.name, f.value, l.config.Defaults[algorithm]); ok {
			l.config.Defaults[algorithm] = limit
		}
		return true
	}, names)
}

// policies takes over the named lists of limits.
func (l *loader) policies(v value) {
	l.mapping("policies", v, func(f field) bool {
		path := "policies." + f.name
		if f.name == "" {
			l.faults.add(f.at, "a policy's name is empty; allowed: 1 to %d printable ASCII characters", stint.MaxNameBytes)
			return true
		}
		if f.value.kind != kindList || len(f.value.items) == 0 {
			l.faults.invalid(path, f.value, fmt.Sprintf("a list of 1 to %d limits", stint.MaxLimits))
			return true
		}
		limits := make([]stint.Limit, 0, len(f.value.items))
		for i, item := range f.value.items {
			limit, ok := l.limit(fmt.Sprintf("%s[%d]", path, i), item, stint.Limit{})
			if ok {
				limits = append(limits, limit)
			}
		}
		if len(limits) == len(f.value.items) {
			l.policy(f, limits)
		}
		return true
	}, []string{"policies by name"})
}

// policy takes over limits that are sound each alone.
func (l *loader) policy(f field, limits []stint.Limit) {
	_, err := stint.NewPolicy(f.name, limits...)
	for _, invalid := range invalids(err) {
		at, place := f.at, 0
		if _, err := fmt.Sscanf(invalid.Param, "limit %d:", &place); err == nil {
			at = f.value.items[place].at
		}
		l.faults.add(at, "policies.%s: %v", f.name, invalid)
	}
	if err == nil {
		l.config.Policies[f.name] = limits
	}
}

// fieldNames lists what a limit may be told. Without an algorithm it is
// everything.
func fieldNames(algorithm stint.Algorithm) []string {
	switch algorithm {
	case stint.AlgorithmTokenBucket:
		return []string{"name", "capacity", "refill", "max_debt", "lease"}
	case stint.AlgorithmLeakyBucket:
		return []string{"name", "capacity", "leak", "max_debt"}
	case stint.AlgorithmFixedWindow:
		return []string{"name", "limit", "window", "calendar", "timezone", "max_debt", "lease"}
	case stint.AlgorithmSlidingWindowLog:
		return []string{"name", "limit", "window", "min_interval", "count_denied", "max_debt"}
	case stint.AlgorithmSlidingWindowCounter:
		return []string{"name", "limit", "window", "max_debt"}
	default:
		return []string{
			"name", "capacity", "refill", "leak", "limit", "window", "calendar", "timezone",
			"min_interval", "count_denied", "max_debt", "lease",
		}
	}
}

// limitReader takes the fields of one limit over.
type limitReader struct {
	*loader
	path  string
	limit stint.Limit
	at    map[string]Position // of the fields given
	bad   map[string]bool     // fields that have a fault already
}

// limit reads a limit over a built-in one, or over none: then algorithm has to
// name its kind, and nothing has a default that its algorithm needs. It reports
// whether the limit is sound.
func (l *loader) limit(path string, v value, builtin stint.Limit) (stint.Limit, bool) {
	sound := len(*l.faults)
	r := limitReader{loader: l, path: path, limit: builtin, at: map[string]Position{}, bad: map[string]bool{}}
	if v.kind != kindMapping && (v.kind != kindNull || builtin.Algorithm == 0) {
		l.faults.invalid(path, v, "a mapping with the parameters of a limit")
		return builtin, false
	}
	own := builtin.Algorithm == 0
	if own {
		r.algorithm(v)
	}
	names := fieldNames(r.limit.Algorithm)
	if own {
		names = append([]string{"algorithm"}, names...)
	}
	for _, f := range v.fields {
		r.at[f.name] = f.value.at
		switch {
		case !slices.Contains(names, f.name):
			r.foreign(f, names)
		case f.name != "algorithm":
			r.field(f)
		}
	}
	if r.limit.Algorithm != 0 {
		r.complete(v)
		r.validate(v)
	}
	return r.limit, len(*l.faults) == sound
}

// foreign records a field that the limit can't have.
func (r *limitReader) foreign(f field, names []string) {
	if slices.Contains(fieldNames(0), f.name) {
		r.faults.add(f.at, "%s: %s does not belong to %s; allowed: %s", r.path, f.name, r.limit.Algorithm, strings.Join(names, ", "))
		return
	}
	r.unknown(r.path, f, names)
}

// algorithm reads the limit's algorithm, on which the other fields depend.
func (r *limitReader) algorithm(v value) {
	for _, f := range v.fields {
		if f.name != "algorithm" {
			continue
		}
		algorithm, err := stint.ParseAlgorithm(f.value.text)
		if err != nil || f.value.kind != kindText {
			_, err = stint.ParseAlgorithm("")
			r.faults.invalid(r.path+".algorithm", f.value, allowed(err))
		} else {
			r.limit.Algorithm = algorithm
		}
		return
	}
	_, err := stint.ParseAlgorithm("")
	r.faults.add(v.at, "%s.algorithm is missing; allowed: %s", r.path, allowed(err))
}

// complete records what the limit lacks.
func (r *limitReader) complete(v value) {
	_, calendar := r.at["calendar"]
	_, window := r.at["window"]
	if calendar && !window {
		r.limit.Window = 0 // the built-in one
	}
	lacks := func(name string, missing bool) {
		if _, given := r.at[name]; missing && !given {
			r.bad[name] = true
			r.faults.add(v.at, "%s.%s is missing; a limit of %s needs it", r.path, name, r.limit.Algorithm)
		}
	}
	noRate := r.limit.Rate == stint.Rate{}
	lacks("capacity", r.limit.IsBucket() && r.limit.Capacity == 0)
	lacks("limit", !r.limit.IsBucket() && r.limit.Capacity == 0)
	lacks("refill", r.limit.Algorithm == stint.AlgorithmTokenBucket && noRate)
	lacks("leak", r.limit.Algorithm == stint.AlgorithmLeakyBucket && noRate)
	lacks("window", !r.limit.IsBucket() && r.limit.Window == 0 && !calendar)
}

// validate records what is wrong with the limit beyond its fields' notation.
func (r *limitReader) validate(v value) {
	for _, invalid := range invalids(r.limit.Validate()) {
		name, _, _ := strings.Cut(invalid.Param, " ")
		dot := "."
		if strings.HasPrefix(name, "(") { // about several fields
			name, dot = "", ": "
		}
		if r.bad[name] || name == "" && len(r.bad) > 0 {
			continue
		}
		at, given := r.at[name]
		if !given {
			at = v.at
		}
		r.faults.add(at, "%s%s%v", r.path, dot, invalid)
	}
}

// invalids takes joined and wrapped errors apart.
func invalids(err error) []*stint.InvalidError {
	var all []*stint.InvalidError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, part := range joined.Unwrap() {
			all = append(all, invalids(part)...)
		}
		return all
	}
	var invalid *stint.InvalidError
	if errors.As(err, &invalid) {
		all = append(all, invalid)
	}
	return all
}

// allowed is what an invalid value's error says is allowed.
func allowed(err error) string {
	var invalid *stint.InvalidError
	if errors.As(err, &invalid) {
		return invalid.Allowed
	}
	return err.Error()
}
