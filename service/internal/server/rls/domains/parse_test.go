package domains_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

var rewrite = flag.Bool("rewrite", false, "write what is said of documents into testdata/faults.txt")

// below indents a descriptor's fields, to be one of a document.
func below(text string) string {
	return "domain: d\ndescriptors:\n  - key: k\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}

const limit = "{unit: hour, requests_per_unit: 1"

// Each fault that the reference service finds is found, and those of what is added, with the place and what is allowed; a
// name that has no effect at its place is a warning. In testdata/faults.txt each document stands under what is wrong with
// it, four blanks in, and before what is said of it, which -rewrite puts in place.
func TestFaults(t *testing.T) {
	const path = "testdata/faults.txt"
	text := must.Get(os.ReadFile(path))(t)
	var out strings.Builder
	for section := range strings.SplitSeq(strings.TrimPrefix(string(text), "# "), "\n# ") {
		var document, want string
		for line := range strings.Lines(strings.TrimSuffix(section, "\n") + "\n") {
			if below, ok := strings.CutPrefix(line, "    "); ok {
				document += below
			} else if document != "" {
				want += line
			}
		}
		domain, warnings, err := domains.Parse("f.yaml", []byte(document))
		said := strings.Join(warnings, "\n") + "\n"
		if err != nil {
			said = strings.TrimPrefix(err.Error(), "stint: ") + "\n"
		}
		if (err == nil) != (domain != nil) || err != nil && warnings != nil || !*rewrite && said != want {
			t.Errorf("%+v, %v, %v; want %s of\n%s", domain, warnings, err, want, section)
		}
		name, _, _ := strings.Cut(section, "\n")
		fmt.Fprintf(&out, "# %s\n    %s\n%s", name, strings.ReplaceAll(strings.TrimSuffix(document, "\n"), "\n", "\n    "), said)
	}
	if *rewrite {
		must.Do(t, os.WriteFile(path, []byte(out.String()), 0o600))
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
	for _, test := range testtable.Rows[struct{ Text, Instead string }](t, "testdata/numbers.txt") {
		_, _, err := domains.Parse("f.yaml", []byte(below("rate_limit: {unit: hour, requests_per_unit: "+test.Text+"}")))
		instead := test.Instead
		if instead != "" {
			instead = " in decimal digits: " + instead
		}
		if want := fmt.Sprintf("stint: f.yaml:4:49: descriptors[0].rate_limit.requests_per_unit is %s; allowed: 0 to 4294967295%s",
			quoted(test.Text), instead); err == nil || err.Error() != want {
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
