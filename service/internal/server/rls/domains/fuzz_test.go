package domains_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// FuzzParse reads texts. Nothing panics, a text is read the same each time, and what was read is put in force or has
// faults that are told.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "domain: d\n", "domain: d\ndescriptors: []\n", "{}", "[]", "domain: [", "\xff",
		below("value: \"10.0.*\"\nshare_threshold: true\nrate_limit: {unit: minute, requests_per_unit: 100, name: per_ip, replaces: [{name: global}]}"),
		below("rate_limit: {unlimited: true}\nshadow_mode: true\nquota_mode: true\ndetailed_metric: true\nvalue_to_metric: true\nmetadata: {any: map}"),
		below("rate_limit: {unit: month, requests_per_unit: 4294967295, calendar: true, time_zone: UTC, accounting: reference}"),
		below("rate_limit: {unit: year, requests_per_unit: 1000000001, algorithm: SLIDING_WINDOW_LOG}"),
		below("rate_limit: {unit: second, requests_per_unit: 0, algorithm: TOKEN_BUCKET}\ndescriptors: [{key: 1}, {key: 1_0, value: 2}]"),
		below("rate_limit: &l {unit: week}\ndescriptors: [{key: l, rate_limit: *l}]"),
		"domain: d\ndescriptors:\n- &a {key: a, shadow_mode: on, rate_limit: {unit: hour, requests_per_unit: 010}}\n- {<<: *a, key: b, rate_limit: {unit: day}}\n---\n[",
		below("metadata: {a: 1e400, b: 0x10, c: 1_0, d: .nan, \"\": null}"),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		domain, warnings, err := domains.Parse("f.yaml", data)
		again, noted, failed := domains.Parse("f.yaml", data)
		if !reflect.DeepEqual(domain, again) || !reflect.DeepEqual(warnings, noted) || fmt.Sprint(err) != fmt.Sprint(failed) {
			t.Fatalf("read twice:\n%+v %v %v\n%+v %v %v", domain, warnings, err, again, noted, failed)
		}
		if err != nil || domain == nil {
			return
		}
		for _, accounting := range []domains.Accounting{domains.Atomic, domains.Reference} {
			s := must.Get(rls.New(rls.Config{Store: memstore.New(memstore.Config{}), Accounting: accounting}))(t)
			if err := s.Swap([]*domains.Domain{domain}); err != nil {
				t.Fatalf("what was read without a fault is refused: %v\n%+v", err, domain)
			}
			if err := s.Swap([]*domains.Domain{again}); err != nil {
				t.Fatalf("what is in force is refused: %v", err)
			}
			if n, _, loaded := s.Loaded(); n != 1 || !loaded {
				t.Fatalf("%d domains are in force", n)
			}
		}
	})
}
