package rulefile

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// Rules reads the list of rules at path, such as rules. It returns one rule for each item, in
// order, also for those with faults, up to where there are more than [document.MaxFaults]. A fault
// names the rule by its ID, or by its place in the list. What depends on several parameters is left
// to [rules.Compile]. A list that is too long is refused as a whole, before anything in it is read.
func Rules(v document.Value, path string, faults *document.Faults) []rules.Rule {
	if v.Kind != document.KindList && v.Kind != document.KindNull {
		faults.Invalid(path, v, "a list of rules")
		return nil
	}
	if len(v.Items) > bounds.MaxRules {
		faults.Invalid(path, v, fmt.Sprintf("at most %d rules", bounds.MaxRules))
		return nil
	}
	var list []rules.Rule
	if len(*faults) <= document.MaxFaults {
		list = make([]rules.Rule, 0, len(v.Items))
	}
	for i, item := range v.Items {
		sound := len(*faults)
		if sound > document.MaxFaults {
			break
		}
		list = append(list, Rule(item, fmt.Sprintf("%s[%d]", path, i), faults))
		faults.Blame(list[i].ID, sound)
	}
	return list
}

// Rule reads one rule, called by its ID in messages, or path if it has none. Most parameters are
// read by the tags of package rules' fields; costs of limits are not, since stint.Limit has no
// place for them.
func Rule(v document.Value, path string, faults *document.Faults) (rule rules.Rule) {
	if v.Kind != document.KindMapping {
		faults.Invalid(path, v, "a mapping with the parameters of a rule")
		return rule
	}
	if id, _ := v.Find("id"); id.Kind == document.KindText && id.Text != "" {
		path = "rule " + id.String()
	}
	whole := document.Root(path, path+": ")
	kinds.Read(whole, v, &rule, faults)
	rule.Costs = readCosts(whole, v, faults)
	overrides, _ := v.Find("overrides")
	for i := range min(len(overrides.Items), len(rule.Overrides)) {
		rule.Overrides[i].Costs = readCosts(whole.Field("overrides").Item(i), overrides.Items[i], faults)
	}
	return rule
}

// Override reads what holds for a single client. path is what it is called in messages.
func Override(v document.Value, path string, faults *document.Faults) (override rules.Override) {
	whole := document.Root(path, path+".")
	kinds.Read(whole, v, &override, faults)
	override.Costs = readCosts(whole, v, faults)
	return override
}

// readCosts reads the costs of a rule's or an override's limits, nil if none has its own. Limits
// are read without them. If any limit has a cost of its own, all get an entry, of which the zero
// Cost is the default.
func readCosts(path document.Path, of document.Value, faults *document.Faults) (list []rules.Cost) {
	limits, _ := of.Find("limits")
	for i, item := range limits.Items {
		if v, given := item.Find("cost"); given {
			if list == nil {
				list = make([]rules.Cost, len(limits.Items))
			}
			cost(&list[i]).ReadDocument(path.Field("limits").Item(i).Field("cost"), v, faults)
		}
	}
	return list
}

// Written is a rule as a value that [Rule] reads as the same rule. Equal rules are written alike:
// names in one order, and none for what is as by default. A rule with an unsound limit, or a choice
// that has no name, is an error; what else [rules.Compile] refuses is written as it is. What is
// written depends on the rule alone, so that tags and hashes of texts can stand for rules.
func Written(rule rules.Rule) (document.Value, error) {
	switch failure := rule.OnStoreFailure; {
	case rule.Missing > rules.MissingIP:
		return document.Value{}, stint.Invalid("missing", uint8(rule.Missing), "skip, deny or ip")
	case rule.OnExceed > rules.Mark:
		return document.Value{}, stint.Invalid("on_exceed", uint8(rule.OnExceed), "reject, wait, shadow or mark")
	case failure != "" && failure != rules.FailOpen && failure != rules.FailClosed && failure != rules.FailLocal:
		return document.Value{}, stint.Invalid("on_store_failure", string(failure), "open, closed or local")
	}
	for i := range rule.Overrides {
		if err := sound(fmt.Sprintf("overrides[%d].", i), rule.Overrides[i].Limits); err != nil {
			return document.Value{}, err
		}
	}
	if err := sound("", rule.Limits); err != nil {
		return document.Value{}, err
	}
	v := write(&rule)
	v.Kind = document.KindMapping // of the zero rule too
	addCosts(v, rule.Costs)
	overrides, _ := v.Find("overrides")
	for i := range rule.Overrides {
		addCosts(overrides.Items[i], rule.Overrides[i].Costs)
	}
	return v, nil
}

// JSON is [Written] as one line of JSON.
func JSON(rule rules.Rule) ([]byte, error) {
	v, err := Written(rule)
	return v.JSON(), err
}

// WrittenOverride is what holds for one client, as a value that [Override] reads as the same.
func WrittenOverride(override rules.Override) (document.Value, error) {
	if err := sound("", override.Limits); err != nil {
		return document.Value{}, err
	}
	v := write(&override)
	v.Kind = document.KindMapping // of the zero override too
	addCosts(v, override.Costs)
	return v, nil
}

// OverrideJSON is [WrittenOverride] as one line of JSON.
func OverrideJSON(override rules.Override) ([]byte, error) {
	v, err := WrittenOverride(override)
	return v.JSON(), err
}

// addCosts writes the costs of a rule's or an override's limits into these.
func addCosts(of document.Value, costs []rules.Cost) {
	limits, _ := of.Find("limits")
	for i := range min(len(costs), len(limits.Items)) {
		if v := write(&costs[i]); v.Kind != document.KindNull {
			limits.Items[i].Fields = append(limits.Items[i].Fields, document.Field{Name: "cost", Value: v})
		}
	}
}

// sound reports a limit that can't be written.
func sound(of string, limits []stint.Limit) error {
	for i, limit := range limits {
		if err := limit.Validate(); err != nil {
			return prefix.Errorf("%slimits[%d]: %w", of, i, err)
		}
	}
	return nil
}

// write writes a rule, an override or a part of them.
func write(of any) document.Value { return document.Write(of, "", writeOwn) }

// writeOwn writes what the tags don't say.
func writeOwn(of any, is string) (v document.Value, own bool) {
	v.Kind = document.KindText
	switch of := of.(type) {
	case *stint.Limit:
		return writeLimit(of), true
	case *rules.Percent:
		v.Text = fmt.Sprintf("%d%%", *of)
	case *time.Time:
		v.Text = of.Format(time.RFC3339Nano)
	case *rules.Borrow:
		if v.Text = of.Rate.String(); of.Rate.Permits == 0 {
			v.Kind, v.Text = document.KindBoolean, strconv.FormatBool(of.Any)
		}
	case *rules.Cost:
		v.Kind, v.Text = document.KindInteger, fmt.Sprint(of.Permits)
		return v, of.Header == "" && of.Attribute == "" && len(of.Sum) == 0
	case *string: // a scope that counts networks is a mapping
		if is != "scope" || *of == rules.PerIP {
			return v, false
		}
		ipv4, ipv6, own := rules.Networks(*of)
		return write(&networks{perNetwork{ipv4, ipv6}}), own
	case *int: // of statuses, a digit stands for all that begin with it
		if v.Text = fmt.Sprintf("%dxx", *of); *of >= 10 {
			v.Kind, v.Text = document.KindInteger, strconv.Itoa(*of)
		}
		return v, is == "status"
	case *rules.Thousandths:
		if v.Kind, v.Text = document.KindInteger, of.String(); *of%1000 != 0 {
			v.Kind = document.KindFloat
		}
	case *bool:
		v.Text = firstRequest
		return v, is == "start"
	case *int64:
		if v.Text = "auto"; is == "debt" {
			v.Kind, v.Text = document.KindInteger, fmt.Sprint(max(0, *of))
		}
		return v, is == "debt" || is == "lease" && *of == stint.LeaseAuto
	default:
		return v, false
	}
	return v, true
}

// kinds are the kinds that the tags of package rules name. A tag such as is:"borrow" on a field
// leads to the reader of that name here.
var kinds = document.Kinds{
	"texts": func(field any, allowed []string) document.Reader {
		return texts(field.(*[]string), strings.Join(allowed, " "), func(string) bool { return true })
	},
	"scope":  document.Of(scope),
	"values": document.Of(values),
	"cost":   document.Of(cost),
	"count":  document.Of(count),
	"rate":   document.Of(rate),
	"percent": func(field any, args []string) document.Reader {
		return percent(field.(*rules.Percent), args[0], args[1])
	},
	"time":   document.Of(instant),
	"borrow": document.Of(borrow),
	"limits": document.Of(func(field *[]stint.Limit) document.ReaderFunc {
		return func(path document.Path, v document.Value, faults *document.Faults) {
			*field, _ = readLimits(path.String(), v, "cost", faults)
		}
	}),
}

// rate reads permits a time.
func rate(field *stint.Rate) document.Setter {
	return document.Parsed(field, notation.ParseRate, document.KindText)
}

// instant reads a time of day and date, in UTC.
func instant(field *time.Time) document.Setter {
	return document.Scalar("a time such as 2026-12-24T18:00:00Z, with its time zone", func(text string) bool {
		at, err := time.Parse(time.RFC3339, text)
		*field = at.UTC()
		return err == nil
	}, document.KindText)
}

// percent reads a part such as 80%.
func percent(part *rules.Percent, least, most string) document.Setter {
	return document.Scalar(fmt.Sprintf("%s%% to %s%%", least, most), func(text string) bool {
		digits, found := strings.CutSuffix(text, "%")
		n, ok := document.ParseInteger(digits)
		low, _ := document.ParseInteger(least)
		high, _ := document.ParseInteger(most)
		*part = rules.Percent(n)
		return found && ok && n >= low && n <= high
	}, document.KindText)
}

// borrow reads whether clients may borrow, and at most how much. true borrows whatever the parent
// has; a rate bounds it.
func borrow(field *rules.Borrow) document.Setter {
	return document.Scalar("true, false or a rate such as 50/s", func(text string) bool {
		switch text {
		case "true":
			*field = rules.Borrow{Any: true}
		case "false":
			*field = rules.Borrow{}
		default:
			rate, err := notation.ParseRate(text)
			*field = rules.Borrow{Rate: rate}
			return err == nil && rate.Permits > 0
		}
		return true
	}, document.KindText, document.KindBoolean)
}

// values reads a text or a list of texts.
func values(field *[]string) document.Setter {
	read := document.List(field, "texts", func(text string) (string, bool) { return text, utf8.ValidString(text) })
	return func(v document.Value, fault func(document.Value, string)) {
		if v.Kind != document.KindList {
			v = document.Value{Kind: document.KindList, Items: []document.Value{v}, At: v.At}
		}
		read(v, fault)
	}
}

// texts reads a list of texts that are allowed and not empty. Of an empty list it makes none.
func texts(field *[]string, allowed string, is func(text string) bool) document.Setter {
	read := document.List(
		field, allowed, func(text string) (string, bool) { return text, text != "" && utf8.ValidString(text) && is(text) },
	)
	return func(v document.Value, fault func(document.Value, string)) {
		read(v, fault)
		if len(*field) == 0 {
			*field = nil
		}
	}
}

// networks is per_ip as a mapping.
type networks struct {
	PerIP perNetwork `doc:"per_ip"`
}

type perNetwork struct {
	IPv4 int `doc:"ipv4" is:"integer 1 32"`
	IPv6 int `doc:"ipv6" is:"integer 1 128"`
}

// scope reads one scope, or a list of those that make a composite key.
func scope(field *[]string) document.ReaderFunc {
	const allowed = "global, per_ip (or per_ip: {ipv4: 24, ipv6: 56}), per_user, per_api_key or custom:ATTRIBUTE"
	return func(path document.Path, v document.Value, faults *document.Faults) {
		items := v.Items
		if v.Kind == document.KindText || v.Kind == document.KindMapping {
			items = []document.Value{v}
		}
		if len(items) == 0 {
			faults.Invalid(path.String(), v, allowed+", or a list of them")
		}
		for _, item := range items {
			text, sound := item.Text, len(*faults)
			_, _, address := rules.Networks(text)
			valid := item.Kind == document.KindText && rules.IsScope(text) && (!address || text == rules.PerIP) &&
				utf8.ValidString(text)
			if item.Kind == document.KindMapping {
				var of networks
				document.Kinds(nil).Read(path, item, &of, faults)
				text = rules.PerNetwork(of.PerIP.IPv4, of.PerIP.IPv6)
				valid = text != rules.PerIP || len(*faults) > sound
			}
			if valid {
				*field = append(*field, text)
			} else {
				faults.Invalid(path.String(), item, allowed)
			}
		}
	}
}

// cost reads what a request takes: a number, or where to find it. A mapping has header or
// attribute, and perhaps default for requests without it.
func cost(field *rules.Cost) document.ReaderFunc {
	return func(path document.Path, v document.Value, faults *document.Faults) {
		if v.Kind != document.KindMapping {
			document.Integer(&field.Permits, 1, bounds.MaxPermits).ReadDocument(path, v, faults)
			return
		}
		document.Kinds{"thousandths": document.Of(thousandths)}.Read(path, v, field, faults)
		if field.Header == "" && field.Attribute == "" && len(field.Sum) == 0 {
			faults.Add(v.At, "%s has no source; allowed: a number, or a mapping with header, attribute or sum", path)
		}
	}
}

// thousandths reads a number with up to three digits behind the point.
func thousandths(field *rules.Thousandths) document.Setter {
	return document.Scalar("0.001 to 1000000, with up to three digits behind the point", func(text string) bool {
		whole, part, _ := strings.Cut(text, ".")
		n, ok := document.ParseInteger(whole)
		behind, err := strconv.ParseUint((part + "000")[:3], 10, 16)
		*field = rules.Thousandths(1000*n + int64(behind))
		return ok && err == nil && len(part) <= 3 && n >= 0 && n < 1_000_000 && 1000*n+int64(behind) > 0 || text == "1000000"
	}, document.KindInteger, document.KindFloat)
}
