package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

const capacityPage = "../docs/capacity.md"

// TestCapacityCommands: the page's commands measure what it says.
func TestCapacityCommands(t *testing.T) {
	redis := testredis.Start(t)
	t.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	port := strings.TrimPrefix(redis.Addr(), "127.0.0.1:")
	commands := replaced(t, block(t, capacityPage, "sh", "usage()"), "6399", port, "--keys 100000", "--keys 1000 --requests 5000")
	got := shell(t, t.TempDir(), commands)
	measured := regexp.MustCompile(`^\d+\.\d us, ([1-9]\d*) bytes to Redis, ([1-9]\d*) back\n$`)
	if !measured.MatchString(got) {
		t.Errorf("they print %s", got)
	}
}
