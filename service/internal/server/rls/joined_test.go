package rls_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// However many keys values of others reach, there are a hundred warnings, and one that there are more.
func TestJoinedWarningsAreBounded(t *testing.T) {
	many := &domains.Domain{Name: "d", Descriptors: []domains.Descriptor{{Key: "k"}}}
	for range 200 {
		many.Descriptors = append(many.Descriptors, domains.Descriptor{Key: "k_" + strings.Repeat("_", len(many.Descriptors))})
	}
	if got := domains.Joined([]*domains.Domain{many}); len(got) != 101 || !strings.HasPrefix(got[100], "and more") {
		t.Errorf("%d warnings, the last is %q", len(got), got[len(got)-1])
	}
}
