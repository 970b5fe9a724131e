package record_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/record"
)

// A record is rotated when a file is full, each file begins with the policies, and the oldest goes.
func TestRotator(t *testing.T) {
	name := filepath.Join(t.TempDir(), "record")
	out := must.Get(record.NewRotator(name, 4000, 3))(t)
	clock := stint.Instant(0)
	r := record.New(memstore.New(memstore.Config{Now: func() time.Time { clock++; return clock.Time() }}), out, record.Options{Memory: true, PlainKeys: true})
	policy := must.Get(stint.NewPolicy("p0", stint.TokenBucket(100, stint.PerSecond(1))))(t)
	for range 300 {
		must.Get(r.Decide(context.Background(), stint.Op{Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}}))(t)
	}
	must.Do(t, out.Close())
	files, err := filepath.Glob(name + "*")
	if err != nil || len(files) != 3 {
		t.Fatalf("%q, %v", files, err)
	}
	all := ""
	for _, file := range []string{name + ".2", name + ".1", name} {
		text := must.Get(os.ReadFile(file))(t)
		if len(text) > 4000+500 || !strings.HasPrefix(string(text), `{"policy":1,"name":"p0"`) {
			t.Errorf("%s has %d bytes: %.80s", file, len(text), text)
		}
		all += string(text)
	}
	if n := strings.Count(all, `"verb":"take"`); n == 0 || n >= 300 || strings.Contains(all, `"begin"`) {
		t.Errorf("%d of 300 decisions are kept", n)
	}
}
