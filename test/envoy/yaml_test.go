package envoy_test

import "testing"

// TestYAML: booleans in the spellings of YAML 1.1, anchors, aliases, merge keys and a second document in a file are read
// as the reference's library reads them. The summaries are those of the reference.
func TestYAML(t *testing.T) {
	reference, subject := pair(t, files(t, map[string]string{"a.yaml": `
domain: d
descriptors:
  - {key: shadow, shadow_mode: True, rate_limit: &none {unit: year, requests_per_unit: 0}}
  - {key: yes, shadow_mode: yes, rate_limit: *none}
  - {key: off, shadow_mode: Off, rate_limit: *none}
  - {key: free, rate_limit: {unlimited: ON}}
  - {key: share, value: "x*", share_threshold: y, rate_limit: {unit: year, requests_per_unit: 5}}
  - &base {key: base, shadow_mode: on, rate_limit: {name: base, unit: day, requests_per_unit: 5}}
  - {<<: *base, key: same}
  - {shadow_mode: no, <<: *base, key: before}
  - {<<: *base, key: filled, shadow_mode: no, rate_limit: {unit: year}}
  - {<<: *base, key: empty, rate_limit: }
  - {<<: [{shadow_mode: no}, *base], key: first}
  - {key: seven, rate_limit: {unit: year, requests_per_unit: 007}}
---
domain: second
descriptors: [{key: a, rate_limit: {unit: year, requests_per_unit: 0}}]
`}))
	for _, c := range []struct{ domain, key, value, want string }{
		{"d", "shadow", "1", "OK: OK 0/0"},
		{"d", "yes", "1", "OK: OK 0/0"},
		{"d", "off", "1", "OVER_LIMIT: OVER_LIMIT 0/0"},
		{"d", "free", "1", "OK: OK 4294967295"},
		{"d", "share", "x1", "OK: OK 4/5"},
		{"d", "share", "x2", "OK: OK 3/5"},
		{"d", "base", "1", "OK: OK 4/5base"},
		{"d", "same", "1", "OK: OK 4/5base"},
		{"d", "before", "1", "OK: OK 4/5base"},
		{"d", "filled", "1", "OK: OK 4/5base"},
		{"d", "empty", "1", "OK: OK 0"},
		{"d", "first", "1", "OK: OK 4/5base"},
		{"d", "seven", "1", "OK: OK 6/7"},
		{"second", "a", "1", "OK: OK 0"},
	} {
		if _, got := agree(t, reference, subject, requestFor(c.domain, entries(c.key, c.value))); summary(got) != c.want {
			t.Errorf("%s %s=%s: the reference answers %s, want %s", c.domain, c.key, c.value, summary(got), c.want)
		}
	}
	// What is in shadow, and what is not.
	for key, want := range map[string]string{
		"same": "OK: OK 0/5base", "before": "OK: OK 0/5base",
		"filled": "OVER_LIMIT: OVER_LIMIT 0/5base", "first": "OVER_LIMIT: OVER_LIMIT 0/5base",
	} {
		if _, got := agree(t, reference, subject, requestFor("d", taking(6, key, "2"))); summary(got) != want {
			t.Errorf("%s: the reference answers %s, want %s", key, summary(got), want)
		}
	}
}
