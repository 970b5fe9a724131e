package storetest

import (
	"testing"

	"github.com/stint-go/stint"
)

// The suite passes for the store that is made of the oracle. Its random sequences
// compare the oracle with itself here, so fewer of them will do.
func TestReference(t *testing.T) {
	Run(t, func(_ testing.TB, clock *Clock) stint.Store { return Reference(clock) }, Options{Operations: 20_000})
}
