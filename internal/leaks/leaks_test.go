package leaks_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/leaks"
)

// A goroutine that ends later than goleak waits for is none that was left behind.
func TestNone(t *testing.T) {
	before := goleak.IgnoreCurrent()
	go func() { <-time.After(time.Second) }()
	leaks.None(t, before)
}
