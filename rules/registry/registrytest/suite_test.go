package registrytest_test

import (
	"testing"

	"github.com/stint-go/stint/rules/registry"
	"github.com/stint-go/stint/rules/registry/registrytest"
)

func TestMemory(t *testing.T) {
	registrytest.Run(t, registrytest.Full, func(testing.TB) func() registry.Backend {
		memory := registry.NewMemory()
		return func() registry.Backend { return memory }
	})
}
