package rls_test

import (
	"testing"

	"github.com/stint-go/stint/service/internal/server/rls"
)

// Looks at one limit ask whether it admits one hit, however many looks there are.
func TestLooks(t *testing.T) {
	s := newService(t, rls.Config{}, simple)
	look := costing("a=1", 0)
	walk(t, s, []step{
		{of(costing("a=1", 4)), "ok ok:1"},
		{of(look, look, look), "ok ok:1 ok:1 ok:1"},
		{of(look, entries("a=1"), look), "ok ok:1 ok:0 ok:1"},
		{of(look, look), "over over:0 over:0"},
	})
}
