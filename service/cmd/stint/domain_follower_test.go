package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/service/internal/server/rls"
)

// Domains are in force before the first request can come, in the place of the reference service, too. If they have faults
// there, there are none, and that is logged once.
func TestFirstDomains(t *testing.T) {
	for text, loaded := range map[string]bool{
		"domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 2}}]\n": true,
		"domain: d\ndescriptors: [{key: a, rate_limit: {unit: aeon}}]\n":                      false,
	} {
		path := filepath.Join(t.TempDir(), "d.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		service, err := rls.New(rls.Config{Store: memstore.New(memstore.Config{})})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // so that nothing is read later
		var log strings.Builder
		stop, err := followDomains(ctx, file.Texts{Path: path, All: true}, service, slog.New(slog.NewTextHandler(&log, nil)), false)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if _, _, got := service.Loaded(); got != loaded {
			t.Errorf("loaded is %t of %s", got, text)
		}
		if got := strings.Count(log.String(), "the domains are refused"); got == 1 == loaded {
			t.Errorf("the log is %s", &log)
		}
	}
}
