package rules

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/spell"
)

// A Fault is one thing that is wrong with a rule of a list. It wraps what is wrong, so that
// errors.Is(err, stint.ErrInvalid) holds.
type Fault struct {
	// Index is the rule's place in the list.
	Index int
	// ID is the rule's, as far as it has one.
	ID string
	// Param is the part of the rule, such as match.path or limits[1].
	Param string
	// Err is what is wrong with it.
	Err error
}

// maxShownID bounds, in bytes, what is repeated of an ID that is too long.
const maxShownID = bounds.MaxIDBytes

// Error reads: stint: rule "login": scope is "per_moon"; allowed: …
func (f *Fault) Error() string {
	if f.ID == "" {
		return prefix.Errorf("rule %d: %v", f.Index, f.Err).Error()
	}
	return prefix.Errorf("rule %q: %v", clip.To(maxShownID, f.ID), f.Err).Error()
}

// Unwrap returns what is wrong.
func (f *Fault) Unwrap() error { return f.Err }

// plain is what came, in words that a fault shows without quotes.
type plain string

// missing is what came where there is nothing.
const missing plain = "missing"

// faults gathers what is wrong with one rule. All that is wrong is gathered, so that one look at
// the answer mends a document. bits is known when rules are compiled for a set only.
type faults struct {
	index int
	id    string
	bits  int // by which IPv6 clients are counted; 0 is not known
	all   []error
}

// add notes a fault of a parameter.
func (f *faults) add(param string, err error) {
	f.all = append(f.all, &Fault{Index: f.index, ID: f.id, Param: param, Err: err})
}

func (f *faults) invalid(param string, value any, allowed string) {
	f.add(param, stint.Invalid(param, value, allowed))
}

// atMost notes a list of more than so many.
func (f *faults) atMost(param string, n, most int, of string) {
	if n > most {
		f.invalid(param, n, fmt.Sprintf("at most %d %s", most, of))
	}
}

// permits notes a number of permits that is none: below the least, or above what any limit may have.
func (f *faults) permits(param string, n, least int64) {
	if n < least || n > bounds.MaxPermits {
		f.invalid(param, n, fmt.Sprintf("%d to %d", max(least, 1), bounds.MaxPermits))
	}
}

const (
	// They bound what a single rule may cost in memory and in matching; what people write by hand is
	// far below.
	maxMethods   = 16
	maxHeaders   = 16
	maxLabels    = 64
	maxScope     = 8
	maxOverrides = 10_000
	maxText      = 256
	maxPatterns  = 64
	maxWaiters   = 10_000
)

// Validate reports everything that is wrong with the rule by itself, joined. Each fault wraps
// stint.ErrInvalid. An override may name IPv6 networks of any number of bits here; [Compile] knows
// by how many clients are counted.
func (r *Rule) Validate() error {
	f := faults{id: r.ID}
	r.validate(&f)
	return prefix.Join(f.all...)
}

// validate looks at each part by itself, in the order of documents; what concerns several rules is
// looked at when they are compiled.
func (r *Rule) validate(f *faults) {
	if !isID(r.ID) {
		f.invalid("id", r.ID,
			fmt.Sprintf("1 to %d letters, digits or any of - _ . : and not . or .. alone", bounds.MaxIDBytes))
	}
	for _, text := range [][2]string{{"name", r.Name}, {"set", r.Set}} {
		if len(text[1]) > bounds.MaxTextBytes || !isPrintable(text[1]) {
			f.invalid(text[0], text[1], fmt.Sprintf("up to %d bytes of UTF-8 without control characters", bounds.MaxTextBytes))
		}
	}
	f.atMost("labels", len(r.Labels), maxLabels, "labels")
	r.Match.validate(f)
	r.validateScope(f)
	r.Cost.validate(f, "cost")
	r.validateLimits(f)
	r.validateOutcome(f)
	r.validateCount(f)
	r.validateFamily(f)
	r.validateBlock(f)
	r.validateOverrides(f)
}

// isID reports whether a rule may have the ID. Programs that resolve the dots of paths could not
// reach . and .. in the API. The IDs stand in paths of the API, in names of policies, and in labels
// of metrics.
func isID(id string) bool {
	odd := func(c rune) bool { return !isAlphanumeric(c) && !strings.ContainsRune("-_.:", c) }
	return id != "" && id != "." && id != ".." && len(id) <= bounds.MaxIDBytes && !strings.ContainsFunc(id, odd)
}

func isAlphanumeric(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isPrintable reports whether the text is UTF-8 without control characters.
func isPrintable(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
		}
	}
	return true
}

// isToken reports whether the text can name a method or a header field (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	return text != "" && len(text) <= maxText && !strings.ContainsFunc(text, func(c rune) bool {
		return !isAlphanumeric(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// standardMethods are those of RFC 9110, section 9, and RFC 5789.
var standardMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace, http.MethodPatch,
}

// CheckMethod reports what is wrong with the method of a request, which is compared with its letter case.
func CheckMethod(method string) error {
	if allowed := insteadOfMethod(method); allowed != "" {
		return stint.Invalid("method", method, allowed)
	}
	return nil
}

// insteadOfMethod says what may stand in place of a text that names no method, "" if it names one.
func insteadOfMethod(method string) string {
	if !isToken(method) {
		return "names of methods such as GET"
	}
	if upper := strings.ToUpper(method); upper != method && slices.Contains(standardMethods, upper) {
		return upper + ", as methods are compared with their letter case"
	}
	return ""
}

// validate looks at what requests are matched by. All lists are bounded, and nothing may be there
// twice.
func (m *Match) validate(f *faults) {
	f.atMost("match.methods", len(m.Methods), maxMethods, "methods")
	for i, method := range m.Methods {
		if allowed := insteadOfMethod(method); allowed != "" {
			f.invalid("match.methods", method, allowed)
		} else if slices.Contains(m.Methods[:i], method) {
			f.invalid("match.methods", method, "each method once")
		}
	}
	listPatterns(f, "match.paths", m.Paths, paths, parsePattern)
	listPatterns(f, "match.except", m.Except, paths, parsePattern)
	listPatterns(f, "match.hosts", m.Hosts, hosts, parseHostPattern)
	f.atMost("match.headers", len(m.Headers), maxHeaders, "fields")
	f.atMost("match.attributes", len(m.Attributes), maxHeaders, "attributes")
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		if name == "" || len(name) > maxText {
			f.invalid("match.attributes", name, fmt.Sprintf("names of 1 to %d bytes", maxText))
		}
		of := "match.attributes." + name
		if n := len(m.Attributes[name]); n == 0 || n > maxPatterns {
			f.invalid(of, n, fmt.Sprintf("1 to %d values", maxPatterns))
		}
		for _, value := range m.Attributes[name] {
			if len(value) > maxText {
				f.invalid(of, value, fmt.Sprintf("values of at most %d bytes, or *", maxText))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		value := m.Headers[name]
		if !isToken(name) {
			f.invalid("match.headers", name, "names of header fields")
		}
		if len(value) > maxText || strings.TrimSpace(value) != value {
			f.invalid(
				"match.headers."+name, value, fmt.Sprintf("a value of at most %d bytes without space around it, or *", maxText),
			)
		}
	}
}

// placeOf names a pattern as documents do, where match.path is a single one. A document may have
// match.path in place of a list of one, and its author would look for that.
func placeOf(param string, i, n int) string {
	if n == 1 && param != "match.except" {
		return strings.TrimSuffix(param, "s")
	}
	return fmt.Sprintf("%s[%d]", param, i)
}

// listPatterns reports what is wrong with patterns, which parse takes apart.
func listPatterns[P any](f *faults, param string, texts []string, allowed string, parse func(string) (P, bool)) {
	if len(texts) > maxPatterns {
		f.invalid(param, len(texts), fmt.Sprintf("at most %d", maxPatterns))
		return
	}
	for i, text := range texts {
		at := placeOf(param, i, len(texts))
		if _, ok := parse(text); !ok {
			f.invalid(at, text, allowed)
		} else if slices.Contains(texts[:i], text) {
			f.invalid(at, text, "each once")
		}
	}
}

const scopes = "global, per_ip, per_user, per_api_key or custom:ATTRIBUTE, or a list of them without global"

// A request can lack a user, an API key or an attribute, but neither its address, which a listener
// knows, nor a parameter of the path by which it matched.
func (r *Rule) validateScope(f *faults) {
	if len(r.Scope) == 0 || len(r.Scope) > maxScope {
		came := missing
		if len(r.Scope) > 0 {
			came = plain(fmt.Sprintf("a list of %d", len(r.Scope)))
		}
		f.invalid("scope", came, scopes)
		return
	}
	mayLack := r.PartitionBy != ""
	for i, scope := range r.Scope {
		attribute, custom := strings.CutPrefix(scope, CustomPrefix)
		switch {
		case scope == Global && len(r.Scope) > 1, !IsScope(scope), custom && len(attribute) > maxText:
			f.invalid("scope", scope, scopes)
		case slices.Contains(r.Scope[:i], scope), isPerIP(scope) && r.addressPart() < i:
			f.invalid("scope", scope, "each part once")
		}
		if _, ipv6, _ := Networks(scope); f.bits > 0 && ipv6 > f.bits {
			f.invalid("scope.per_ip.ipv6", ipv6, fmt.Sprintf("1 to %d, by which IPv6 clients are counted (ipv6_prefix)", f.bits))
		}
		if r.hasParameter(scope) {
			r.validateParameter(f, attribute)
		}
		mayLack = mayLack || IsScope(scope) && scope != Global && !isPerIP(scope) && !r.hasParameter(scope)
	}
	switch {
	case r.Missing > MissingIP:
		f.invalid("missing", uint8(r.Missing), "skip, deny or ip")
	case r.Missing == MissingUnset && mayLack:
		f.invalid("missing", plain("not given"),
			"skip, deny or ip: what becomes of a request that lacks what scope or partition_by asks for")
	case r.Missing == MissingIP && r.addressPart() == 0 && len(r.Scope) == 1 && r.PartitionBy == "":
		f.invalid("missing", "ip", "skip or deny, since the scope is the address already")
	case r.MissingStatus != 0 && r.MissingStatus != 401:
		f.invalid("missing_status", strconv.Itoa(r.MissingStatus), "401, or none")
	case r.MissingStatus != 0 && r.Missing != MissingDeny:
		f.invalid("missing_status", strconv.Itoa(r.MissingStatus), "none without missing: deny, by which it is answered")
	case r.Missing != MissingUnset && slices.Contains(r.Scope, Global) && r.PartitionBy == "":
		f.invalid("missing", r.Missing.String(), "none with the scope global, which nothing lacks")
	}
}

// hasParameter reports whether the scope is a parameter of the rule's paths, which no request that matches lacks.
func (r *Rule) hasParameter(scope string) bool {
	name, custom := strings.CutPrefix(scope, CustomPrefix)
	return custom && slices.ContainsFunc(parsePatterns(r.Match.Paths, true),
		func(p pattern) bool { _, ok := p.parameter(name); return ok })
}

// validateParameter reports the paths that lack a parameter that others have, and the scope names.
func (r *Rule) validateParameter(f *faults, name string) {
	for i, text := range r.Match.Paths {
		if p, ok := parsePattern(text); ok {
			if _, ok := p.parameter(name); !ok {
				f.invalid(
					fmt.Sprintf("match.paths[%d]", i), text,
					fmt.Sprintf("a path with {%s}, which the scope counts by, as in the other paths", name),
				)
			}
		}
	}
}

// IsScope reports whether a text is a scope by itself.
func IsScope(scope string) bool {
	switch scope {
	case Global, PerIP, PerUser, PerAPIKey:
		return true
	default:
		if _, _, networks := Networks(scope); networks {
			return true
		}
		return len(scope) > len(CustomPrefix) && strings.HasPrefix(scope, CustomPrefix)
	}
}

// validate looks at a cost; 0 permits mean the default of 1.
func (c *Cost) validate(f *faults, param string) {
	f.permits(param, c.Permits, 0)
	if c.Header != "" && !isToken(c.Header) {
		f.invalid(param+".header", c.Header, "the name of a header field")
	}
	if c.Header != "" && c.Attribute != "" {
		f.invalid(param, "a header and an attribute", "one of them")
	}
	if len(c.Sum) > maxParts || len(c.Sum) > 0 && (c.Permits != 0 || c.Header != "" || c.Attribute != "") {
		f.invalid(param+".sum", plain(fmt.Sprintf("%d parts", len(c.Sum))),
			fmt.Sprintf("up to %d, and nothing beside them", maxParts))
	}
	for i, p := range c.Sum {
		of := fmt.Sprintf("%s.sum[%d]", param, i)
		switch {
		case (p.Header == "") == (p.Attribute == ""):
			f.invalid(of, plain("neither or both"), "a header or an attribute")
		case p.Header != "" && !isToken(p.Header):
			f.invalid(of+".header", p.Header, "the name of a header field")
		case p.Weight < 0 || p.Weight > bounds.MaxPermits:
			f.invalid(of+".weight", p.Weight.String(), "0.001 to 1000000")
		case p.Default < 0 || p.Default > bounds.MaxPermits:
			f.invalid(of+".default", p.Default, fmt.Sprintf("0 to %d", bounds.MaxPermits))
		}
	}
}

// unnamed is what a request costs that names nothing: of a sum, that of the defaults. The cost may have faults.
func (c *Cost) unnamed() int64 {
	if len(c.Sum) == 0 {
		return max(c.Permits, 1)
	}
	sum := int64(0)
	for _, p := range c.Sum[:min(len(c.Sum), maxParts)] {
		sum += min(max(p.Default, 0), bounds.MaxPermits) * int64(min(max(cmp.Or(p.Weight, oneWhole), 0), bounds.MaxPermits))
	}
	return max(inWhole(sum), 1)
}

// maxParts bounds the parts of a cost, so that their sum fits into 64 bits.
const maxParts = 8

// canonical is the cost as requests are asked for it: with canonical names, and what is 0 by default.
func (c Cost) canonical() Cost {
	c.Permits, c.Header = max(c.Permits, 1), http.CanonicalHeaderKey(c.Header)
	c.Sum = slices.Clone(c.Sum)
	for i := range c.Sum {
		p := &c.Sum[i]
		p.Header, p.Weight = http.CanonicalHeaderKey(p.Header), cmp.Or(p.Weight, oneWhole)
	}
	return c
}

// validateLimits sees to it that a rule has limits, or says what it has in their place.
func (r *Rule) validateLimits(f *faults) {
	switch {
	case r.Unlimited && r.Banned:
		f.invalid("banned", true, "not together with unlimited")
	case (r.Unlimited || r.Banned) && len(r.Limits) > 0:
		f.invalid("limits", len(r.Limits), "none with unlimited and banned")
	case r.Unlimited || r.Banned:
	case len(r.Limits) == 0 && r.Within != "":
	case len(r.Limits) == 0:
		f.invalid("limits", missing, fmt.Sprintf("1 to %d limits, or unlimited, banned or within in their place",
			bounds.MaxLimits))
	default:
		r.validateLimitsAt(f, "limits", r.Limits, r.Costs)
	}
}

// validateLimitsAt reports what is wrong with the rule's limits, or an override's. A rule that only
// reserves may have limits that a take could not, so that limits are looked at as the reserve will
// use them.
func (r *Rule) validateLimitsAt(f *faults, param string, limits []stint.Limit, costs []Cost) {
	if len(costs) > 0 && len(costs) != len(limits) {
		f.invalid(param, fmt.Sprintf("%d, with %d costs", len(limits), len(costs)), "a cost for each limit, or none")
	}
	for i := range costs {
		costs[i].validate(f, fmt.Sprintf("%s[%d].cost", param, i))
	}
	limits = r.asReserved(limits, costs)
	for i := range limits {
		var invalid *stint.InvalidError
		if r.reserved(limits) && !r.countsAnswers() && errors.As(limits[i].CanHold(), &invalid) {
			at := fmt.Sprintf("%s[%d].%s", param, i, spell.Document(invalid.Param))
			f.add(at, &stint.InvalidError{Param: at, Value: invalid.Value, Allowed: invalid.Allowed})
		}
	}
	id := r.ID
	if !isID(id) {
		id = "" // which is a fault of its own, and hides none of the limits'
	}
	if _, err := stint.NewPolicy(PolicyPrefix+id, limits...); err != nil {
		f.add(param, prefix.Errorf("%s: %w", param, err))
	}
}

// validateOutcome looks at what becomes of requests beyond the limits: parameters of waiting are
// refused where nothing waits.
func (r *Rule) validateOutcome(f *faults) {
	if r.OnExceed > Mark {
		f.invalid("on_exceed", uint8(r.OnExceed), "reject, wait, shadow or mark")
	}
	if r.OnExceed == Mark {
		r.validateMark(f)
	}
	if r.MarkAt < 0 || r.MarkAt > 100 {
		f.invalid("mark_at", fmt.Sprintf("%d%%", r.MarkAt), "1% to 100%")
	}
	waits := r.OnExceed == Wait
	switch {
	case !waits && r.MaxWait != 0:
		f.invalid("max_wait", r.MaxWait, "only with on_exceed wait")
	case waits && (r.MaxWait < time.Millisecond || r.MaxWait > bounds.MaxWaitLimit):
		most := duration.Format(bounds.MaxWaitLimit)
		f.invalid("max_wait", r.MaxWait, fmt.Sprintf("1ms to %s with on_exceed wait", most))
	}
	switch {
	case !waits && r.MaxWaiters != 0:
		f.invalid("max_waiters", r.MaxWaiters, "only with on_exceed wait")
	case r.MaxWaiters < 0 || r.MaxWaiters > maxWaiters:
		f.invalid("max_waiters", r.MaxWaiters, fmt.Sprintf("1 to %d", maxWaiters))
	}
	switch r.OnStoreFailure {
	case "", FailOpen, FailClosed, FailLocal:
	default:
		f.invalid("on_store_failure", string(r.OnStoreFailure), "open, closed or local")
	}
	if r.Timeout != 0 && (r.Timeout < time.Millisecond || r.Timeout > time.Minute) {
		f.invalid("timeout", r.Timeout, "1ms to 1m")
	}
	if len(r.PartitionBy) > maxText || !isPrintable(r.PartitionBy) {
		f.invalid("partition_by", r.PartitionBy,
			fmt.Sprintf("the name of an attribute, up to %d bytes without control characters", maxText))
	}
	if ttl := r.Reserve.TTL; ttl != 0 && !bounds.IsHoldTTL(ttl) {
		f.invalid("reserve.ttl", ttl, bounds.HoldTTLs)
	}
	if e := r.Reserve.OnExpiry; e != "" && e != Release && e != Keep {
		f.invalid("reserve.on_expiry", string(e), "release or keep")
	}
}

// canBeWay reports whether a limit may be charged, or not, by what it says itself, as one of several ways is.
func canBeWay(l *stint.Limit) bool {
	return l.Algorithm != stint.AlgorithmLeakyBucket && !l.CountDenied && l.Lease == 0
}

// validateMark refuses what can't be charged only if it fits, or is charged in another rule's place.
func (r *Rule) validateMark(f *faults) {
	if r.Within != "" || r.Otherwise != "" {
		f.invalid("on_exceed", "mark", "reject, wait or shadow in a rule with within or otherwise")
	}
	r.eachAdjusted(f, "on_exceed mark")
}

// An override ends within the times that stores know.
var (
	firstUntil = time.Date(1970, time.January, 1, 0, 0, 0, 0, time.UTC)
	lastUntil  = time.Date(2255, time.January, 1, 0, 0, 0, 0, time.UTC).Add(-time.Microsecond)
)

// validateOverrides looks at the clients with limits of their own. Clients are compared by their
// keys, so that two spellings of one are found.
func (r *Rule) validateOverrides(f *faults) {
	if len(r.Overrides) > maxOverrides {
		f.invalid("overrides", len(r.Overrides), fmt.Sprintf("at most %d", maxOverrides))
		return
	}
	seen := make(map[string]bool, len(r.Overrides))
	for i := range r.Overrides {
		o := &r.Overrides[i]
		param := fmt.Sprintf("overrides[%d]", i)
		choices := 0
		for _, chosen := range []bool{len(o.Limits) > 0, o.Unlimited, o.Banned} {
			if chosen {
				choices++
			}
		}
		client, _, err := r.readKey(param+".key", o.Key, f.bits, true)
		if len(r.Scope) == 0 || len(r.Scope) > maxScope { // a fault of its own
			client = o.Key
			_, err = splitKey(param+".key", o.Key, r.shownKey(o.Key))
		}
		if err != nil {
			f.add(param+".key", err)
		} else if seen[client] {
			f.invalid(param+".key", r.shownKey(o.Key), "each client once")
		}
		seen[client] = true
		if !o.Until.IsZero() && (o.Until.Before(firstUntil) || o.Until.After(lastUntil)) {
			f.invalid(param+".until", o.Until.Format(time.RFC3339), "a time of the years 1970 to 2254")
		}
		if choices != 1 {
			f.invalid(param, fmt.Sprintf("%d of limits, unlimited and banned", choices), "exactly one of them")
		} else if len(o.Limits) > 0 {
			r.validateLimitsAt(f, param+".limits", o.Limits, o.Costs)
		}
	}
}
