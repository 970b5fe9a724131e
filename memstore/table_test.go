package memstore

import (
	"math/rand/v2"
	"testing"

	"github.com/stint-go/stint/internal/algorithm"
)

// TestTable compares a table with a map, over random insertions and deletions that
// crowd a few homes and the end of the table, where a search goes on at its start.
func TestTable(t *testing.T) {
	random, rounds := rand.New(rand.NewPCG(1, 2)), 200
	if testing.Short() {
		rounds = 20
	}
	for round := range rounds {
		groups := 1 + random.IntN(12)
		tab, want := newTable(groups), map[uint64]uint64{}
		hashes := make([]uint64, groups*groupSlots)
		for i := range hashes {
			// Few homes, the last one often.
			home := []uint64{0, 1 << 52, 255 << 48, 255<<48 | 1<<47, random.Uint64() >> shardBits}[random.IntN(5)]
			hashes[i] = home&^0xffff | 1 + random.Uint64N(1<<15)
		}
		for range 500 {
			hash := hashes[random.IntN(len(hashes))]
			slot, group := tab.find(hash)
			value, known := want[hash]
			if known != (slot != nil) || known && uint64(slot.second) != value {
				t.Fatalf("round %d: %x is found: %t, want %t", round, hash, slot != nil, known)
			}
			switch {
			case known:
				slot.hold()
				tab.delete(slot, group)
				delete(want, hash)
			case len(want) < groups*groupSlots*fullNum/fullDen:
				value = random.Uint64()
				tab.insert(hash, algorithm.Numbers{Second: int64(value)}, 1)
				want[hash] = value
			}
			checkTable(t, tab, want)
		}
	}
}

// checkTable checks that every state is there once and can be held, and that nobody
// can take hold of an empty slot.
func checkTable(t *testing.T, tab *table, want map[uint64]uint64) {
	t.Helper()
	states := 0
	for group := range tab.groups {
		for i := range tab.groups[group] {
			s := &tab.groups[group][i]
			hash, id := s.hash.Load(), s.epoch.Load()
			if hash != 0 {
				states++
			}
			if (hash == 0) != (id == 0) {
				t.Fatalf("slot %d of group %d has the hash %x and the id %d", i, group, hash, id)
			}
		}
	}
	if states != len(want) {
		t.Fatalf("%d states, want %d", states, len(want))
	}
	var w limitVersion
	w.id.Store(1)
	for hash, value := range want {
		s := tab.hold(hash, 1, &w)
		if s == nil || uint64(s.second) != value {
			t.Fatalf("%x is lost", hash)
		}
		s.release(1)
	}
}

func TestTryHold(t *testing.T) {
	var s slot
	if s.tryHold(0, 1) {
		t.Error("held an empty slot")
	}
	s.fill(7, algorithm.Numbers{Second: 1}, 2)
	if s.tryHold(8, 2) {
		t.Error("held the slot of another hash")
	}
	if s.tryHold(7, 1) {
		t.Error("held what another limit wrote")
	}
	if !s.tryHold(7, 2) {
		t.Error("did not hold a slot that nobody holds")
	}
	if s.tryHold(7, 2) {
		t.Error("held it twice")
	}
	s.release(2)
	if id := s.hold(); id != 2 {
		t.Errorf("held what the limit %d wrote, want 2", id)
	}
}
