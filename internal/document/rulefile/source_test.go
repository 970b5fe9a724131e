package rulefile_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// Overrides name the networks by which the source's clients are counted.
func TestSourceIPv6Prefix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const text = `[{id: a, scope: per_ip, banned: true, overrides: [{key: "2001:db8::/56", unlimited: true}]}]`
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	for bits, sound := range map[int]bool{56: true, 48: false} {
		ctx, stop := context.WithCancel(t.Context())
		err := rulefile.Source{Path: path, IPv6Prefix: bits}.Follow(ctx, func(*rules.Set) { stop() }, func(err error) { t.Error(err) })
		stop()
		if (err == nil) != sound {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
}

// What can't be taken over is told with all its faults.
func TestSourceTellsAllFaults(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"r.yaml": "- {id: a, scope: global, banned: true, max_wait: 1s}\n- {id: 5}\n"})
	err := rulefile.Source{Path: filepath.Join(folder, "r.yaml")}.Follow(t.Context(), func(*rules.Set) { t.Error("it is taken over") }, func(err error) { t.Error(err) })
	if err == nil || !strings.Contains(err.Error(), "r.yaml:1:50: rule \"a\": max_wait is 1s") || !strings.Contains(err.Error(), "r.yaml:2:8: rules[1]: id is 5") {
		t.Error(err)
	}
}
