package rest

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/config"
)

func TestBodyMemoryHasRoomForABody(t *testing.T) {
	c := Config{Settings: config.Default(), Store: memstore.New(memstore.Config{})}
	c.HTTP.MaxBodyBytes = 64 << 20
	if err := c.WithDefaults().Validate(); err != nil {
		t.Error("by default:", err)
	}
	c.HTTP.MaxBodyMemory = 100 << 20
	if err := c.Validate(); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "http.max_body_memory is 104857600; allowed: at least 269516800: 4 times") {
		t.Error(err)
	}
}
