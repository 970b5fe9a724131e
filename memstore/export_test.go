package memstore

import (
	"testing"

	"github.com/stint-go/stint/internal/algorithm"
)

// Evicted is how many states were dropped at the cap.
func Evicted(s *Store) int64 { return s.evictions.Load() }

// Bytes is the memory that a store counts.
func Bytes(s *Store) int64 { return s.bytes.Load() }

// CheckBytes checks that the bytes that a store counts are those that it holds.
func CheckBytes(t testing.TB, s *Store) {
	t.Helper()
	s.mu.Lock() // policies may go meanwhile
	defer s.mu.Unlock()
	var held int64
	for i := range s.shards {
		table := s.shards[i].table.Load()
		held += int64(len(table.groups)) * groupBytes
		for _, log := range s.shards[i].logs {
			held += logBytes + int64(log.Records())*algorithm.RecordBytes
		}
	}
	for _, w := range s.versions {
		held += w.key.bytes()
	}
	for _, e := range *s.epochs.Load() {
		if e != nil && e.version == nil {
			held += epochBytes
		}
	}
	if counted := s.bytes.Load(); counted != held {
		t.Errorf("%d bytes are counted, %d are held", counted, held)
	}
}

// MinMaxBytes is the least memory cap.
const MinMaxBytes = minMaxBytes
