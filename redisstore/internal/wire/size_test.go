package wire

import (
	"testing"
	"unsafe"

	"github.com/stint-go/stint"
)

// What there is one of for each operation under way is copied often, so its size is a cost of all of them.
func TestSizes(t *testing.T) {
	for _, of := range []struct {
		name      string
		size, max uintptr
	}{
		{"stint.Decision", unsafe.Sizeof(stint.Decision{}), 64},
		{"Entry", unsafe.Sizeof(Entry{}), 128},
		{"OpLimit", unsafe.Sizeof(OpLimit{}), 32},
	} {
		if of.size > of.max {
			t.Errorf("%s has %d bytes; allowed: %d", of.name, of.size, of.max)
		}
	}
}
