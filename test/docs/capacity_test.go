package docs_test

import (
	"strings"
	"testing"
)

// TestCapacityQuotes: the figures of a quiet machine are those of the pages that measure them.
func TestCapacityQuotes(t *testing.T) {
	page := pages(t)["docs/capacity.md"]
	for name, figures := range map[string][]string{
		"README.md":                    {"957,994", "229,813", "7,560,290", "45.2 bytes", "72.7", "145"},
		"bench/README.md":              {"48,146", "1,265,823", "23.7 us", "69.2 us"},
		"bench/redis.md":               {"66,696", "74,485", "84,994", "95,514"},
		"docs/internals/layout.md":     {"145", "856", "37"},
		"docs/internals/engine.md":     {"8 to 11 million"},
		"deploy/prometheus/rules.yaml": {"job:rate_limiter_store_operations_per_call:rate5m"},
	} {
		source := read(t, name)[name]
		for _, figure := range figures {
			if !strings.Contains(source, figure) || !strings.Contains(page, figure) {
				t.Errorf("%s is in %s: %t, on the page: %t", figure, name, strings.Contains(source, figure), strings.Contains(page, figure))
			}
		}
	}
}
