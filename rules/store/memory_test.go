package store_test

import (
	"testing"

	"github.com/stint-go/stint/rules/store"
	"github.com/stint-go/stint/rules/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, storetest.Full, func(testing.TB) storetest.Place {
		m := store.NewMemory()
		return storetest.Place{Open: func() store.Store { return m }}
	})
}
