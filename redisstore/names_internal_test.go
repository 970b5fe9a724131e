package redisstore

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
)

// borrowed is memory that holds one key after another, as servers use theirs again.
type borrowed []byte

// key puts a key into the memory, whose length every key has.
func (b borrowed) key(key string) string {
	copy(b, key)
	return unsafe.String(&b[0], len(b)) //nolint:gosec // it is about strings that change
}

// The denials remembered are those of the keys as they were, whatever becomes of their
// memory.
func TestDenialsOfBorrowedKeys(t *testing.T) {
	c := newDenials(2*denialShards, func() time.Duration { return 0 })
	c.begin()
	var claims []stint.Claim
	for _, name := range []string{"a", "b"} {
		policy, err := stint.NewPolicy(name, stint.FixedWindow(1, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		claims = append(claims, stint.Claim{Policy: policy, Permits: 1})
	}
	name := func(i int) string { return fmt.Sprintf("%04d", i) }
	memory := make(borrowed, len(name(0)))
	denied := func(i int) (n int) {
		for _, claim := range claims {
			claim.Key = name(i)
			if _, hit := c.claim(&claim, 0, nil); hit {
				n++
			}
		}
		return n
	}
	keep := func(i int) {
		for _, claim := range claims {
			claim.Key = memory.key(name(i))
			c.keep(c.send(), claim, 0, []stint.Outcome{{RetryAfter: time.Hour}}, false)
			memory.key("????")
		}
	}
	keep(1)
	memory.key(name(2))
	if denied(1) != 2 || denied(2) != 0 {
		t.Errorf("%d denials of who was denied twice, %d of who was not", denied(1), denied(2))
	}
	for i := range 10_000 {
		keep(i)
	}
	count := 0
	for i := range c.shards {
		for _, list := range c.shards[i].clients {
			count += len(list)
		}
	}
	if most := int64(c.most * denialShards); c.entries.Load() > most || int64(count) != c.entries.Load() {
		t.Errorf("%d denials are kept and counted as %d, want at most %d", count, c.entries.Load(), most)
	}
}
