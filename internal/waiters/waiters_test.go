package waiters_test

import (
	"testing"

	"github.com/stint-go/stint/internal/waiters"
)

func TestList(t *testing.T) {
	var l waiters.List[string]
	l.Wake("a") // nobody waits
	var first, second int
	stop := l.Add([]string{"a", "b"}, func() { first++ })
	l.Add([]string{"b"}, func() { second++ })
	l.Wake("a")
	l.Wake("b")
	l.Wake("c")
	l.WakeAll()
	if first < 3 || second != 2 {
		t.Errorf("woken %d and %d times", first, second)
	}
	stop()
	stop()
	before := first
	l.Wake("a")
	l.Wake("b")
	if first != before || second != 3 {
		t.Errorf("after a stop %d (before: %d) and %d", first, before, second)
	}
}
