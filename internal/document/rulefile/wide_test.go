package rulefile_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
)

// A megabyte of rules each of which is wrong takes no more memory than one of rules that are right: whoever may ask
// whether rules are right may ask about these. The first 1,000 faults are told, and one says that there are more.
func TestManyFaults(t *testing.T) {
	size := 1 << 20
	if testing.Short() {
		size /= 4
	}
	for _, form := range []string{
		"- &a%d x\n", "- rule%d\n", "- {id: a%d}\n", "- {id: a%d, scope: ip, limits: [{}]}\n", "- {id: a%d, cost: {}}\n",
		"- {id: a%d, scope: per_ip, limits: [{algorithm: fixed_window, limit: 1, window: 1s, cost: 2}]}\n",
	} {
		var text strings.Builder
		for i := 0; text.Len() < size; i++ {
			fmt.Fprintf(&text, form, i)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := rulefile.ParseSet("r.yaml", []byte(text.String()), rules.Options{Review: true})
		runtime.ReadMemStats(&after)
		used := after.TotalAlloc - before.TotalAlloc
		t.Logf("%q: %d MB, %.100v", form, used>>20, err)
		// It is 280 times; 380 to 400 under the race detector, for which pools forget at random.
		if used > uint64(600*size) {
			t.Errorf("%q: %d bytes need %d MB", form, size, used>>20)
		}
		var faults document.Faults
		if !errors.As(err, &faults) || len(faults) != document.MaxFaults+1 {
			t.Errorf("%q: %d faults: %.100v", form, len(faults), err)
		}
	}
}
