package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
)

func TestBodyMemoryHasRoomForABody(t *testing.T) {
	config := DefaultConfig()
	config.Store, config.HTTP.MaxBodyBytes, config.HTTP.MaxBodyMemory = memstore.New(memstore.Config{}), 64<<20, 0
	if err := config.withDefaults().Validate(); err != nil {
		t.Error("by default:", err)
	}
	config.HTTP.MaxBodyMemory = 100 << 20
	if err := config.Validate(); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "http.max_body_memory is 104857600; allowed: at least 269516800: 4 times") {
		t.Error(err)
	}
}
