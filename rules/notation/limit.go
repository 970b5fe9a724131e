package notation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
)

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
	faults *document.Faults
	path   string
	limit  stint.Limit
	at     map[string]document.Position // of the fields given
	bad    map[string]bool              // fields that have a fault already
}

// Limits reads the limits that are decided together, 1 to [stint.MaxLimits] of them. It
// reports whether each alone is sound.
func Limits(path string, v document.Value, faults *document.Faults) ([]stint.Limit, bool) {
	return readLimits(path, v, "", faults)
}

// readLimits is Limits for mappings that may have one more name, which is read elsewhere.
func readLimits(path string, v document.Value, besides string, faults *document.Faults) ([]stint.Limit, bool) {
	if v.Kind != document.KindList || len(v.Items) == 0 || len(v.Items) > stint.MaxLimits {
		faults.Invalid(path, v, fmt.Sprintf("a list of 1 to %d limits", stint.MaxLimits))
		return nil, false
	}
	limits := make([]stint.Limit, 0, len(v.Items))
	for i, item := range v.Items {
		limit, ok := readLimit(fmt.Sprintf("%s[%d]", path, i), item, stint.Limit{}, besides, faults)
		if ok {
			limits = append(limits, limit)
		}
	}
	return limits, len(limits) == len(v.Items)
}

// Limit reads a limit over a built-in one, or over none: then algorithm has to
// name its kind, and nothing has a default that its algorithm needs. It reports
// whether the limit is sound.
func Limit(path string, v document.Value, builtin stint.Limit, faults *document.Faults) (stint.Limit, bool) {
	return readLimit(path, v, builtin, "", faults)
}

func readLimit(path string, v document.Value, builtin stint.Limit, besides string, faults *document.Faults) (stint.Limit, bool) {
	sound := len(*faults)
	r := limitReader{faults: faults, path: path, limit: builtin, at: map[string]document.Position{}, bad: map[string]bool{}}
	if v.Kind != document.KindMapping && (v.Kind != document.KindNull || builtin.Algorithm == 0) {
		faults.Invalid(path, v, "a mapping with the parameters of a limit")
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
	if besides != "" {
		names = append(names, besides)
	}
	for _, f := range v.Fields {
		r.at[f.Name] = f.Value.At
		switch {
		case !slices.Contains(names, f.Name):
			r.foreign(f, names)
		case f.Name != "algorithm" && f.Name != besides:
			r.parameter(f.Name)(f.Value, func(v document.Value, allowed string) {
				r.bad[f.Name] = true
				r.faults.Invalid(r.path+"."+f.Name, v, allowed)
			})
		}
	}
	if r.limit.Algorithm != 0 {
		r.complete(v)
		r.validate(v)
	}
	return r.limit, len(*faults) == sound
}

// foreign records a field that the limit can't have.
func (r *limitReader) foreign(f document.Field, names []string) {
	if slices.Contains(fieldNames(0), f.Name) {
		r.faults.Add(f.At, "%s: %s does not belong to %s; allowed: %s", r.path, f.Name, r.limit.Algorithm, strings.Join(names, ", "))
		return
	}
	r.faults.Unknown(r.path, f, names)
}

// algorithm reads the limit's algorithm, on which the other fields depend.
func (r *limitReader) algorithm(v document.Value) {
	for _, f := range v.Fields {
		if f.Name != "algorithm" {
			continue
		}
		algorithm, err := stint.ParseAlgorithm(f.Value.Text)
		if err != nil || f.Value.Kind != document.KindText {
			_, err = stint.ParseAlgorithm("")
			r.faults.Invalid(r.path+".algorithm", f.Value, allowed(err))
		} else {
			r.limit.Algorithm = algorithm
		}
		return
	}
	_, err := stint.ParseAlgorithm("")
	r.faults.Add(v.At, "%s.algorithm is missing; allowed: %s", r.path, allowed(err))
}

// complete records what the limit lacks.
func (r *limitReader) complete(v document.Value) {
	_, calendar := r.at["calendar"]
	_, window := r.at["window"]
	if calendar && !window {
		r.limit.Window = 0 // the built-in one
	}
	lacks := func(name string, missing bool) {
		if _, given := r.at[name]; missing && !given {
			r.bad[name] = true
			r.faults.Add(v.At, "%s.%s is missing; a limit of %s needs it", r.path, name, r.limit.Algorithm)
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
func (r *limitReader) validate(v document.Value) {
	for _, invalid := range Invalids(r.limit.Validate()) {
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
			at = v.At
		}
		r.faults.Add(at, "%s%s%v", r.path, dot, invalid)
	}
}

// Invalids takes joined and wrapped errors apart, and leaves out those that are
// something else.
func Invalids(err error) []*stint.InvalidError { return Unjoin[*stint.InvalidError](err) }

// Unjoin takes joined errors apart, and leaves out those that neither are an E nor wrap one.
func Unjoin[E error](err error) []E {
	var all []E
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, part := range joined.Unwrap() {
			all = append(all, Unjoin[E](part)...)
		}
		return all
	}
	if one, ok := errors.AsType[E](err); ok {
		all = append(all, one)
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

// parameter is the setter of one of a limit's parameters. The ranges are left to
// [stint.Limit.Validate], but for max_debt.
func (r *limitReader) parameter(name string) document.Setter {
	limit := &r.limit
	switch name {
	case "name":
		return document.Text(&limit.Name)
	case "capacity", "limit":
		return document.Scalar(fmt.Sprintf("1 to %d", stint.MaxPermits), func(text string) (ok bool) {
			limit.Capacity, ok = document.ParseInteger(text)
			return ok
		}, document.KindInteger)
	case "refill", "leak":
		return parsed(&limit.Rate, stint.ParseRate, document.KindText)
	case "window":
		return parsed(&limit.Window, stint.ParseDuration, document.KindText, document.KindInteger)
	case "min_interval":
		return parsed(&limit.MinInterval, stint.ParseDuration, document.KindText, document.KindInteger)
	case "calendar":
		return parsed(&limit.Calendar, stint.ParseCalendar, document.KindText)
	case "timezone":
		return document.Text(&limit.TimeZone)
	case "count_denied":
		return document.Boolean(&limit.CountDenied)
	case "max_debt":
		return maxDebt(&limit.MaxDebt)
	default:
		return lease(&limit.Lease)
	}
}

// parsed reads what a function parses, whose error says what is allowed.
func parsed[T any](field *T, parse func(text string) (T, error), kinds ...document.Kind) document.Setter {
	_, none := parse("")
	return document.Scalar(allowed(none), func(text string) (ok bool) {
		var err error
		*field, err = parse(text)
		return err == nil
	}, kinds...)
}

// maxDebt reads the bound on debt, of which 0 is none.
func maxDebt(field *int64) document.Setter {
	return document.Scalar(fmt.Sprintf("0 to %d", stint.MaxPermits), func(text string) bool {
		n, ok := document.ParseInteger(text)
		*field = n
		if n == 0 {
			*field = stint.NoDebt
		}
		return ok && n >= 0 && n <= stint.MaxPermits
	}, document.KindInteger)
}

// lease reads how many permits are leased at a time.
func lease(field *int64) document.Setter {
	return document.Scalar("auto, off, or 1 to the capacity", func(text string) bool {
		switch text {
		case "auto":
			*field = stint.LeaseAuto
		case "", "off", "false", "0":
			*field = 0
		default:
			n, ok := document.ParseInteger(text)
			*field = n
			return ok && n > 0
		}
		return true
	}, document.KindText, document.KindBoolean, document.KindInteger, document.KindNull)
}
