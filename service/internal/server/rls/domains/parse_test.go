package domains_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// below indents a descriptor's fields, to be one of a document.
func below(text string) string {
	return "domain: d\ndescriptors:\n  - key: k\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}

const limit = "{unit: hour, requests_per_unit: 1"

// Each fault that the reference service finds is found, and those of what is added, with the place and what is allowed.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
	}{
		{"no mapping", "[]\n", "f.yaml:1:1: "},
		{"no domain", "descriptors: []\n", "f.yaml:1:1: domain is empty; allowed: the name that requests have"},
		{"an empty domain", "domain: \"\"\ndescriptors: []\n", "f.yaml:1:1: domain is empty; allowed: the name that requests have"},
		{"an unknown name", "domain: d\nlimits: []\n", `f.yaml:2:1: "limits" `},
		{"a name in upper case", "Domain: d\n", `f.yaml:1:1: "Domain" `},
		{"an unknown name below", below("ratelimit: {}"), `f.yaml:4:5: "ratelimit" `},
		{"an unknown name in a limit", below("rate_limit: " + limit + ", burst: 2}"), `f.yaml:4:52: "burst" `},
		{"a name twice", "domain: d\ndomain: e\n", "f.yaml:2:1: "},
		{"a domain that is a list", "domain: [d]\n", "f.yaml:1:9: domain is "},
		{"descriptors that are a mapping", "domain: d\ndescriptors: {key: k}\n", "f.yaml:2:14: descriptors is "},
		{"a descriptor that is a text", "domain: d\ndescriptors: [k]\n", "f.yaml:2:15: descriptors[0] is "},
		{"a descriptor that is a list", "domain: d\ndescriptors: [[]]\n", "f.yaml:2:15: descriptors[0] is "},
		{"no key", "domain: d\ndescriptors:\n  - value: v\n", "f.yaml:3:5: descriptors[0].key is empty; allowed: the key of an entry"},
		{"an empty key", "domain: d\ndescriptors:\n  - key: \"\"\n", "f.yaml:3:5: descriptors[0].key is empty; allowed: the key of an entry"},
		{"a key that is a list", "domain: d\ndescriptors:\n  - key: [k]\n", "f.yaml:3:10: descriptors[0].key is "},
		{"a value that is a mapping", below("value: {a: b}"), "f.yaml:4:12: descriptors[0].value is "},
		{"a key twice", "domain: d\ndescriptors:\n  - key: k\n  - key: l\n  - key: k\n", `f.yaml:5:5: descriptors[2]: the key and value "k" are given twice, first at f.yaml:3:5`},
		{"a key and value twice", "domain: d\ndescriptors:\n  - {key: k, value: v}\n  - {key: k, value: v}\n", `f.yaml:4:5: descriptors[1]: the key and value "k_v" are given twice, first at f.yaml:3:5`},
		{"a composite key twice", "domain: d\ndescriptors:\n  - {key: k, value: v}\n  - {key: k_v}\n", `f.yaml:4:5: descriptors[1]: the key and value "k_v" are given twice, first at f.yaml:3:5`},
		{"a key twice below", below("descriptors:\n  - {key: l}\n  - {key: l}"), `f.yaml:6:9: descriptors[0].descriptors[1]: the key and value "l" are given twice, first at f.yaml:5:9`},
		{"a limit that is a number", below("rate_limit: 5"), "f.yaml:4:17: descriptors[0].rate_limit is "},
		{"no unit", below("rate_limit: {requests_per_unit: 5}"), "f.yaml:3:5: descriptors[0].rate_limit.unit is empty; allowed: second, minute, hour, day, week, month or year"},
		{"an empty limit", below("rate_limit: {}"), "f.yaml:3:5: descriptors[0].rate_limit.unit is empty"},
		{"a wrong unit", below("rate_limit: {unit: fortnight, requests_per_unit: 5}"), "f.yaml:4:24: descriptors[0].rate_limit.unit is \"fortnight\"; allowed: second, minute, hour, day, week, month or year"},
		{"the unit unknown", below("rate_limit: {unit: unknown, requests_per_unit: 5}"), "f.yaml:4:24: descriptors[0].rate_limit.unit is \"unknown\""},
		{"a unit with unlimited", below("rate_limit: {unit: hour, unlimited: true}"), `f.yaml:3:5: descriptors[0].rate_limit.unit is "hour"; allowed: none with unlimited`},
		{"unlimited that is a text", below("rate_limit: {unlimited: yes please}"), "f.yaml:4:29: descriptors[0].rate_limit.unlimited is "},
		{"negative requests", below("rate_limit: {unit: hour, requests_per_unit: -1}"), "f.yaml:4:49: descriptors[0].rate_limit.requests_per_unit is -1; allowed: 0 to 4294967295"},
		{"too many requests", below("rate_limit: {unit: hour, requests_per_unit: 4294967296}"), "f.yaml:4:49: descriptors[0].rate_limit.requests_per_unit is 4294967296; allowed: 0 to 4294967295"},
		{"a part of a request", below("rate_limit: {unit: hour, requests_per_unit: 1.5}"), "f.yaml:4:49: descriptors[0].rate_limit.requests_per_unit is 1.5; allowed: 0 to 4294967295"},
		{"requests as a text", below("rate_limit: {unit: hour, requests_per_unit: \"5\"}"), "f.yaml:4:49: descriptors[0].rate_limit.requests_per_unit is "},
		{"an empty name in replaces", below("rate_limit: " + limit + ", replaces: [{name: \"\"}]}"), "f.yaml:3:5: descriptors[0].rate_limit.replaces has an empty name; allowed: names of limits"},
		{"no name in replaces", below("rate_limit: " + limit + ", replaces: [{}]}"), "f.yaml:3:5: descriptors[0].rate_limit.replaces has an empty name"},
		{"replaces itself", below("rate_limit: " + limit + ", name: n, replaces: [{name: m}, {name: n}]}"), `f.yaml:3:5: descriptors[0].rate_limit.replaces has "n", its own name; allowed: those of others`},
		{"replaces of texts", below("rate_limit: " + limit + ", replaces: [n]}"), "f.yaml:4:63: descriptors[0].rate_limit.replaces[0] is "},
		{"replaces that is a text", below("rate_limit: " + limit + ", replaces: n}"), "f.yaml:4:62: descriptors[0].rate_limit.replaces is "},
		{"share_threshold without a star", below("value: v\nshare_threshold: true"), "f.yaml:3:5: descriptors[0].share_threshold is true; allowed: only with a value that has a *"},
		{"share_threshold without a value", below("share_threshold: true"), "f.yaml:3:5: descriptors[0].share_threshold is true; allowed: only with a value that has a *"},
		{"a flag that is a number", below("shadow_mode: 1"), "f.yaml:4:18: descriptors[0].shadow_mode is 1; allowed: true or false"},
		{"quota_mode", below("quota_mode: on call"), "f.yaml:4:17: descriptors[0].quota_mode is "},
		{"detailed_metric", below("detailed_metric: []"), "f.yaml:4:22: descriptors[0].detailed_metric is "},
		{"value_to_metric", below("value_to_metric: {}"), "f.yaml:4:22: descriptors[0].value_to_metric is "},
		{"metadata that is a list", below("metadata: [1]"), "f.yaml:4:15: descriptors[0].metadata is "},
		{"a number in metadata that is none", below("metadata: {a: .inf}"), "f.yaml:4:19: descriptors[0].metadata is "},
		{"an unknown algorithm", below("rate_limit: " + limit + ", algorithm: magic}"), "f.yaml:4:63: descriptors[0].rate_limit.algorithm is \"magic\"; allowed: "},
		{"places in a minute", below("rate_limit: " + limit + ", algorithm: CONCURRENCY}"), "f.yaml:3:5: descriptors[0].rate_limit.unit is \"hour\"; allowed: none with CONCURRENCY, of which requests_per_unit run at once"},
		{"places that count denied requests", below("rate_limit: {requests_per_unit: 5, algorithm: concurrency, accounting: reference}"), "f.yaml:3:5: descriptors[0].rate_limit.accounting is \"reference\"; allowed: atomic with CONCURRENCY"},
		{"too many places", below("rate_limit: {requests_per_unit: 10001, algorithm: concurrency}"), "10001"},
		{"a leaky bucket", below("rate_limit: " + limit + ", algorithm: LEAKY_BUCKET}"), "f.yaml:3:5: descriptors[0].rate_limit.algorithm is LEAKY_BUCKET, and Envoy can't hold a request until its turn; allowed: TOKEN_BUCKET"},
		{"a calendar of a bucket", below("rate_limit: " + limit + ", algorithm: TOKEN_BUCKET, calendar: true}"), "f.yaml:3:5: descriptors[0].rate_limit.calendar is true with TOKEN_BUCKET; allowed: with FIXED_WINDOW"},
		{"a time zone without calendar", below("rate_limit: " + limit + ", time_zone: Europe/Berlin}"), `f.yaml:3:5: descriptors[0].rate_limit.time_zone is "Europe/Berlin"; allowed: with calendar`},
		{"an unknown time zone", below("rate_limit: " + limit + ", calendar: true, time_zone: Mars/Base}"), "f.yaml:3:5: descriptors[0].rate_limit: "},
		{"an unknown accounting", below("rate_limit: " + limit + ", accounting: creative}"), `f.yaml:3:5: descriptors[0].rate_limit.accounting is "creative"; allowed: atomic or reference`},
		{"a broken text", "domain: [\n", "f.yaml:"},
		{"an unknown anchor", "domain: *d\n", "f.yaml:1:9: not YAML: unknown anchor 'd' referenced"},
		{"a tag", "domain: !d d\n", "f.yaml:1:9: tags are not allowed"},
		{"a boolean in quotes", below("shadow_mode: \"true\""), "f.yaml:4:18: descriptors[0].shadow_mode is \"true\"; allowed: true or false, without quotes"},
		{"a boolean of no spelling", below("shadow_mode: yEs"), "f.yaml:4:18: descriptors[0].shadow_mode is \"yEs\"; allowed: true or false, without quotes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			domain, warnings, err := domains.Parse("f.yaml", []byte(test.text))
			if err == nil || domain != nil || warnings != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, %v, %v; want %q in\n%s", domain, warnings, err, test.want, test.text)
			}
		})
	}
}

// All faults of a document are told at once.
func TestAllFaults(t *testing.T) {
	_, _, err := domains.Parse("f.yaml", []byte(`
domain: d
descriptors:
  - key: ""
  - {key: a, rate_limit: {unit: moon, requests_per_unit: -1}}
  - {key: b, shadow_mode: 5}
  - {key: c, odd: 1}
`))
	for _, want := range []string{":4:5: ", ":5:33: ", ":5:58: ", ":6:27: ", ":7:14: "} {
		if err == nil || !strings.Contains(err.Error(), "f.yaml"+want) {
			t.Errorf("no fault at %s in %v", want, err)
		}
	}
}

// A name that has no effect at its place is a warning, with the place.
func TestWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"domain: d\nkey: k\n": "f.yaml:2:1: key has no effect in the document",
		below("unit: hour"):   "f.yaml:4:5: unit has no effect in descriptors[0]",
		below("rate_limit: " + limit + ", shadow_mode: true}"):              "f.yaml:4:52: shadow_mode has no effect in descriptors[0].rate_limit",
		below("rate_limit: " + limit + ", replaces: [{name: n, unit: a}]}"): "f.yaml:4:73: unit has no effect in descriptors[0].rate_limit.replaces[0]",
		below("accounting: atomic"):                                         "f.yaml:4:5: accounting has no effect in descriptors[0]",
	} {
		domain, warnings, err := domains.Parse("f.yaml", []byte(text))
		if err != nil || domain == nil || fmt.Sprint(warnings) != "["+want+"]" {
			t.Errorf("%+v, %v, %v; want the warning %q of\n%s", domain, warnings, err, want, text)
		}
	}
}

// What the reference service reads is read, scalars as they are written.
func TestParse(t *testing.T) {
	domain, warnings, err := domains.Parse("f.yaml", []byte(`
domain: 2024
descriptors:
  - key: remote_address
    value: "10.0.*"
    rate_limit:
      name: per_ip
      unit: MINUTE
      requests_per_unit: 4294967295
      replaces: [{name: global}, {name: other}]
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    value_to_metric: true
    share_threshold: true
    metadata: {any: map, n: 1.5, deep: {list: [true, null, "x"]}}
    descriptors:
      - {key: 8080, value: 007, rate_limit: {unlimited: true}}
      - {key: true, value: "1.50"}
      - key: empty
        value:
        rate_limit:
        descriptors:
  - {key: ban, rate_limit: {unit: Week}}
  - {key: own, rate_limit: {unit: month, requests_per_unit: 3, algorithm: FIXED_WINDOW, calendar: true, time_zone: Europe/Berlin, accounting: reference}}
  - {key: bucket, rate_limit: {unit: second, requests_per_unit: 3, algorithm: TOKEN_BUCKET, accounting: atomic}}
  - {key: log, rate_limit: {unit: day, requests_per_unit: 3, algorithm: SLIDING_WINDOW_LOG}}
  - {key: counter, rate_limit: {unit: year, requests_per_unit: 3, algorithm: SLIDING_WINDOW_COUNTER}}
`))
	if err != nil || warnings != nil {
		t.Fatal(err, warnings)
	}
	want := &domains.Domain{Name: "2024", From: "f.yaml", Descriptors: []domains.Descriptor{
		{
			Key: "remote_address", Value: "10.0.*", ShadowMode: true, QuotaMode: true, DetailedMetric: true, ValueToMetric: true, ShareThreshold: true,
			RateLimit: &domains.RateLimit{Name: "per_ip", Unit: domains.Minute, RequestsPerUnit: 4294967295, Replaces: []string{"global", "other"}},
			Metadata:  map[string]any{"any": "map", "n": 1.5, "deep": map[string]any{"list": []any{true, nil, "x"}}},
			Descriptors: []domains.Descriptor{
				{Key: "8080", Value: "007", RateLimit: &domains.RateLimit{Unlimited: true}}, {Key: "true", Value: "1.50"}, {Key: "empty"},
			},
		},
		{Key: "ban", RateLimit: &domains.RateLimit{Unit: domains.Week}},
		{Key: "own", RateLimit: &domains.RateLimit{
			Unit: domains.Month, RequestsPerUnit: 3, Algorithm: stint.AlgorithmFixedWindow, Calendar: true, TimeZone: "Europe/Berlin", Accounting: domains.Reference,
		}},
		{Key: "bucket", RateLimit: &domains.RateLimit{Unit: domains.Second, RequestsPerUnit: 3, Algorithm: stint.AlgorithmTokenBucket, Accounting: domains.Atomic}},
		{Key: "log", RateLimit: &domains.RateLimit{Unit: domains.Day, RequestsPerUnit: 3, Algorithm: stint.AlgorithmSlidingWindowLog}},
		{Key: "counter", RateLimit: &domains.RateLimit{Unit: domains.Year, RequestsPerUnit: 3, Algorithm: stint.AlgorithmSlidingWindowCounter}},
	}}
	if !reflect.DeepEqual(domain, want) {
		t.Errorf("got  %+v\nwant %+v", domain, want)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n"} {
		if _, _, err := domains.Parse("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "allowed: a mapping") {
			t.Errorf("%q: %v, want that the document is empty", text, err)
		}
	}
}

// A document has bounds: of its depth and of its descriptors.
func TestBounds(t *testing.T) {
	nested := func(levels int) []byte {
		text := "domain: d\n"
		for i := range levels {
			indent := strings.Repeat("  ", i)
			text += indent + "descriptors:\n" + indent + "- key: k\n"
		}
		return []byte(text)
	}
	if _, _, err := domains.Parse("f.yaml", nested(30)); err != nil {
		t.Errorf("30 levels: %v", err)
	}
	if _, _, err := domains.Parse("f.yaml", nested(31)); err == nil || !strings.Contains(err.Error(), "30 levels at most") {
		t.Errorf("31 levels: %v", err)
	}
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range 200_001 {
		fmt.Fprintf(&text, "- key: %d\n", i)
	}
	if _, _, err := domains.Parse("f.yaml", []byte(text.String())); err == nil || !strings.Contains(err.Error(), "200000 in all") {
		t.Errorf("too many descriptors: %.200v", err)
	}
}

// Domains of one name are a fault unless they are merged, and then what they both have is.
func TestValidate(t *testing.T) {
	one := &domains.Domain{Name: "d", From: "1.yaml", Descriptors: []domains.Descriptor{{Key: "a", Value: "b"}, {Key: "c"}}}
	other := &domains.Domain{Name: "d", From: "2.yaml", Descriptors: []domains.Descriptor{{Key: "a_b"}, {Key: "e"}}}
	third := &domains.Domain{Name: "d", From: "3.yaml", Descriptors: []domains.Descriptor{{Key: "e"}}}
	none := &domains.Domain{From: "4.yaml"}
	for _, test := range []struct {
		list  []*domains.Domain
		merge bool
		want  []string
	}{
		{[]*domains.Domain{one}, false, nil},
		{[]*domains.Domain{one, other, none}, false, []string{`2.yaml: the domain "d" is given twice, first in 1.yaml`, "4.yaml: domain is empty; allowed: the name that requests have"}},
		{[]*domains.Domain{one, other}, true, []string{`2.yaml: the key and value "a_b" of the domain "d" are given twice, first in 1.yaml`}},
		{[]*domains.Domain{other, third}, true, []string{`3.yaml: the key and value "e" of the domain "d" are given twice, first in 2.yaml`}},
		{[]*domains.Domain{{Name: "d", From: "0.yaml"}, other, third}, true, []string{`3.yaml: the key and value "e" of the domain "d" are given twice, first in 2.yaml`}},
	} {
		if got := domains.Validate(test.list, test.merge); !reflect.DeepEqual(got, test.want) {
			t.Errorf("merge %t: %q, want %q", test.merge, got, test.want)
		}
		if got := domains.Sound(test.list, test.merge); len(got) != len(test.list)-len(test.want) || len(domains.Validate(got, test.merge)) > 0 {
			t.Errorf("merge %t: of %d with %d faults %d are sound", test.merge, len(test.list), len(test.want), len(got))
		}
	}
	// What is refused makes no other one a fault.
	if got := domains.Sound([]*domains.Domain{one, other, third}, true); !reflect.DeepEqual(got, []*domains.Domain{one, third}) {
		t.Errorf("%d are sound, want the first and the third", len(got))
	}
}

// Descriptors that were not written in a document have the same faults, each with its place.
func TestCheckAll(t *testing.T) {
	faults := domains.CheckAll("descriptors", []domains.Descriptor{
		{Key: "a", Descriptors: []domains.Descriptor{{Key: "b"}, {Key: "", Value: "v"}, {Key: "b"}}},
		{Key: "a"},
		{Key: "c", RateLimit: &domains.RateLimit{Unit: domains.Hour, Unlimited: true, Replaces: []string{""}, Accounting: "odd"}, ShareThreshold: true},
	})
	want := []string{
		"descriptors[0].descriptors[1].key is empty", `descriptors[0].descriptors[2]: the key and value "b" are given twice`,
		`descriptors[1]: the key and value "a" are given twice`, "descriptors[2].share_threshold is true", "descriptors[2].rate_limit.unit is",
		"descriptors[2].rate_limit.replaces has an empty name", "descriptors[2].rate_limit.accounting is",
	}
	if len(faults) != len(want) {
		t.Fatalf("%q, want %q", faults, want)
	}
	for i, fault := range faults {
		if !strings.HasPrefix(fault, want[i]) {
			t.Errorf("%q, want %q", fault, want[i])
		}
	}
}

// The names of units are those of the protocol.
func TestUnits(t *testing.T) {
	for unit, name := range map[domains.Unit]string{1: "second", 2: "minute", 3: "hour", 4: "day", 5: "month", 6: "year", 7: "week"} {
		got, err := domains.ParseUnit(strings.ToUpper(name))
		if err != nil || got != unit || unit.String() != name || !unit.Known() || unit.Length() <= 0 {
			t.Errorf("%s: %d %v, named %s, %v", name, got, err, unit, unit.Length())
		}
	}
	for _, unit := range []domains.Unit{0, 8, 255} {
		if unit.Known() || unit.String() != "unknown" || unit.Length() != 0 {
			t.Errorf("%d is %s", unit, unit)
		}
	}
}

// Every boolean of the format is read as the reference service's library reads it.
func TestBooleans(t *testing.T) {
	flag := func(name, text string) string { return below(name + ": " + text + "\nvalue: \"*\"") }
	limited := func(text string) string { return below("rate_limit: {unlimited: " + text + "}") }
	for _, test := range []struct {
		name string
		text func(text string) string
		is   func(d *domains.Descriptor) bool
	}{
		{"shadow_mode", func(text string) string { return flag("shadow_mode", text) }, func(d *domains.Descriptor) bool { return d.ShadowMode }},
		{"quota_mode", func(text string) string { return flag("quota_mode", text) }, func(d *domains.Descriptor) bool { return d.QuotaMode }},
		{"detailed_metric", func(text string) string { return flag("detailed_metric", text) }, func(d *domains.Descriptor) bool { return d.DetailedMetric }},
		{"value_to_metric", func(text string) string { return flag("value_to_metric", text) }, func(d *domains.Descriptor) bool { return d.ValueToMetric }},
		{"share_threshold", func(text string) string { return flag("share_threshold", text) }, func(d *domains.Descriptor) bool { return d.ShareThreshold }},
		{"unlimited", limited, func(d *domains.Descriptor) bool { return d.RateLimit.Unlimited }},
		{
			"calendar", func(text string) string { return below("rate_limit: " + limit + ", calendar: " + text + "}") },
			func(d *domains.Descriptor) bool { return d.RateLimit.Calendar },
		},
		{
			"metadata", func(text string) string { return below("metadata: {a: " + text + "}") },
			func(d *domains.Descriptor) bool { return d.Metadata["a"] == true },
		},
	} {
		for want, texts := range map[bool]string{
			true: "true True TRUE y Y yes Yes YES on On ON", false: "false False FALSE n N no No NO off Off OFF",
		} {
			for text := range strings.FieldsSeq(texts) {
				domain, warnings, err := domains.Parse("f.yaml", []byte(test.text(text)))
				if !want && test.name == "unlimited" {
					if err == nil || !strings.Contains(err.Error(), "rate_limit.unit is empty") {
						t.Errorf("%s %s: %v", test.name, text, err)
					}
					continue
				}
				if err != nil || warnings != nil || test.is(&domain.Descriptors[0]) != want {
					t.Errorf("%s %s: %+v, %v, %v, want %t", test.name, text, domain, warnings, err, want)
				}
			}
		}
	}
}

// A number that the reference service reads as another one is refused, with what to write.
func TestNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"010":       " in decimal digits: write 8, which Envoy's reference service reads, or 10",
		"0100":      " in decimal digits: write 64, which Envoy's reference service reads, or 100",
		"0x10":      " in decimal digits: write 16",
		"0o17":      " in decimal digits: write 15",
		"0b11":      " in decimal digits: write 3",
		"1_000":     " in decimal digits: write 1000",
		"01_0":      " in decimal digits: write 8, which Envoy's reference service reads, or 10",
		"+5":        " in decimal digits: write 5",
		"1e3":       " in decimal digits: write 1000",
		"08":        " in decimal digits: write 8",
		"1.0":       " in decimal digits: write 1",
		"1.5":       "",
		".inf":      "",
		"-5":        "",
		`"5"`:       "",
		"1:30":      "",
		"0x1G":      "",
		"987654e30": "",
	} {
		_, _, err := domains.Parse("f.yaml", []byte(below("rate_limit: {unit: hour, requests_per_unit: "+text+"}")))
		if want = fmt.Sprintf("stint: f.yaml:4:49: descriptors[0].rate_limit.requests_per_unit is %s; allowed: 0 to 4294967295%s",
			quoted(text), want); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	for text, want := range map[string]uint32{"0": 0, "7": 7, "007": 7, "10": 10, "4294967295": 4294967295, "~": 0, "": 0} {
		domain, _, err := domains.Parse("f.yaml", []byte(below("rate_limit: {unit: hour, requests_per_unit: "+text+"}")))
		if err != nil || domain.Descriptors[0].RateLimit.RequestsPerUnit != want {
			t.Errorf("%q: %+v, %v", text, domain, err)
		}
	}
	for text, want := range map[string]any{
		"5": 5.0, "-5": -5.0, "1.5": 1.5, "1e3": 1000.0, "+1.5": 1.5, "010": ": write 8, which Envoy's reference service reads, or 10", "0x10": ": write 16",
		"1_000": ": write 1000", "+5": ": write 5", "-010": ": write -8, which Envoy's reference service reads, or -10", ".nan": "",
	} {
		domain, _, err := domains.Parse("f.yaml", []byte(below("metadata: {a: "+text+"}")))
		if said, faulty := want.(string); faulty {
			if err == nil || !strings.HasSuffix(err.Error(), "f.yaml:4:19: descriptors[0].metadata is "+text+"; allowed: a decimal number"+said) {
				t.Errorf("%s in metadata: %v, want %s", text, err, said)
			}
		} else if err != nil || domain.Descriptors[0].Metadata["a"] != want {
			t.Errorf("%s in metadata: %+v, %v", text, domain, err)
		}
	}
}

// quoted is a scalar as faults show it.
func quoted(text string) string {
	if text == "1:30" || text == "0x1G" {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// Anchors, aliases and merge keys are read as the reference service's library decodes them into its structs: field after
// field, into the limit that is there. Of several documents the first counts.
func TestAliases(t *testing.T) {
	five := func() *domains.RateLimit { return &domains.RateLimit{Unit: domains.Hour, RequestsPerUnit: 5} }
	for _, test := range []struct {
		text    string
		want    []domains.Descriptor
		warning string
	}{
		{
			"- {key: a, rate_limit: &l {unit: hour, requests_per_unit: 5}}\n- {key: b, rate_limit: *l}",
			[]domains.Descriptor{{Key: "a", RateLimit: five()}, {Key: "b", RateLimit: five()}},
			"",
		},
		{
			"- &a {key: a, shadow_mode: on, rate_limit: {unit: hour, requests_per_unit: 5}}\n- {<<: *a, key: b}",
			[]domains.Descriptor{{Key: "a", ShadowMode: true, RateLimit: five()}, {Key: "b", ShadowMode: true, RateLimit: five()}},
			"",
		},
		{ // a field before the merge key is written over by it
			"- &a {key: a, shadow_mode: on, rate_limit: {unit: hour, requests_per_unit: 5}}\n- {shadow_mode: off, <<: *a, key: b}",
			[]domains.Descriptor{{Key: "a", ShadowMode: true, RateLimit: five()}, {Key: "b", ShadowMode: true, RateLimit: five()}},
			"",
		},
		{ // a limit is filled in, and nothing takes away what was merged
			"- &a {key: a, shadow_mode: on, rate_limit: {unit: day, requests_per_unit: 5}}\n" +
				"- {<<: *a, key: b, shadow_mode: , rate_limit: {unit: hour}}\n- {<<: *a, key: c, rate_limit: }",
			[]domains.Descriptor{
				{Key: "a", ShadowMode: true, RateLimit: &domains.RateLimit{Unit: domains.Day, RequestsPerUnit: 5}},
				{Key: "b", RateLimit: five()},
				{Key: "c", ShadowMode: true},
			},
			"",
		},
		{ // lists are not joined, and metadata is
			"- &a {key: a, metadata: {x: {y: 1}, z: 1}, rate_limit: {unlimited: yes, replaces: [{name: n}, {name: m}]}, descriptors: [{key: l}]}\n" +
				"- {<<: *a, key: b, metadata: {x: {w: 2}}, rate_limit: {replaces: [{name: o}]}, descriptors: [{key: m}]}",
			[]domains.Descriptor{
				{
					Key: "a", Metadata: map[string]any{"x": map[string]any{"y": 1.0}, "z": 1.0}, Descriptors: []domains.Descriptor{{Key: "l"}},
					RateLimit: &domains.RateLimit{Unlimited: true, Replaces: []string{"n", "m"}},
				},
				{
					Key: "b", Metadata: map[string]any{"x": map[string]any{"w": 2.0}, "z": 1.0}, Descriptors: []domains.Descriptor{{Key: "m"}},
					RateLimit: &domains.RateLimit{Unlimited: true, Replaces: []string{"o"}},
				},
			},
			"",
		},
		{
			"- {key: a}\n---\ndomain: second\ndescriptors: [{key: b}]",
			[]domains.Descriptor{{Key: "a"}},
			"f.yaml:5:1: a second document has no effect; only the first of a file is read",
		},
	} {
		domain, warnings, err := domains.Parse("f.yaml", []byte("domain: first\ndescriptors:\n"+test.text+"\n"))
		if err != nil || domain.Name != "first" || !reflect.DeepEqual(domain.Descriptors, test.want) || strings.Join(warnings, "\n") != test.warning {
			t.Errorf("%s\ngot  %+v, %v, %v\nwant %+v, %s", test.text, domain, warnings, err, test.want, test.warning)
		}
	}
	if !domains.Recognize([]byte("domain: &d a\ndescriptors: [{key: *d}]\n---\n[]\n")) {
		t.Error("a domain with an anchor and a second document is not recognized")
	}
}

// A text that aliases make long is refused.
func TestBillionLaughs(t *testing.T) {
	text := "domain: d\ndescriptors:\n- key: a0\n  metadata: &a0 {x: lol}\n"
	for i := 1; i <= 9; i++ {
		fields := ""
		for j := range 10 {
			fields += fmt.Sprintf("%c: *a%d, ", 'a'+j, i-1)
		}
		text += fmt.Sprintf("- key: a%d\n  metadata: &a%d {%s}\n", i, i, fields)
	}
	_, _, err := domains.Parse("f.yaml", []byte(text))
	if err == nil || !strings.Contains(err.Error(), "the aliases stand for too many values; allowed: 400000") || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("got %.500v", err)
	}
}
