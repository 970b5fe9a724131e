package rulestore_test

import (
	"testing"

	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, storetest.Full, func(testing.TB) storetest.Place {
		m := rulestore.NewMemory()
		return storetest.Place{Open: func() rulestore.Store { return m }}
	})
}
