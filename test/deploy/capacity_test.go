package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

const capacityPage = "../docs/capacity.md"

// TestCapacityCommands: the page's commands measure what it says.
func TestCapacityCommands(t *testing.T) {
	redis := testredis.Start(t)
	t.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	port := strings.TrimPrefix(redis.Addr(), "127.0.0.1:")
	commands := replaced(t, block(t, capacityPage, "sh", "usage()"), "6399", port, "--keys 100000", "--keys 1000 --requests 5000")
	got := shell(t, t.TempDir(), commands)
	measured := regexp.MustCompile(`^\d+\.\d us, ([1-9]\d*) bytes to Redis, ([1-9]\d*) back\n$`)
	if !measured.MatchString(got) {
		t.Errorf("they print %s", got)
	}
}

// TestCapacityQuotes: the figures of a quiet machine are those of the pages that measure them.
func TestCapacityQuotes(t *testing.T) {
	page := read(t, capacityPage)
	for name, figures := range map[string][]string{
		"../README.md":                {"900,000", "266,000", "5,360,000", "45 bytes", "73", "145"},
		"../bench/README.md":          {"46,838", "676,590", "15.1 us", "19.1 us"},
		"../bench/redis.md":           {"45,628", "67,347", "66,246", "74,826"},
		"../docs/internals/layout.md": {"73 bytes", "145", "856", "37"},
		"../docs/internals/engine.md": {"8 to 11 million"},
		"prometheus/rules.yaml":       {"job:rate_limiter_store_operations_per_call:rate5m"},
	} {
		source := read(t, name)
		for _, figure := range figures {
			if !strings.Contains(source, figure) || !strings.Contains(page, figure) {
				t.Errorf("%s is in %s: %t, on the page: %t", figure, name, strings.Contains(source, figure), strings.Contains(page, figure))
			}
		}
	}
}
