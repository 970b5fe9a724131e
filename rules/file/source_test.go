package file_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

// Overrides name the networks by which the source's clients are counted.
func TestSourceIPv6Prefix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	const text = `[{id: a, scope: per_ip, banned: true, overrides: [{key: "2001:db8::/56", unlimited: true}]}]`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for bits, sound := range map[int]bool{56: true, 0: false} {
		ctx, stop := context.WithCancel(t.Context())
		err := file.Source{Path: path, IPv6Prefix: bits}.Follow(ctx, func(*rules.Set) { stop() }, func(err error) { t.Error(err) })
		stop()
		if (err == nil) != sound {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
}
