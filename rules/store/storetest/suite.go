package storetest

import (
	"testing"

	"github.com/stint-go/stint/rules/store"
)

// A Place is where rules are kept, empty at first.
type Place struct {
	// Open makes a store on the place: each call another one, as another process would have it. The
	// suite does not close them; t.Cleanup does.
	Open func() store.Store
	// Lose empties the place, as a server that lost its data. Default: nil, what depends on it is not tested.
	Lose func()
}

// A Size is how much there is of what a store has to get right in bulk.
type Size struct {
	// Edits is how many edits each of 8 editors makes at the same time.
	Edits int
	// Rules is how many rules a large revision has.
	Rules int
	// Rounds is how many revisions are put while others load.
	Rounds int
	// Kept says that the store keeps no more than store.KeptRevisions and store.KeptBytes.
	Kept bool
}

// The sizes.
var (
	Full  = Size{Edits: 20, Rules: 10_000, Rounds: 100, Kept: true}
	Small = Size{Edits: 3, Rules: 1000, Rounds: 30}
)

// Run tests the stores of a place, which open makes anew for each subtest of t.
func Run(t *testing.T, size Size, open func(t testing.TB) Place) {
	for _, c := range []struct {
		name  string
		check func(p *place)
	}{
		{"Empty", testEmpty},
		{"RoundTrip", testRoundTrip},
		{"OddText", testOddText},
		{"IDs", testIDs},
		{"Conflict", testConflict},
		{"Lost", testLost},
		{"History", testHistory},
		{"ManyRules", size.testManyRules},
		{"KeptRevisions", size.testKeptRevisions},
		{"KeptBytes", size.testKeptBytes},
		{"Edits", size.testEdits},
		{"Whole", size.testWhole},
		{"Watch", testWatch},
		{"Cancelled", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(newPlace(t, open(t))) })
	}
}
