// Package memstore keeps limiter state in the process.
//
// Clients live in open-addressing tables of 32-byte slots, one for each of 256 shards.
// A slot holds the whole state of the fixed-size algorithms; a sliding window log has
// its entries beside the table, and so are holds. A Take of one limit whose whole state is in a
// slot locks that slot alone. Everything else locks the shards of its states, too. Deciding up to
// four limits allocates nothing but room for new states, logs and holds.
//
// A client is identified by a 64-bit hash of its key under a seed that is random
// per store. Two of n clients are taken for one with a probability of about
// n^2 / 2^65: 3 in a million with 10 million clients. Without the seed nobody
// can make two keys collide.
//
// State that has become worthless, because it equals an untouched one or was reset with its
// policy, is reclaimed in small steps as decisions are made.
//
// When the memory cap is reached, a few states are sampled and the one nearest to
// untouched is dropped, and its client starts anew; [Stats] counts it. States that
// the operation at hand writes are never dropped. A log that does not fit under the cap
// by itself becomes coarser instead: neighbouring records become one, at the later time,
// so that its permits return late rather than early.
//
// Begin with decide.go (the way of an operation), then slot.go and table.go (where states are),
// states.go (how they are read and written). plan.go has what a policy is prepared to;
// limit_versions.go how a limit's change and a policy's reset are noticed; expiry.go and evict.go
// how memory comes back; hold.go, holding.go and ids.go the reservations.
//
// Locks, in the order in which they may be taken: the shard of an id, shards by their number,
// slots, mu. evicting is taken with none of them held.
package memstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/keyhash"
	"github.com/stint-go/stint/internal/waiters"
)

// DefaultMaxBytes is the memory cap unless a Config says otherwise: 1 GiB, room
// for about 25 million clients.
const DefaultMaxBytes = 1 << 30

// minMaxBytes is the least memory cap: 1 MiB.
const minMaxBytes = 1 << 20

// Config says how a [Store] is made. The zero value is a good choice.
type Config struct {
	// MaxBytes caps the memory of tables and logs, and of the limits that policies which are still
	// used and states have, about half a KiB each, in bytes; less than 1 MiB is taken as
	// 1 MiB. Default: 0, which is DefaultMaxBytes. For a moment there is more: while a shard's
	// table grows, its old and its new form exist together, at most 1 % more; and what an operation
	// writes is there before room is made for it. Holds and what is remembered of their ends have half
	// of it at most, and those of one policy three times as much as is left of that half: ends are
	// forgotten early, and new holds are denied as Full, for a second; Stats.HoldsRefused counts that. With
	// less, states that still matter are dropped, and their clients may use their limits again;
	// Stats.Evictions counts that.
	MaxBytes int64
	// Now is a clock in place of the store's own, such as the fake one of a program's tests. A time counts in whole
	// microseconds, cut down; its location and its monotonic reading don't matter. Times are from 1970 to 2255: a store
	// whose clock shows another one when it is made, such as the zero time.Time, decides nothing, and its errors wrap
	// stint.ErrInvalid. The clock may be set back, as a wall clock may. It must be safe for concurrent use, and must not
	// call the store, which reads it while it holds locks. Default: nil, the process's monotonic clock, anchored to the
	// wall clock, and anchored anew when the two are more than a second apart.
	Now func() time.Time
	// MaxHolds bounds the live holds of one client under one limit, 1 to 10,000; a Reserve beyond it is denied.
	// Default: 0, which is 1000.
	MaxHolds int
}

// A Store is a stint.Store in memory, which New makes: the zero Store decides nothing, and its errors wrap
// [stint.ErrInvalid]. It is safe for concurrent use and needs no closing.
type Store struct {
	shards [shardCount]shard
	fault  error // why it decides nothing
	seed   keyhash.Seed
	now    func() time.Time       // nil for the process's clock
	anchor atomic.Pointer[anchor] // what the process's clock counts from

	maxBytes int64
	// bytes are those of tables, logs, ids and limit versions.
	bytes      atomic.Int64
	evictions  atomic.Int64
	reclaimed  atomic.Int64
	sweepCount atomic.Uint64
	// lastSweep is the time of the last sweep, in microseconds.
	lastSweep atomic.Int64

	// evicting is locked while memory is brought below the cap. Shards are locked after it.
	evicting sync.Mutex
	// nextShard is the shard that was last asked for memory. evicting guards it.
	nextShard int

	ids [idShards]idShard // of holds
	// idBytes are the bytes of ids, which are in bytes, too.
	idBytes  atomic.Int64
	refused  atomic.Int64 // reserves
	maxHolds int
	waiters  waiters.List[uint64]

	operations sync.Pool // of *operation, to be used again
	owner      byte      // of the plans that policies carry

	// mu guards versions, holders, freeIDs and changes of epochs. It may be locked while shards are.
	mu       sync.Mutex
	versions map[versionKey]*limitVersion // all
	holders  map[string]*holder           // of the policies that have versions
	siblings map[uint64]*siblings         // of them, by the tags of limits
	epochs   atomic.Pointer[[]*epoch]     // by id: what a slot holds
	freeIDs  []uint32                     // ids that no epoch has
	// staleSlots are slots of epochs that are over, which do not count as states any more.
	staleSlots atomic.Int64
}

// New makes an empty store.
func New(config Config) *Store {
	if config.Now != nil {
		if now := config.Now(); now.Before(earliest) || now.After(latest) {
			return &Store{fault: stint.Invalid("memstore.Config.Now", now, "a clock that shows a time from 1970 to 2255")}
		}
	}
	s := &Store{
		seed:     keyhash.MakeSeed(),
		now:      config.Now,
		maxBytes: config.MaxBytes,
		versions: map[versionKey]*limitVersion{},
		holders:  map[string]*holder{},
		siblings: map[uint64]*siblings{},
	}
	if s.maxBytes == 0 {
		s.maxBytes = DefaultMaxBytes
	}
	s.maxBytes = max(s.maxBytes, minMaxBytes)
	if s.maxHolds = min(config.MaxHolds, bounds.MaxHolds); s.maxHolds <= 0 {
		s.maxHolds = bounds.DefaultMaxHolds
	}
	s.anchor.Store(newAnchor(time.Now()))
	s.epochs.Store(new([]*epoch))
	empty := newTable(0)
	for i := range s.shards {
		s.shards[i].table.Store(empty)
	}
	return s
}

// Stats is what a store holds and has done.
type Stats struct {
	// Clients is the states that count; a client has one per limit.
	Clients int64 `gauge:"rate_limiter_store_states"`
	// Bytes is the memory of tables and logs, and of limits in use.
	Bytes int64 `gauge:"rate_limiter_store_bytes"`
	// MaxBytes is its cap.
	MaxBytes int64 `gauge:"rate_limiter_store_max_bytes"`
	// Evictions counts states dropped at the cap, logs made coarser, and ends of holds forgotten before their time.
	Evictions int64 `counter:"rate_limiter_store_evictions_total"`
	// Reclaimed counts worthless states that were reclaimed.
	Reclaimed int64 `counter:"rate_limiter_store_reclaimed_total"`
	// HoldsRefused counts reserves denied for want of memory: all holds', or those of their policy.
	HoldsRefused int64 `counter:"rate_limiter_store_holds_refused_total"`
}

// Stats reads the store's figures. It locks each shard for a moment.
func (s *Store) Stats() Stats {
	stats := Stats{
		Bytes: s.bytes.Load(), MaxBytes: s.maxBytes,
		Evictions: s.evictions.Load(), Reclaimed: s.reclaimed.Load(), HoldsRefused: s.refused.Load(),
	}
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		stats.Clients += int64(shard.used)
		shard.mu.Unlock()
	}
	stats.Clients = max(0, stats.Clients-s.staleSlots.Load()) // which others change meanwhile
	return stats
}

// String describes the store in a log line.
func (s *Store) String() string { return fmt.Sprintf("memory:// (at most %d bytes)", s.maxBytes) }
