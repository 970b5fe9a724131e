package logqueue_test

import (
	"os"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/logqueue"
)

// A full disk: Linux has one that is always full.
func TestFullDisk(t *testing.T) {
	full := must.Get(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	defer func() { _ = full.Close() }()
	q := logqueue.New(full, note)
	for range 100 {
		write(t, q, "line\n")
	}
	closing(t, q)
	if q.Lost() != 100 {
		t.Errorf("%d lines are lost, want 100", q.Lost())
	}
}
