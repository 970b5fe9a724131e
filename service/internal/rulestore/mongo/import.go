package mongo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

const (
	// fluxgateCollection holds FluxGate's rules unless the URL names another collection.
	fluxgateCollection = "rate_limit_rules"
	// fluxgateMaxWait is FluxGate's default of wait-for-refill.max-wait-time-ms.
	fluxgateMaxWait = 5 * time.Second
)

// A fluxRule is a document of FluxGate, up to version 0.4. Others are the fields that are not known
// here: each is told of, as it would have an effect in FluxGate.
type fluxRule struct {
	Key        any               `bson:"_id"`
	ID         string            `bson:"id"`
	Name       string            `bson:"name"`
	Enabled    *bool             `bson:"enabled"`
	Set        string            `bson:"ruleSetId"`
	Scope      string            `bson:"scope"`
	Strategy   string            `bson:"keyStrategyId"`
	Policy     string            `bson:"onLimitExceedPolicy"`
	Bands      []fluxBand        `bson:"bands"`
	Attributes bson.M            `bson:"attributes"`
	Tags       []string          `bson:"tags"`
	Priority   int               `bson:"priority"`
	Methods    []string          `bson:"methods"`
	Paths      []string          `bson:"pathPatterns"`
	Except     []string          `bson:"excludePathPatterns"`
	Headers    map[string]string `bson:"headerEquals"`
	Present    []string          `bson:"headerPresent"`
	Others     bson.M            `bson:",inline"`
}

// A fluxBand is one limit of a rule. A band has a length in seconds or milliseconds, or a period of
// the calendar in a zone.
type fluxBand struct {
	Seconds   int64  `bson:"windowSeconds"`
	Millis    int64  `bson:"windowMs"`
	Capacity  int64  `bson:"capacity"`
	Label     string `bson:"label"`
	Algorithm string `bson:"algorithm"`
	Period    string `bson:"quotaPeriod"`
	Zone      string `bson:"zoneId"`
}

// Import reads the rules of FluxGate: the documents of the collection rate_limit_rules, or of the
// one that the URL's option collection names. The rules are sorted by ID, and each is valid by
// itself. The notes name settings that were lost, and documents that were not imported. The error
// wraps stint.ErrInvalid or stint.ErrUnavailable, or is the context's. What can't be taken over
// exactly is noted, so that its author can decide; nothing is guessed silently.
func Import(ctx context.Context, url string) (list []rules.Rule, notes []string, err error) {
	p, err := parse(url, fluxgateCollection)
	if err != nil {
		return nil, nil, err
	}
	c := connection{place: p}
	defer c.Close()
	var docs []bson.Raw
	err = c.call(ctx, func(ctx context.Context, db *mongo.Database) error {
		cursor, err := db.Collection(p.collection).Find(ctx, bson.D{}, options.Find().SetSort(byID(1)))
		if err != nil {
			return err
		}
		return cursor.All(ctx, &docs)
	})
	if err != nil {
		return nil, nil, err
	}
	i := importer{ids: map[string]bool{}}
	if len(docs) == 0 {
		i.note("the collection %s of the database %s is empty", p.collection, p.database)
	}
	for _, doc := range docs {
		i.add(doc)
	}
	slices.SortStableFunc(i.rules, func(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) })
	return i.rules, i.notes, nil
}

// An importer gathers rules.
type importer struct {
	rules []rules.Rule
	notes []string
	// ids are those that are taken.
	ids map[string]bool
}

// note tells what is lost or changed.
func (i *importer) note(format string, args ...any) {
	i.notes = append(i.notes, fmt.Sprintf(format, args...))
}

// add imports one document, or notes why it can't. A rule that is not valid by itself is left out,
// with the reason: the others can be used without it.
func (i *importer) add(doc bson.Raw) {
	var from fluxRule
	if err := bson.Unmarshal(doc, &from); err != nil {
		i.note("the document with _id %s is not imported: %v", doc.Lookup("_id"), err)
		return
	}
	if from.ID == "" {
		from.ID = fmt.Sprint(from.Key)
	}
	rule := rules.Rule{
		ID: i.id(from.ID), Name: from.Name, Set: from.Set, Disabled: from.Enabled != nil && !*from.Enabled,
		Priority: from.Priority, Labels: i.labels(&from),
		Match: rules.Match{Methods: from.Methods, Paths: from.Paths, Except: from.Except, Headers: from.Headers},
	}
	for _, name := range from.Present {
		if rule.Match.Headers == nil {
			rule.Match.Headers = map[string]string{}
		}
		if _, given := rule.Match.Headers[name]; !given {
			rule.Match.Headers[name] = "*"
		}
	}
	faults := []error{i.scope(&rule, &from), i.limits(&rule, &from), patterns(from.Paths), patterns(from.Except)}
	switch from.Policy {
	case "", "REJECT_REQUEST":
	case "WAIT_FOR_REFILL":
		rule.OnExceed, rule.MaxWait = rules.Wait, fluxgateMaxWait
		i.note("rule %q: max_wait is set to 5s, FluxGate's default; FluxGate waits only if wait-for-refill.enabled is true",
			rule.ID)
	default:
		faults = append(faults, stint.Invalid("onLimitExceedPolicy", from.Policy, "REJECT_REQUEST or WAIT_FOR_REFILL"))
	}
	for _, name := range slices.Sorted(maps.Keys(from.Others)) {
		switch name {
		case "_class", "createdAt", "updatedAt":
		default:
			i.note("rule %q: %s is not kept", rule.ID, name)
		}
	}
	err := prefix.Join(faults...)
	if err == nil {
		err = rule.Validate()
	}
	if err != nil {
		i.note("rule %q is not imported: %s", rule.ID, strings.ReplaceAll(prefix.Trim(err.Error()), "\n", "; "))
		return
	}
	i.rules = append(i.rules, rule)
}

// id makes a valid and unique ID.
func (i *importer) id(from string) string {
	clean := strings.Map(func(c rune) rune {
		if c < 0x80 && (strings.ContainsRune("-_.:", c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' ||
			'0' <= c && c <= '9') {
			return c
		}
		return '-'
	}, from)
	clean = clean[:min(len(clean), bounds.MaxIDBytes-4)]
	id := clean
	for n := 2; i.ids[id] || id == "." || id == ".." || id == ""; n++ {
		id = fmt.Sprintf("%s-%d", clean, n)
	}
	i.ids[id] = true
	if id != from {
		i.note("rule %q: the ID %q is taken or has other characters, so it is changed", id, from)
	}
	return id
}

// labels keep the document's other descriptive fields.
func (i *importer) labels(from *fluxRule) map[string]string {
	labels := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(from.Attributes)) {
		switch value := from.Attributes[name].(type) {
		case nil:
		case string:
			labels[name] = value
		case bool, int32, int64, float64:
			labels[name] = fmt.Sprint(value)
		default:
			i.note("rule %q: the attribute %s is not kept, because a label is one text", from.ID, name)
		}
	}
	if len(from.Tags) > 0 {
		labels["tags"] = strings.Join(from.Tags, ",")
	}
	return labels
}

// scope converts the scope. FluxGate counts requests without a value by address.
func (i *importer) scope(rule *rules.Rule, from *fluxRule) error {
	rule.Missing = rules.MissingIP
	switch from.Scope {
	case "GLOBAL":
		rule.Scope, rule.Missing = []string{rules.Global}, rules.MissingUnset
	case "PER_USER":
		rule.Scope = []string{rules.PerUser}
	case "PER_API_KEY":
		rule.Scope = []string{rules.PerAPIKey}
	case "CUSTOM":
		rule.Scope = []string{rules.Custom(from.Strategy)}
		if from.Strategy != "" {
			break
		}
		i.note("rule %q: CUSTOM without keyStrategyId counts addresses, as in FluxGate", rule.ID)
		fallthrough
	case "", "PER_IP":
		rule.Scope, rule.Missing = []string{rules.PerIP}, rules.MissingUnset
	default:
		return stint.Invalid("scope", from.Scope, "GLOBAL, PER_IP, PER_USER, PER_API_KEY or CUSTOM")
	}
	return nil
}

// limits makes a limit of each band.
func (i *importer) limits(rule *rules.Rule, from *fluxRule) error {
	var faults []error
	names := map[string]bool{}
	for _, band := range from.Bands {
		window := time.Duration(band.Seconds)*time.Second + time.Duration(band.Millis)*time.Millisecond
		var limit stint.Limit
		switch band.Algorithm {
		case "", "TOKEN_BUCKET":
			limit = stint.TokenBucket(band.Capacity, stint.Per(band.Capacity, window))
		case "SLIDING_WINDOW":
			limit = stint.SlidingWindowCounter(band.Capacity, window)
		case "FIXED_WINDOW":
			limit = stint.FixedWindow(band.Capacity, window)
		default:
			faults = append(faults, stint.Invalid("algorithm", band.Algorithm, "TOKEN_BUCKET, SLIDING_WINDOW or FIXED_WINDOW"))
			continue
		}
		if band.Period != "" {
			calendar, ok := map[string]stint.Calendar{
				"DAILY": stint.CalendarDay, "WEEKLY": stint.CalendarWeek, "MONTHLY": stint.CalendarMonth,
			}[band.Period]
			if !ok || band.Algorithm != "FIXED_WINDOW" {
				faults = append(faults, stint.Invalid("quotaPeriod", band.Period, "DAILY, WEEKLY or MONTHLY, with FIXED_WINDOW"))
				continue
			}
			limit = stint.CalendarWindow(band.Capacity, calendar, band.Zone)
		}
		name := i.limitName(rule.ID, band, len(from.Bands) > 1)
		for names[name] {
			name += "-2"
		}
		names[name] = true
		rule.Limits = append(rule.Limits, limit.Named(name))
	}
	return prefix.Join(faults...)
}

// limitName is a band's label if it is a valid name of a limit. Of several limits each needs a
// name.
func (i *importer) limitName(id string, band fluxBand, several bool) string {
	name := strings.TrimSpace(band.Label)
	if len(name) > bounds.MaxNameBytes || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		i.note(
			"rule %q: the label %q is not kept, because a limit's name is up to %d bytes of ASCII", id, name,
			bounds.MaxNameBytes,
		)
		name = ""
	}
	if name == "" && several {
		name = fmt.Sprintf(
			"%d-per-%s", band.Capacity,
			duration.Format(time.Duration(band.Seconds)*time.Second+time.Duration(band.Millis)*time.Millisecond),
		)
	}
	return name
}

// patterns reports patterns that have another meaning in stint.
func patterns(list []string) error {
	var faults []error
	for _, pattern := range list {
		for segment := range strings.SplitSeq(strings.TrimSuffix(pattern, "/**"), "/") {
			if strings.Contains(segment, "?") || strings.Contains(segment, "*") && segment != "*" {
				faults = append(faults, stint.Invalid("the pattern", pattern, "* for a whole segment, and /** at the end"))
				break
			}
		}
	}
	return prefix.Join(faults...)
}
