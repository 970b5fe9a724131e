package file

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
)

// A parameter is one of a limit, as documents have it.
type parameter struct {
	name   string
	of     []stint.Algorithm // that have it; nil: all
	needed bool
	read   func(*stint.Limit) document.Setter // without its range, which [stint.Limit.Validate] checks
	write  func(*stint.Limit) document.Value  // nothing if it is as by default
}

var (
	tokenBucket = []stint.Algorithm{stint.AlgorithmTokenBucket}
	leakyBucket = []stint.Algorithm{stint.AlgorithmLeakyBucket}
	buckets     = []stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket}
	windows     = []stint.Algorithm{stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowLog, stint.AlgorithmSlidingWindowCounter}
	fixedWindow = []stint.Algorithm{stint.AlgorithmFixedWindow}
	slidingLog  = []stint.Algorithm{stint.AlgorithmSlidingWindowLog}
	leased      = []stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmFixedWindow}
)

// parameters are all of them, in the order in which they are written.
var parameters = []parameter{
	{"name", nil, false, func(l *stint.Limit) document.Setter { return document.Text(&l.Name) }, func(l *stint.Limit) document.Value { return text(l.Name) }},
	{"capacity", buckets, true, readCapacity, writeCapacity},
	{"refill", tokenBucket, true, readRate, writeRate},
	{"leak", leakyBucket, true, readRate, writeRate},
	{"limit", windows, true, readCapacity, writeCapacity},
	{"window", windows, true, func(l *stint.Limit) document.Setter {
		return parsed(&l.Window, stint.ParseDuration, document.KindText, document.KindInteger)
	}, func(l *stint.Limit) document.Value { return duration(l.Window) }},
	{"calendar", fixedWindow, false, func(l *stint.Limit) document.Setter {
		return parsed(&l.Calendar, stint.ParseCalendar, document.KindText)
	}, writeCalendar},
	{"timezone", fixedWindow, false, func(l *stint.Limit) document.Setter { return document.Text(&l.TimeZone) }, func(l *stint.Limit) document.Value { return text(l.TimeZone) }},
	{"min_interval", slidingLog, false, func(l *stint.Limit) document.Setter {
		return parsed(&l.MinInterval, stint.ParseDuration, document.KindText, document.KindInteger)
	}, func(l *stint.Limit) document.Value { return duration(l.MinInterval) }},
	{"count_denied", slidingLog, false, func(l *stint.Limit) document.Setter { return document.Boolean(&l.CountDenied) }, writeCountDenied},
	{"max_debt", nil, false, readMaxDebt, writeMaxDebt},
	{"lease", leased, false, readLease, writeLease},
}

// belongs reports whether a limit of an algorithm may have the parameter, or of any algorithm for 0.
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
	for _, f := range v.Fields {
		r.at[f.Name] = f.Value.At
		switch p := parameterOf(r.limit.Algorithm, f.Name); {
		case f.Name == besides && besides != "", f.Name == "algorithm" && own:
		case p == nil:
			r.foreign(f, own, besides)
		default:
			p.read(&r.limit)(f.Value, func(v document.Value, allowed string) {
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
func (r *limitReader) foreign(f document.Field, own bool, besides string) {
	var names []string
	if own {
		names = append(names, "algorithm")
	}
	for _, p := range parameters {
		if p.belongs(r.limit.Algorithm) {
			names = append(names, p.name)
		}
	}
	if besides != "" {
		names = append(names, besides)
	}
	if parameterOf(0, f.Name) != nil {
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
	for _, p := range parameters {
		_, given := r.at[p.name]
		if p.needed && p.belongs(r.limit.Algorithm) && !given && !(p.name == "window" && calendar) && p.write(&r.limit).Kind == document.KindNull {
			r.bad[p.name] = true
			r.faults.Add(v.At, "%s.%s is missing; a limit of %s needs it", r.path, p.name, r.limit.Algorithm)
		}
	}
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

// writeLimit writes a sound limit by the names that its algorithm's parameters have.
func writeLimit(l *stint.Limit) document.Value {
	const few = 5
	v := document.Value{Kind: document.KindMapping, Fields: make([]document.Field, 0, few)}
	v.Fields = append(v.Fields, document.Field{Name: "algorithm", Value: text(strings.ToLower(l.Algorithm.String()))})
	for i := range parameters {
		p := &parameters[i]
		if !p.belongs(l.Algorithm) {
			continue
		}
		if value := p.write(l); value.Kind != document.KindNull {
			v.Fields = append(v.Fields, document.Field{Name: p.name, Value: value})
		}
	}
	return v
}

// text is a text as a value, nothing if it is empty.
func text(s string) document.Value {
	if s == "" {
		return document.Value{}
	}
	return document.Value{Kind: document.KindText, Text: s}
}

// integer is a number as a value, nothing if it is 0.
func integer(n int64) document.Value {
	if n == 0 {
		return document.Value{}
	}
	return document.Value{Kind: document.KindInteger, Text: strconv.FormatInt(n, 10)}
}

func duration(d time.Duration) document.Value {
	if d == 0 {
		return document.Value{}
	}
	return text(stint.FormatDuration(d))
}

func readCapacity(l *stint.Limit) document.Setter {
	return document.Scalar(fmt.Sprintf("1 to %d", stint.MaxPermits), func(text string) (ok bool) {
		l.Capacity, ok = document.ParseInteger(text)
		return ok
	}, document.KindInteger)
}

func writeCapacity(l *stint.Limit) document.Value { return integer(l.Capacity) }

func readRate(l *stint.Limit) document.Setter {
	return parsed(&l.Rate, stint.ParseRate, document.KindText)
}

func writeRate(l *stint.Limit) document.Value {
	if l.Rate == (stint.Rate{}) {
		return document.Value{}
	}
	return text(l.Rate.String())
}

func writeCalendar(l *stint.Limit) document.Value {
	if l.Calendar == stint.CalendarNone {
		return document.Value{}
	}
	return text(l.Calendar.String())
}

func writeCountDenied(l *stint.Limit) document.Value {
	if !l.CountDenied {
		return document.Value{}
	}
	return document.Value{Kind: document.KindBoolean, Text: "true"}
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

// readMaxDebt reads the bound on debt, of which 0 is none.
func readMaxDebt(l *stint.Limit) document.Setter {
	return document.Scalar(fmt.Sprintf("0 to %d", stint.MaxPermits), func(text string) bool {
		n, ok := document.ParseInteger(text)
		l.MaxDebt = n
		if n == 0 {
			l.MaxDebt = stint.NoDebt
		}
		return ok && n >= 0 && n <= stint.MaxPermits
	}, document.KindInteger)
}

func writeMaxDebt(l *stint.Limit) document.Value {
	if l.MaxDebt == stint.NoDebt {
		return document.Value{Kind: document.KindInteger, Text: "0"}
	}
	return integer(l.MaxDebt)
}

// readLease reads how many permits are leased at a time.
func readLease(l *stint.Limit) document.Setter {
	return document.Scalar("auto, off, or 1 to the capacity", func(text string) bool {
		switch text {
		case "auto":
			l.Lease = stint.LeaseAuto
		case "", "off", "false", "0":
			l.Lease = 0
		default:
			n, ok := document.ParseInteger(text)
			l.Lease = n
			return ok && n > 0
		}
		return true
	}, document.KindText, document.KindBoolean, document.KindInteger, document.KindNull)
}

func writeLease(l *stint.Limit) document.Value {
	if l.Lease == stint.LeaseAuto {
		return text("auto")
	}
	return integer(l.Lease)
}
