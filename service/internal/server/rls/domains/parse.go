package domains

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/notation"
)

// The bounds on one document.
const (
	// They are far above what people write; they keep a file that is made by a mistake from taking the
	// service's memory.
	MaxBytes       = 32 << 20
	MaxDepth       = 30      // levels of descriptors
	MaxDescriptors = 200_000 // on all levels
)

// Parse reads a document, which is one domain, and says what in it has no effect, with the place of
// each: a name that the reference service knows, but not there, or a second document. Fields are read as the reference
// service's YAML library decodes them: one after the other, so that of several, by merge keys, the last counts; a
// rate_limit is filled in, and metadata added to. The error is [document.Faults].
func Parse(source string, data []byte) (domain *Domain, warnings []string, err error) {
	p := &parser{}
	whole, more := document.ParseYAML11(source, data, MaxBytes, &p.faults)
	if more != (document.Position{}) {
		p.warnings = append(p.warnings, fmt.Sprintf(
			"%v: a second document has no effect; only the first of a file is read", more))
	}
	if len(p.faults) == 0 {
		domain = &Domain{From: source}
		p.domain(whole, domain)
	}
	if err := p.faults.Err(); err != nil {
		return nil, nil, err
	}
	return domain, p.warnings, nil
}

// Recognize reports whether a document is a domain, sound or not, and no list of rules.
func Recognize(data []byte) bool {
	var faults document.Faults
	whole, _ := document.ParseYAML11("", data, MaxBytes, &faults)
	_, named := whole.Find("domain")
	return named
}

// Count is how many limits descriptors have, with those below them.
func Count(list []Descriptor) (n int) {
	for i := range list {
		if list[i].RateLimit != nil {
			n++
		}
		n += Count(list[i].Descriptors)
	}
	return n
}

// A parser reads a document. Faults and warnings are gathered over the whole document, each with
// its line and column.
type parser struct {
	faults      document.Faults
	warnings    []string
	descriptors int
}

// mapping hands the fields of a mapping to take, which says whether it knows them. A name that the
// reference service knows at another place is a warning, as there it has no effect either; a name
// that nobody knows is a fault.
func (p *parser) mapping(what string, v document.Value, take func(name string, v document.Value) bool) {
	if v.Kind != document.KindMapping {
		p.faults.Invalid(what, v, "a mapping")
		return
	}
	for _, f := range v.Fields {
		switch {
		case take(f.Name, f.Value):
		case isName(f.Name):
			p.warnings = append(p.warnings, fmt.Sprintf("%v: %s has no effect in %s", f.At, f.Name, what))
		default:
			p.faults.Unknown(what, f, names)
		}
	}
}

// domain reads the top level: the domain's name, which it must have, and its descriptors.
func (p *parser) domain(v document.Value, d *Domain) {
	p.mapping("the document", v, func(name string, v document.Value) bool {
		switch name {
		case "domain":
			p.text("domain", v, &d.Name)
		case "descriptors":
			d.Descriptors = p.list("descriptors", v, 1)
		default:
			return false
		}
		return true
	})
	if d.Name == "" && len(p.faults) == 0 {
		p.faults.Add(v.At, "domain is empty; allowed: the name that requests have")
	}
}

// list reads the descriptors of a level. Siblings with one key and value are a fault: only one of
// them could ever be found.
func (p *parser) list(path string, v document.Value, depth int) []Descriptor {
	if v.Kind == document.KindNull {
		return nil
	}
	if p.descriptors += len(v.Items); v.Kind != document.KindList || depth > MaxDepth || p.descriptors > MaxDescriptors {
		p.faults.Invalid(path, v, fmt.Sprintf("a list of descriptors, %d in all and %d levels at most",
			MaxDescriptors, MaxDepth))
		return nil
	}
	list := make([]Descriptor, len(v.Items))
	seen := map[string]document.Position{}
	for i, item := range v.Items {
		d := &list[i]
		what := fmt.Sprintf("%s[%d]", path, i)
		p.descriptor(what, item, d, depth)
		key := d.Composite()
		if first, twice := seen[key]; twice && d.Key != "" {
			p.faults.Add(item.At, "%s: the key and value %q are given twice, first at %v", what, key, first)
		}
		seen[key] = item.At
	}
	return list
}

// descriptor reads one descriptor with all that is below it, and checks what does not need its
// neighbours.
func (p *parser) descriptor(what string, v document.Value, d *Descriptor, depth int) {
	if v.Kind != document.KindMapping {
		p.faults.Invalid(what, v, "a mapping with a key")
		return
	}
	flags := map[string]*bool{
		"shadow_mode": &d.ShadowMode, "quota_mode": &d.QuotaMode, "detailed_metric": &d.DetailedMetric,
		"value_to_metric": &d.ValueToMetric, "share_threshold": &d.ShareThreshold,
	}
	p.mapping(what, v, func(name string, v document.Value) bool {
		flag := flags[name]
		switch {
		case flag != nil:
			p.boolean(what+"."+name, v, flag)
		case name == "key":
			p.text(what+".key", v, &d.Key)
		case name == "value":
			p.text(what+".value", v, &d.Value)
		case name == "rate_limit":
			p.rateLimit(what+".rate_limit", v, &d.RateLimit)
		case name == "metadata":
			p.metadata(what+".metadata", v, &d.Metadata)
		case name == "descriptors":
			d.Descriptors = p.list(what+".descriptors", v, depth+1)
		default:
			return false
		}
		return true
	})
	for _, fault := range d.check() {
		p.faults.Add(v.At, "%s.%s", what, fault)
	}
}

// rateLimit reads a limit. The fields algorithm, calendar, time_zone and accounting are stint's
// own, which the reference service does not have.
func (p *parser) rateLimit(what string, v document.Value, to **RateLimit) {
	if v.Kind == document.KindNull {
		*to = nil
		return
	}
	if *to == nil {
		*to = &RateLimit{}
	}
	r := *to
	var err error           // of the unit
	var unit document.Value // that was given
	p.mapping(what, v, func(name string, v document.Value) bool {
		path := what + "." + name
		switch name {
		case "name":
			p.text(path, v, &r.Name)
		case "requests_per_unit":
			r.RequestsPerUnit = p.number(path, v)
		case "unit":
			var text string
			r.Unit, err, unit = UnitUnknown, nil, v
			if p.text(path, v, &text); text != "" {
				r.Unit, err = ParseUnit(text)
			}
		case "unlimited":
			p.boolean(path, v, &r.Unlimited)
		case "replaces":
			p.replaces(path, v, &r.Replaces)
		case "algorithm":
			var text string
			p.text(path, v, &text)
			algorithm, err := notation.ParseAlgorithm(text)
			switch {
			case strings.EqualFold(text, stint.AlgorithmConcurrency.String()):
				algorithm = stint.AlgorithmConcurrency
			case err != nil:
				p.faults.Invalid(path, v, fmt.Sprintf("%s, %v", document.Allowed(err), stint.AlgorithmConcurrency))
			}
			r.Algorithm = algorithm
		case "calendar":
			p.boolean(path, v, &r.Calendar)
		case "time_zone":
			p.text(path, v, &r.TimeZone)
		case "accounting":
			var text string
			p.text(path, v, &text)
			r.Accounting = Accounting(text)
		default:
			return false
		}
		return true
	})
	switch {
	case err == nil:
	case r.Unlimited:
		p.warnings = append(p.warnings, fmt.Sprintf("%v: unit has no effect in %s, which is unlimited", unit.At, what))
	default:
		p.faults.Invalid(what+".unit", unit, document.Allowed(err))
		r.Unit = Second // so that it is told once
	}
}

// replaces reads the names of limits that do not hold where this one does.
func (p *parser) replaces(path string, v document.Value, to *[]string) {
	if v.Kind != document.KindList && v.Kind != document.KindNull {
		p.faults.Invalid(path, v, "a list of mappings with a name")
	}
	*to = nil
	for i, item := range v.Items {
		what, name := fmt.Sprintf("%s[%d]", path, i), ""
		p.mapping(what, item, func(field string, v document.Value) bool {
			if field == "name" {
				p.text(what+".name", v, &name)
			}
			return field == "name"
		})
		*to = append(*to, name)
	}
}

// plain is an integer that everybody reads alike. By YAML 1.1, in the reference service, 010 is 8.
var plain = regexp.MustCompile(`^-?([1-9][0-9]*|0*[0-7])$`)

// number reads a limit; nothing is 0. What the reference service may read as another number is a
// fault that says what to write.
func (p *parser) number(path string, v document.Value) uint32 {
	if v.Kind == document.KindNull {
		return 0
	}
	n, err := strconv.ParseUint(v.Text, 10, 32)
	if err != nil || v.Kind != document.KindInteger || !plain.MatchString(v.Text) {
		p.faults.Invalid(path, v, fmt.Sprintf("0 to %d%s", uint32(math.MaxUint32), spelt(v)))
	}
	return uint32(n)
}

// spelt says how to write a number that is not written in decimal digits alone. With leading zeros there are two ways,
// since it may have been meant as it looks.
func spelt(v document.Value) string {
	text := strings.ReplaceAll(strings.TrimPrefix(v.Text, "+"), "_", "")
	n, err := strconv.ParseInt(text, 0, 64)
	looks, failed := strconv.ParseFloat(text, 64)
	whole := failed == nil && looks == math.Trunc(looks) && math.Abs(looks) < 1<<53
	switch {
	case v.Kind != document.KindInteger && v.Kind != document.KindFloat, plain.MatchString(v.Text):
		return ""
	case err == nil && whole && looks != float64(n):
		return fmt.Sprintf(" in decimal digits: write %d, which Envoy's reference service reads, or %.0f", n, looks)
	case err == nil:
		return fmt.Sprintf(" in decimal digits: write %d", n)
	case whole:
		return fmt.Sprintf(" in decimal digits: write %.0f", looks)
	}
	return ""
}

// metadata reads any mapping.
func (p *parser) metadata(path string, v document.Value, to *map[string]any) {
	if v.Kind == document.KindNull {
		*to = nil
		return
	}
	fields, ok := p.any(path, v).(map[string]any)
	if !ok {
		p.faults.Invalid(path, v, "a mapping")
		return
	}
	if *to == nil {
		*to = fields
		return
	}
	maps.Copy(*to, fields)
}

// any is a value as encoding/json has it. Numbers are float64, as in the metadata of Envoy, which
// is a google.protobuf.Struct.
func (p *parser) any(path string, v document.Value) any {
	switch v.Kind {
	case document.KindNull:
		return nil
	case document.KindBoolean:
		return isTrue(v)
	case document.KindInteger, document.KindFloat:
		return p.float(path, v)
	case document.KindList:
		list := make([]any, len(v.Items))
		for i, item := range v.Items {
			list[i] = p.any(path, item)
		}
		return list
	case document.KindMapping:
		fields := make(map[string]any, len(v.Fields))
		for _, f := range v.Fields {
			fields[f.Name] = p.any(path, f.Value)
		}
		return fields
	case document.KindText, document.KindUntyped:
	}
	return v.Text
}

// float reads a number of metadata. An integer has to be written as a limit is.
func (p *parser) float(path string, v document.Value) float64 {
	n, err := strconv.ParseFloat(v.Text, 64)
	if err != nil || math.IsInf(n, 0) || math.IsNaN(n) || v.Kind == document.KindInteger && !plain.MatchString(v.Text) {
		p.faults.Invalid(path, v, "a decimal number"+strings.TrimPrefix(spelt(v), " in decimal digits"))
	}
	return n
}

// text reads a scalar as it is written, such as 8080, which the reference service takes for a text
// as well.
func (p *parser) text(path string, v document.Value, to *string) {
	switch v.Kind {
	case document.KindList, document.KindMapping:
		p.faults.Invalid(path, v, "a text")
		return
	case document.KindFloat:
		p.faults.Invalid(path, v, "a text, in quotes if it looks like a fraction")
		return
	default:
	}
	*to = v.Text
}

// boolean reads a boolean of YAML 1.1, as the reference service does; nothing, as in `unlimited:`,
// is false.
func (p *parser) boolean(path string, v document.Value, to *bool) {
	if v.Kind != document.KindBoolean && v.Kind != document.KindNull {
		p.faults.Invalid(path, v, "true or false, without quotes")
	}
	*to = isTrue(v)
}

// isTrue reports whether a value is true by YAML 1.1, which has several words for it.
func isTrue(v document.Value) bool {
	return v.Kind == document.KindBoolean && slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(v.Text))
}

// Validate reports what does not make sense in domains that came another way than by [Parse]. Two
// may have one name if they are to be merged. All faults are told, each with what it is in. Merged
// domains may not have one key and value twice at the top either.
func Validate(list []*Domain, merge bool) (faults []string) {
	k := known{merge: merge, first: map[string]*Domain{}, given: map[string]map[string]string{}}
	for _, d := range list {
		faults = append(faults, k.faults(d)...)
		k.add(d)
	}
	return faults
}

// Sound is the domains that can be put in force together: all but those that [Validate] finds a fault in beside the
// ones before them.
func Sound(list []*Domain, merge bool) (sound []*Domain) {
	k := known{merge: merge, first: map[string]*Domain{}, given: map[string]map[string]string{}}
	for _, d := range list {
		if len(k.faults(d)) == 0 {
			k.add(d)
			sound = append(sound, d)
		}
	}
	return sound
}

// known is what of domains others may not have.
type known struct {
	merge bool
	first map[string]*Domain           // by name
	given map[string]map[string]string // by name: the first source of each key and value at the top
}

// faults are what a domain has that is known.
func (k *known) faults(d *Domain) (faults []string) {
	switch first := k.first[d.Name]; {
	case d.Name == "":
		return []string{d.From + ": domain is empty; allowed: the name that requests have"}
	case first != nil && !k.merge:
		return []string{fmt.Sprintf("%s: the domain %q is given twice, first in %s", d.From, d.Name, first.From)}
	}
	for _, at := range d.Descriptors {
		if from, twice := k.given[d.Name][at.Composite()]; twice {
			faults = append(faults, fmt.Sprintf("%s: the key and value %q of the domain %q are given twice, first in %s",
				d.From, at.Composite(), d.Name, from))
		}
	}
	return faults
}

// add makes a domain known.
func (k *known) add(d *Domain) {
	if k.first[d.Name] == nil {
		k.first[d.Name], k.given[d.Name] = d, map[string]string{}
	}
	for _, at := range d.Descriptors {
		if given := k.given[d.Name]; k.merge && given[at.Composite()] == "" {
			given[at.Composite()] = d.From
		}
	}
}

// CheckAll reports what does not make sense in descriptors that were not written in a document.
func CheckAll(path string, list []Descriptor) (faults []string) {
	seen := map[string]bool{}
	for i := range list {
		d := &list[i]
		what := fmt.Sprintf("%s[%d]", path, i)
		for _, fault := range d.check() {
			faults = append(faults, what+"."+fault)
		}
		key := d.Composite()
		if seen[key] && d.Key != "" {
			faults = append(faults, fmt.Sprintf("%s: the key and value %q are given twice", what, key))
		}
		seen[key] = true
		faults = append(faults, CheckAll(what+".descriptors", d.Descriptors)...)
	}
	return faults
}

// check reports what does not make sense in a descriptor, without those below it. It is for
// documents and for what comes by xDS alike, so that a faulty limit is refused whichever way it
// came.
func (d *Descriptor) check() (faults []string) {
	add := func(param string, format string, args ...any) {
		faults = append(faults, param+" "+fmt.Sprintf(format, args...))
	}
	if d.Key == "" {
		add("key", "is empty; allowed: the key of an entry")
	}
	if d.ShareThreshold && !strings.Contains(d.Composite(), "*") {
		add("share_threshold", "is true; allowed: only with a value that has a *, whose matches share a counter")
	}
	r := d.RateLimit
	if r == nil {
		return faults
	}
	concurrent := r.Algorithm == stint.AlgorithmConcurrency
	switch {
	case concurrent && r.Unit.Known():
		add("rate_limit.unit", "is %q; allowed: none with CONCURRENCY, of which requests_per_unit run at once", r.Unit)
	case concurrent && r.Accounting == Reference:
		add("rate_limit.accounting", "is %q; allowed: atomic with CONCURRENCY", string(r.Accounting))
	case concurrent:
	case r.Unlimited && r.Unit.Known():
		add("rate_limit.unit", "is %q; allowed: none with unlimited", r.Unit)
	case !r.Unlimited && !r.Unit.Known():
		add("rate_limit.unit", "is empty; allowed: second, minute, hour, day, week, month or year")
	}
	for _, name := range r.Replaces {
		switch name {
		case "":
			add("rate_limit.replaces", "has an empty name; allowed: names of limits")
		case r.Name:
			add("rate_limit.replaces", "has %q, its own name; allowed: those of others", name)
		}
	}
	switch {
	case r.Algorithm == stint.AlgorithmLeakyBucket:
		add("rate_limit.algorithm", "is LEAKY_BUCKET, and Envoy can't hold a request until its turn; allowed: "+
			"TOKEN_BUCKET and the others, with the rate that the requests are to have")
	case r.Calendar && r.Algorithm != 0 && r.Algorithm != stint.AlgorithmFixedWindow:
		add("rate_limit.calendar", "is true with %v; allowed: with FIXED_WINDOW", r.Algorithm)
	case r.TimeZone != "" && !r.Calendar:
		add("rate_limit.time_zone", "is %q; allowed: with calendar", r.TimeZone)
	}
	if r.Accounting != "" && r.Accounting != Atomic && r.Accounting != Reference {
		add("rate_limit.accounting", "is %q; allowed: atomic or reference", string(r.Accounting))
	}
	if len(faults) > 0 || r.Unlimited || r.RequestsPerUnit == 0 {
		return faults
	}
	if limit, err := r.Limit(1); err == nil {
		if err := limit.Validate(); err != nil {
			add("rate_limit:", "%v", err)
		}
	}
	return faults
}
