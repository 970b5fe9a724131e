// Package memstore keeps limiter state in the process.
//
// Clients live in open-addressing tables of 32-byte slots, one for each of 256 shards.
// A slot holds the whole state of the fixed-size algorithms; a sliding window log has
// its entries beside the table. Who decides on a state that is there locks its slot
// alone; the shard's lock is for coming, going and several limits at once. Deciding
// allocates nothing.
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
package memstore

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// DefaultMaxBytes is the memory cap unless a Config says otherwise: 1 GiB, room
// for about 25 million clients.
const DefaultMaxBytes = 1 << 30

// MinMaxBytes is the least memory cap: 1 MiB.
const MinMaxBytes = 1 << 20

// Config says how a [Store] is made. The zero value is a good choice.
type Config struct {
	// MaxBytes caps the memory of tables and logs, and of the limits that policies which are
	// still used and states have, about half a KiB each, in bytes; less than MinMaxBytes is
	// taken as MinMaxBytes. Default: 0, which is DefaultMaxBytes. For a moment there is more: while
	// a shard's table grows, its old and its new form exist together, at most 1 % more; and what an
	// operation writes is there before room is made for it.
	MaxBytes int64
	// Now is the clock. Default: nil, the process's monotonic clock, anchored to the
	// wall clock when the store is made. It must be safe for concurrent use.
	Now func() stint.Instant
}

// A Store is a stint.Store in memory. It is safe for concurrent use and needs no
// closing.
type Store struct {
	shards [shardCount]shard
	seed   maphash.Seed
	now    func() stint.Instant
	anchor time.Time // for the clock
	origin stint.Instant

	maxBytes  int64
	bytes     atomic.Int64 // tables, logs and writers
	evictions atomic.Int64
	reclaimed atomic.Int64
	sweeps    atomic.Uint64
	swept     atomic.Int64 // when the last sweep was

	evicting sync.Mutex // held, and no shard's with it at first, while memory is brought below the cap
	next     int        // the shard that was looked at last for that

	mu     sync.Mutex               // guards known, free and the writing of epochs; may be locked while shards are
	known  map[writing]*writer      // all
	epochs atomic.Pointer[[]*epoch] // by id: what a slot holds
	free   []uint32                 // ids that no epoch has
	past   atomic.Int64             // slots of epochs that are over

	stint.Names // of limiters
}

// New makes an empty store.
func New(config Config) *Store {
	s := &Store{seed: maphash.MakeSeed(), now: config.Now, maxBytes: config.MaxBytes, known: map[writing]*writer{}}
	if s.maxBytes == 0 {
		s.maxBytes = DefaultMaxBytes
	}
	s.maxBytes = max(s.maxBytes, MinMaxBytes)
	s.anchor = time.Now()
	s.origin = stint.Instant(s.anchor.UnixMicro())
	s.epochs.Store(new([]*epoch))
	empty := newTable(0)
	for i := range s.shards {
		s.shards[i].table.Store(empty)
	}
	return s
}

func (s *Store) clock() stint.Instant {
	if s.now != nil {
		return s.now()
	}
	return s.origin + stint.Instant(time.Since(s.anchor)/time.Microsecond)
}

// Decide implements [stint.Store]. It blocks on nothing but the locks.
func (s *Store) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if err := op.Validate(); err != nil {
		return stint.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return stint.Decision{}, err
	}
	return s.decide(&op, s.clock()), nil
}

// DecideAll implements [stint.Store]. All operations of a batch have one time.
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	now := s.clock()
	for i := range ops {
		err := ops[i].Validate()
		if err == nil {
			err = ctx.Err()
		}
		results[i] = stint.Result{Err: err}
		if err == nil {
			results[i].Decision = s.decide(&ops[i], now)
		}
	}
}

func (s *Store) decide(op *stint.Op, now stint.Instant) stint.Decision {
	p := s.plan(op.Policy)
	if op.And == nil && len(p.limits) == 1 {
		return s.decideOne(op, &p.limits[0], now)
	}
	return s.decideMany(op, now)
}

// decideOne carries out an operation on one limit.
func (s *Store) decideOne(op *stint.Op, l *limit, now stint.Instant) stint.Decision {
	var out stint.Outcome
	parts := [1]part{{limit: l, hash: s.hash(op.Key, l), permits: op.Permits}}
	p := &parts[0]
	t := s.shard(p.hash)
	t.mu.Lock()
	if op.Verb == stint.Reset {
		s.reset(t, p.hash)
		l.fresh(&out)
	} else {
		s.open(t, p, now)
		p.changed = l.apply(algorithm.ActionOf(op.Verb), &p.state, now, op.Permits, &out)
		if l.countDenied && !out.Allowed && op.Verb == stint.Take {
			p.changed = l.apply(algorithm.Deny, &p.state, now, op.Permits, &out)
		}
		if op.Each != nil {
			out.GrowsAfter = l.grows(&p.state, now)
		}
		s.close(t, p)
		s.keep(t, p, parts[:], now)
	}
	t.mu.Unlock()
	runtime.KeepAlive(l) // until the slot is counted
	if p.grows() && s.over() {
		s.fit(parts[:], now)
	}
	s.sweepNow(now)
	if op.Each != nil {
		op.Each[0] = out
	}
	return stint.Decision{
		Allowed: out.Allowed, Limit: out.Limit, Remaining: out.Remaining, RetryAfter: out.RetryAfter,
		ResetAfter: out.ResetAfter, Delay: out.Delay, Applied: out.Applied, At: now,
	}
}

// Stats is what a store holds and has done.
type Stats struct {
	Clients   int64 // states that count; a client has one per limit
	Bytes     int64 // memory of tables and logs, and of limits in use
	MaxBytes  int64 // its cap
	Evictions int64 // states dropped at the cap, and logs made coarser
	Reclaimed int64 // worthless states reclaimed
}

// Stats reads the store's figures. It locks each shard for a moment.
func (s *Store) Stats() Stats {
	stats := Stats{
		Bytes: s.bytes.Load(), MaxBytes: s.maxBytes,
		Evictions: s.evictions.Load(), Reclaimed: s.reclaimed.Load(),
	}
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		stats.Clients += int64(shard.used)
		shard.mu.Unlock()
	}
	stats.Clients = max(0, stats.Clients-s.past.Load()) // which others change meanwhile
	return stats
}

// String describes the store in a log line.
func (s *Store) String() string { return fmt.Sprintf("memory:// (at most %d bytes)", s.maxBytes) }

// taker is the short way to take of one limit whose state is of a fixed size.
type taker struct {
	store  *Store
	policy *stint.Policy
	limit  *limit // nil: the policy is of several limits, or a log
}

// Bind implements [stint.Binder].
func (s *Store) Bind(policy *stint.Policy) stint.Taker {
	k := &taker{store: s, policy: policy}
	if limits := s.plan(policy).limits; len(limits) == 1 && limits[0].log == nil {
		k.limit = &limits[0]
	}
	return k
}

// Take implements [stint.Taker].
func (k *taker) Take(ctx context.Context, key string, n int64) (d stint.Decision, err error) {
	s, l := k.store, k.limit
	if uint(len(key)-1) >= stint.MaxKeyBytes || n < 1 || l == nil {
		return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: k.policy, Permits: n}})
	}
	if err = ctx.Err(); err != nil {
		return d, err
	}
	now := s.clock()
	hash := s.hash(key, l)
	id := l.writer.id.Load()
	slot := s.shard(hash).table.Load().hold(hash, id, l.writer)
	if slot == nil {
		op := stint.Op{Claim: stint.Claim{Key: key, Policy: k.policy, Permits: n}}
		return s.decideOne(&op, l, now), nil
	}
	var out stint.Outcome
	l.applyWords(algorithm.Take, &slot.words, now, n, &out)
	d.Allowed, d.Limit, d.Remaining, d.At = out.Allowed, out.Limit, out.Remaining, now
	d.RetryAfter, d.ResetAfter, d.Delay = out.RetryAfter, out.ResetAfter, out.Delay
	// The release comes last: it has to wait for the stores before it anyway, and what
	// copies the decision then finds it in the cache.
	slot.release(id)
	s.sweepNow(now)
	return d, nil
}
