package simulate

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

// TestHashesOfZero: clients with the hash 0, which anybody can make up, are in every sample; those that are too many are left out.
func TestHashesOfZero(t *testing.T) {
	policy := must.Get(stint.NewPolicy("p", stint.FixedWindow(1, time.Minute)))(t)
	const most = 5
	table := newTable(policy, most, new(memory))
	found := 0
	for i := 0; found < 2*most; i++ {
		text := fmt.Appendf(nil, "%08d", i)
		last := mixed(binary.LittleEndian.Uint64(text)) ^ 0x9e3779b97f4a7c15
		if last>>56 != shortKey {
			continue
		}
		k := keyOf(string(binary.LittleEndian.AppendUint64(text, last)[:shortKey]))
		if k.hash != 0 {
			t.Fatalf("the hash of %q is %d", k.text, k.hash)
		}
		if n := table.find(&k); (n < 0) != (found >= most) {
			t.Fatalf("client %d is number %d", found, n)
		}
		found++
	}
	if table.skipped != most {
		t.Errorf("%d are left out", table.skipped)
	}
}
