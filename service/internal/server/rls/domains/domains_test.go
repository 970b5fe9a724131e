package domains_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// A document has all that the reference service knows, and what is added to it.
func TestParse(t *testing.T) {
	got, warnings, err := domains.Parse("web.yaml", []byte(`
domain: web
descriptors:
  - key: remote_address
    value: "10.0.*"
    rate_limit: {name: per_ip, unit: Minute, requests_per_unit: 100, replaces: [{name: global}]}
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    value_to_metric: true
    share_threshold: true
    metadata: {a: [1, true, null, x], b: {c: 2.5}}
    descriptors:
      - {key: port, value: 8080, rate_limit: {unlimited: true}}
      - {key: secure, value: true, descriptors: null}
  - key: month
    rate_limit:
      unit: MONTH
      requests_per_unit: 7
      algorithm: fixed_window
      calendar: true
      time_zone: Europe/Berlin
      accounting: reference
`))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := &domains.Domain{Name: "web", From: "web.yaml", Descriptors: []domains.Descriptor{
		{
			Key: "remote_address", Value: "10.0.*", ShadowMode: true, QuotaMode: true, DetailedMetric: true, ValueToMetric: true, ShareThreshold: true,
			RateLimit: &domains.RateLimit{Name: "per_ip", Unit: domains.Minute, RequestsPerUnit: 100, Replaces: []string{"global"}},
			Metadata:  map[string]any{"a": []any{1.0, true, nil, "x"}, "b": map[string]any{"c": 2.5}},
			Descriptors: []domains.Descriptor{
				{Key: "port", Value: "8080", RateLimit: &domains.RateLimit{Unlimited: true}},
				{Key: "secure", Value: "true"},
			},
		},
		{Key: "month", RateLimit: &domains.RateLimit{
			Unit: domains.Month, RequestsPerUnit: 7, Algorithm: stint.AlgorithmFixedWindow, Calendar: true,
			TimeZone: "Europe/Berlin", Accounting: domains.Reference,
		}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it reads %+v", got)
	}
	if domains.Count(got.Descriptors) != 3 {
		t.Errorf("it has %d limits", domains.Count(got.Descriptors))
	}
}

// Each fault has its place and says what is allowed.
func TestParseFaults(t *testing.T) {
	limit := func(text string) string { return "domain: d\ndescriptors: [{key: a, rate_limit: {" + text + "}}]" }
	for text, want := range map[string]string{
		"":                             "the document is empty; allowed: a mapping",
		"descriptors: []":              "domain is empty",
		"domain: []":                   "domain is an empty list; allowed: a text",
		"- a":                          "the document is a list; allowed: a mapping",
		"domain: d\ndescriptors: 3":    ":2:14: descriptors is 3; allowed: a list of descriptors",
		"domain: d\ndescriptors: [3]":  ":2:15: descriptors[0] is 3; allowed: a mapping",
		"domain: d\ndescriptors: [{}]": "descriptors[0].key is empty",
		"domain: d\ndescriptors: [{key: a, x: 1}]":                             `:2:24: "x" is not a name in descriptors[0]; allowed: domain, key,`,
		"domain: d\ndescriptors: [{key: a}, {key: a}]":                         `descriptors[1]: the key and value "a" are given twice, first at t.yaml:2:15`,
		"domain: d\ndescriptors: [{key: a, value: b_c}, {key: a_b, value: c}]": `the key and value "a_b_c" are given twice`,
		"domain: d\ndescriptors: [{key: a, value: 1.5}]":                       "descriptors[0].value is 1.5; allowed: a text, in quotes",
		"domain: d\ndescriptors: [{key: a, shadow_mode: 1}]":                   "descriptors[0].shadow_mode is 1; allowed: true or false",
		"domain: d\ndescriptors: [{key: a, share_threshold: true}]":            "share_threshold is true; allowed: only with a value that has a *",
		"domain: d\ndescriptors: [{key: a, metadata: 1}]":                      "metadata is 1; allowed: a mapping",
		limit(""):                                                                   "rate_limit.unit is empty; allowed: second,",
		limit("unit: fortnight"):                                                    `rate_limit.unit is "fortnight"; allowed: second, minute, hour, day, week, month or year`,
		limit("unit: unknown"):                                                      `rate_limit.unit is "unknown"`,
		limit("unit: day, unlimited: true"):                                         `rate_limit.unit is "day"; allowed: none with unlimited`,
		limit("unit: day, requests_per_unit: -1"):                                   "requests_per_unit is -1; allowed: 0 to 4294967295",
		limit("unit: day, requests_per_unit: 4294967296"):                           "requests_per_unit is 4294967296",
		limit(`unit: day, requests_per_unit: "5"`):                                  `requests_per_unit is "5"`,
		limit("unit: day, replaces: [{name: ''}]"):                                  "rate_limit.replaces has an empty name",
		limit("unit: day, name: x, replaces: [{name: x}]"):                          `rate_limit.replaces has "x", its own name`,
		limit("unit: day, replaces: [x]"):                                           `rate_limit.replaces[0] is "x"; allowed: a mapping`,
		limit("unit: day, algorithm: leaky_bucket"):                                 "Envoy can't hold a request until its turn; allowed: TOKEN_BUCKET",
		limit("unit: day, algorithm: gcra"):                                         `rate_limit.algorithm is "gcra"`,
		limit("unit: day, algorithm: token_bucket, calendar: true"):                 "rate_limit.calendar is true with TOKEN_BUCKET; allowed: with FIXED_WINDOW",
		limit("unit: day, time_zone: UTC"):                                          "rate_limit.time_zone is \"UTC\"; allowed: with calendar",
		limit("unit: day, accounting: both"):                                        `rate_limit.accounting is "both"; allowed: atomic or reference`,
		limit("unit: day, requests_per_unit: 5, calendar: true, time_zone: Mars/X"): `"Mars/X"`,
		"domain: d\ndescriptors:" + strings.Repeat(" [{key: a, descriptors:", 31) + strings.Repeat("}]", 31): "30 levels at most",
	} {
		_, _, err := domains.Parse("t.yaml", []byte(text))
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s\nsays %v\nwant %s", text, err, want)
		}
	}
}

// What the reference service ignores has no effect here either, and is told.
func TestParseWarnings(t *testing.T) {
	_, warnings, err := domains.Parse("t.yaml", []byte(`
domain: d
unit: day
descriptors:
  - {key: a, name: x, rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}}
  - {key: b, rate_limit: {unlimited: true, unit: fortnight}}
`))
	want := []string{
		"t.yaml:3:7: unit has no effect in the document", "t.yaml:5:20: name has no effect in descriptors[0]",
		"t.yaml:5:82: shadow_mode has no effect in descriptors[0].rate_limit",
		"t.yaml:6:50: unit has no effect in descriptors[1].rate_limit, which is unlimited",
	}
	if err != nil || len(warnings) != len(want) {
		t.Fatalf("%v, %q", err, warnings)
	}
	for i, warning := range warnings {
		_, told, _ := strings.Cut(want[i], ": ")
		if !strings.HasSuffix(warning, told) || !strings.HasPrefix(warning, "t.yaml:") {
			t.Errorf("%q, want %q", warning, want[i])
		}
	}
}

func TestUnits(t *testing.T) {
	for name, length := range map[string]time.Duration{
		"second": time.Second, "MINUTE": time.Minute, "Hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
		"month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
	} {
		unit, err := domains.ParseUnit(name)
		if err != nil || unit.Length() != length || unit.String() != strings.ToLower(name) {
			t.Errorf("%s: %v of %v, %v", name, unit, unit.Length(), err)
		}
	}
	if u := domains.UnitUnknown; u.Known() || u.Length() != 0 || u.String() != "unknown" {
		t.Errorf("unknown: %v of %v", u, u.Length())
	}
	r := domains.RateLimit{Unit: domains.Hour, RequestsPerUnit: 4_000_000_000}
	limit, err := r.Limit(3)
	if want := stint.FixedWindow(stint.MaxPermits, 3*time.Hour).Named("3 hours"); err != nil || limit != want {
		t.Errorf("%+v, %v", limit, err)
	}
	if _, err := r.Limit(1 << 60); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a length beyond all bounds: %v", err)
	}
}

// Whatever is read, the same text is read alike, and nothing panics.
func FuzzParse(f *testing.F) {
	f.Add("domain: web\ndescriptors:\n- key: a\n  value: \"x*\"\n  rate_limit: {unit: day, requests_per_unit: 3, replaces: [{name: b}]}\n  descriptors: [{key: b}]")
	f.Add(`{"domain": "d", "descriptors": [{"key": "a", "metadata": {"x": [1, null]}, "rate_limit": {"unlimited": true, "unit": "x"}}]}`)
	f.Add("domain: d\ndescriptors: [{key: a, rate_limit: {unit: month, requests_per_unit: 1, calendar: true, time_zone: Asia/Seoul, algorithm: fixed_window, accounting: atomic}}]")
	f.Fuzz(func(t *testing.T, text string) {
		one, warned, err := domains.Parse("t.yaml", []byte(text))
		again, warnedAgain, errAgain := domains.Parse("t.yaml", []byte(text))
		if !reflect.DeepEqual(one, again) || !reflect.DeepEqual(warned, warnedAgain) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Fatal("the same text is read otherwise the second time")
		}
		if err != nil {
			if one != nil || !errors.Is(err, stint.ErrInvalid) {
				t.Fatalf("%v, %v", one, err)
			}
			return
		}
		if faults := append(domains.CheckAll("", one.Descriptors), domains.Validate([]*domains.Domain{one}, false)...); len(faults) > 0 {
			t.Fatalf("what was read is no good: %q", faults)
		}
	})
}
