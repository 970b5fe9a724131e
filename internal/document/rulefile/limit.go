package rulefile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/spell"
)

// A parameter is one of a limit, as documents have it. The same field may have two names: limit of
// windows is the capacity of buckets, and refill and leak are both the rate.
type parameter struct {
	name   string
	of     []stint.Algorithm // that have it; nil: all
	needed bool
	tag    reflect.StructTag      // how it is read
	field  func(*stint.Limit) any // a pointer to it
}

var (
	tokenBucket = []stint.Algorithm{stint.AlgorithmTokenBucket}
	leakyBucket = []stint.Algorithm{stint.AlgorithmLeakyBucket}
	capacities  = []stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket, stint.AlgorithmConcurrency}
	windows     = []stint.Algorithm{
		stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowLog, stint.AlgorithmSlidingWindowCounter,
	}
	fixedWindow = []stint.Algorithm{stint.AlgorithmFixedWindow}
	slidingLog  = []stint.Algorithm{stint.AlgorithmSlidingWindowLog}
	leased      = []stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmFixedWindow}
)

// firstRequest is the start of windows that begin with a client's first request.
const firstRequest = "first_request"

// parameters are all of them, in the order in which they are written. The order is that of
// documents that stint writes: what the limit is called, how much, how fast, and then options.
var parameters = []parameter{
	{"name", nil, false, "", func(l *stint.Limit) any { return &l.Name }},
	{"capacity", capacities, true, permits, func(l *stint.Limit) any { return &l.Capacity }},
	{"refill", tokenBucket, true, `is:"rate"`, func(l *stint.Limit) any { return &l.Rate }},
	{"leak", leakyBucket, true, `is:"rate"`, func(l *stint.Limit) any { return &l.Rate }},
	{"limit", windows, true, permits, func(l *stint.Limit) any { return &l.Capacity }},
	{"window", windows, true, "", func(l *stint.Limit) any { return &l.Window }},
	{"calendar", fixedWindow, false, `is:"calendar"`, func(l *stint.Limit) any { return &l.Calendar }},
	{"timezone", fixedWindow, false, "", func(l *stint.Limit) any { return &l.TimeZone }},
	{"start", fixedWindow, false, `is:"start"`, func(l *stint.Limit) any { return &l.FirstRequest }},
	{"min_interval", slidingLog, false, "", func(l *stint.Limit) any { return &l.MinInterval }},
	{"count_denied", slidingLog, false, "", func(l *stint.Limit) any { return &l.CountDenied }},
	{"max_debt", notation.Algorithms(), false, `is:"debt"`, func(l *stint.Limit) any { return &l.MaxDebt }},
	{"lease", leased, false, `is:"lease"`, func(l *stint.Limit) any { return &l.Lease }},
	{"cost", nil, false, permits, func(l *stint.Limit) any { return &l.Cost }},
}

// permits is the tag of numbers of them.
const permits = `is:"integer 1 1000000000"`

// limitKinds are the kinds that the tags of parameters name. [stint.Limit.Validate] checks the ranges of all that have
// no such tag.
var limitKinds = document.Kinds{
	"rate": document.Of(rate),
	"calendar": document.Of(func(field *stint.Calendar) document.Setter {
		return document.Parsed(field, notation.ParseCalendar, document.KindText)
	}),
	"start": document.Of(func(field *bool) document.Setter {
		return document.Scalar(firstRequest, func(text string) bool {
			*field = text == firstRequest
			return *field
		}, document.KindText)
	}),
	"debt":  document.Of(debt),
	"lease": document.Of(lease),
}

// written is a parameter as a value; nothing if it is as by default.
func (p *parameter) written(of *stint.Limit) document.Value {
	return document.Write(p.field(of), p.tag, writeOwn)
}

// belongs reports whether a limit of an algorithm may have the parameter, or of any algorithm for
// 0.
func (p *parameter) belongs(algorithm stint.Algorithm) bool {
	return algorithm == 0 || p.of == nil || slices.Contains(p.of, algorithm)
}

// parameterOf is the parameter of a name if a limit of the algorithm may have it, else nil.
func parameterOf(algorithm stint.Algorithm, name string) *parameter {
	for i := range parameters {
		if p := &parameters[i]; p.name == name && p.belongs(algorithm) {
			return p
		}
	}
	return nil
}

// limitReader takes the fields of one limit over. bad holds back faults that follow from others: a
// limit that could not be read is not judged to be too small.
type limitReader struct {
	faults *document.Faults
	path   string
	limit  stint.Limit
	at     map[string]document.Position // of the fields given
	bad    map[string]bool              // fields that have a fault already
}

// Limits reads the limits that are decided together, 1 to 64 of them. It
// reports whether each alone is sound.
func Limits(path string, v document.Value, faults *document.Faults) ([]stint.Limit, bool) {
	return readLimits(path, v, "", faults)
}

// readLimits is Limits for mappings that may have one more name, which is read elsewhere.
func readLimits(path string, v document.Value, besides string, faults *document.Faults) ([]stint.Limit, bool) {
	if v.Kind != document.KindList || len(v.Items) == 0 || len(v.Items) > bounds.MaxLimits {
		faults.Invalid(path, v, fmt.Sprintf("a list of 1 to %d limits", bounds.MaxLimits))
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

// Limit reads a limit over a built-in one, or over none: then algorithm has to name its kind, and
// nothing has a default that its algorithm needs. It reports whether the limit is sound.
func Limit(path string, v document.Value, builtin stint.Limit, faults *document.Faults) (stint.Limit, bool) {
	return readLimit(path, v, builtin, "", faults)
}

// readLimit reads a limit at a path of a document. builtin is what parameters that are left out
// mean: the zero Limit where each limit stands for itself, or a default of which a document changes
// some parameters. It reports whether the limit is sound; what is not is in faults.
func readLimit(
	path string,
	v document.Value,
	builtin stint.Limit,
	besides string,
	faults *document.Faults,
) (stint.Limit, bool) {
	sound := len(*faults)
	r := limitReader{
		faults: faults,
		path:   path,
		limit:  builtin,
		at:     map[string]document.Position{},
		bad:    map[string]bool{},
	}
	if v.Kind != document.KindMapping && (v.Kind != document.KindNull || builtin.Algorithm == 0) {
		faults.Invalid(path, v, "a mapping with the parameters of a limit")
		return builtin, false
	}
	own := builtin.Algorithm == 0
	if own {
		r.algorithm(v)
	}
	for _, f := range v.Fields {
		r.at[f.Name] = f.Value.At
		switch p := parameterOf(r.limit.Algorithm, f.Name); {
		case f.Name == besides && besides != "", f.Name == "algorithm" && own:
		case p == nil, p.name == "cost" && !own:
			r.foreign(f, own, besides)
		default:
			sound := len(*faults)
			limitKinds.ReadField(document.Root(path+"."+f.Name, ""), f.Value, p.field(&r.limit), p.tag, faults)
			if len(*faults) > sound {
				r.bad[f.Name] = true
			}
		}
	}
	if r.limit.Algorithm != 0 {
		r.complete(v)
		r.validate(v)
	}
	return r.limit, len(*faults) == sound
}

// foreign records a field that the limit can't have. A name that another algorithm has is told
// apart from one that nobody has, which may be misspelt.
func (r *limitReader) foreign(f document.Field, own bool, besides string) {
	var names []string
	if own {
		names = append(names, "algorithm")
	}
	for _, p := range parameters {
		if p.belongs(r.limit.Algorithm) && p.name != besides && (p.name != "cost" || own) {
			names = append(names, p.name)
		}
	}
	if besides != "" {
		names = append(names, besides)
	}
	if parameterOf(0, f.Name) != nil {
		r.faults.Add(
			f.At, "%s: %s does not belong to %s; allowed: %s", r.path, f.Name, r.limit.Algorithm, strings.Join(names, ", "),
		)
		return
	}
	r.faults.Unknown(r.path, f, names)
}

// algorithm reads the limit's algorithm, on which the other fields depend.
func (r *limitReader) algorithm(v document.Value) {
	value, given := v.Find("algorithm")
	algorithm, err := notation.ParseAlgorithm(value.Text)
	text := value.Kind == document.KindText
	switch {
	case !given:
		r.faults.Add(v.At, "%s.algorithm is missing; allowed: %s", r.path, algorithms())
	case text && strings.EqualFold(value.Text, "sliding_window"):
		r.faults.Invalid(r.path+".algorithm", value,
			"sliding_window_log, which is exact, or sliding_window_counter, which takes less memory")
	case text && strings.EqualFold(value.Text, stint.AlgorithmConcurrency.String()):
		r.limit.Algorithm = stint.AlgorithmConcurrency
	case err != nil || !text:
		r.faults.Invalid(r.path+".algorithm", value, algorithms())
	default:
		r.limit.Algorithm = algorithm
	}
}

// algorithms lists those that a limit may have.
func algorithms() string {
	_, err := notation.ParseAlgorithm("")
	return fmt.Sprintf("%s, %s", document.Allowed(err), stint.AlgorithmConcurrency)
}

// complete records what the limit lacks. A window that a document leaves out stays the built-in
// one, unless the document gives a calendar in its place.
func (r *limitReader) complete(v document.Value) {
	_, calendar := r.at["calendar"]
	_, window := r.at["window"]
	if calendar && !window {
		r.limit.Window = 0 // the built-in one
	}
	for _, p := range parameters {
		_, given := r.at[p.name]
		if p.needed && p.belongs(r.limit.Algorithm) && !given && (p.name != "window" || !calendar) &&
			p.written(&r.limit).Kind == document.KindNull {
			r.bad[p.name] = true
			r.faults.Add(v.At, "%s.%s is missing; a limit of %s needs it", r.path, p.name, r.limit.Algorithm)
		}
	}
}

// validate records what is wrong with the limit beyond how its fields are written. A fault about
// several parameters is told where the limit stands, and only if each of them is sound.
func (r *limitReader) validate(v document.Value) {
	for _, invalid := range Unjoin[*stint.InvalidError](r.limit.Validate()) {
		name, _, _ := strings.Cut(spell.Document(invalid.Param), " ")
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
		r.faults.Add(at, "%s%s%s", r.path, dot, spell.Document(prefix.Trim(invalid.Error())))
	}
}

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

// writeLimit writes a sound limit by the names that its algorithm's parameters have. It is read
// again as the same limit.
func writeLimit(l *stint.Limit) document.Value {
	const few = 5
	v := document.Value{Kind: document.KindMapping, Fields: make([]document.Field, 0, few)}
	v.Fields = append(v.Fields, document.Field{
		Name:  "algorithm",
		Value: document.Value{Kind: document.KindText, Text: strings.ToLower(l.Algorithm.String())},
	})
	for i := range parameters {
		p := &parameters[i]
		if !p.belongs(l.Algorithm) {
			continue
		}
		if value := p.written(l); value.Kind != document.KindNull {
			v.Fields = append(v.Fields, document.Field{Name: p.name, Value: value})
		}
	}
	return v
}

// debt reads the bound on debt, of which 0 is none. 0 says that there may be no debt; a
// parameter that is left out means the algorithm's default.
func debt(field *int64) document.Setter {
	return document.Scalar(fmt.Sprintf("0 to %d", bounds.MaxPermits), func(text string) bool {
		n, ok := document.ParseInteger(text)
		*field = n
		if n == 0 {
			*field = stint.NoDebt
		}
		return ok && n >= 0 && n <= bounds.MaxPermits
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
