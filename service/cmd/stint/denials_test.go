package main

import (
	"testing"
)

func TestRuleInShadow(t *testing.T) {
	t.Parallel()
	base, admin := startAdmin(t)
	transcript(t, "shadow.txt", map[string]string{"STINT_ADMIN": admin, "STINT_SERVER": base}, "BASE", base, "ADMIN", admin)
}
