package memstore_test

import (
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

func newStore(_ testing.TB, clock *storetest.Clock) stint.Store {
	return memstore.New(memstore.Config{Now: clock.Now})
}

func TestConformance(t *testing.T) {
	var options storetest.Options
	if testing.Short() {
		options = storetest.Options{Operations: 5_000}
	}
	storetest.Run(t, newStore, options)
}
