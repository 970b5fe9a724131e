package redisstore

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/keyhash"
	"github.com/stint-go/stint/redisstore/internal/layout"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// leases are the permits that this process has leased, by limit and client. docs/redis.md says what
// they keep to: a chunk is spent within the lease time V from when it was requested, and its
// permits were charged in between. So what is spent in [a, b] was charged in [a - V, b], where the
// server admits no more than the limit. The rest of a chunk is returned once, after it can't be
// spent any more, and leaves the state no better than if it had never been charged (see
// [algorithm.Machine.ReturnLease]).
//
// It is safe for concurrent use. Finding a lease takes no lock, as shards are copied to be changed;
// a lease may be locked before mu, not after.
type leases struct {
	store *Store
	// time is V.
	time   time.Duration
	clock  func() time.Duration
	seed   keyhash.Seed
	shards [leaseShards]atomic.Pointer[[]*lease] // copied to be changed, so that finding takes no lock
	count  atomic.Int64

	mu sync.Mutex // of changes of shards, and of what follows; a lease may be locked before it, not after
	// sweeping says that the sweeper runs.
	sweeping bool
	closed   bool
	returns  []leaseReturn

	// work counts requests, and the sweeper.
	work sync.WaitGroup
	life context.Context
	end  context.CancelFunc
	stop chan struct{} // closed to end the sweeper
	// returnTime is how long close waits for the server at most.
	returnTime time.Duration
	// sweep is held by one that tidies.
	sweep sync.Mutex
}

// idleLeaseTimes times V without a use end a lease.
const (
	leaseShards    = 256
	maxLeases      = 4096 // at once; other clients are decided by the server
	idleLeaseTimes = 10   // a lease is forgotten when it is not used for so many times V
)

// leaseReturn is what is to be returned of a chunk.
type leaseReturn struct {
	lease   *lease
	permits int64
	at      stint.Instant // when they were charged
}

// newLeases makes leases without any client.
func newLeases(s *Store) *leases {
	ls := &leases{
		store: s,
		time:  s.options.LeaseTime,
		clock: s.uptime(),
		seed:  keyhash.MakeSeed(),
		stop:  make(chan struct{}),

		returnTime: time.Second,
	}
	ls.life, ls.end = context.WithCancel(s.life)
	return ls
}

// atHand answers an operation without the server if it can: what is leased was charged before whatever is done to the
// client now, but for a reset.
func (s *Store) atHand(op *stint.Op, before change) (d stint.Decision, known bool) {
	var l *lease
	if limit := s.leasable(op); limit != nil {
		l = s.leases.of(limit, op)
	}
	if l != nil && before < wiped {
		if d, known = l.spend(op); known {
			return d, true
		}
	}
	if before == 0 {
		if d, known = s.rememberedDenial(op); known {
			return d, true
		}
	}
	if l != nil {
		l.direct.Add(op.Permits)
		l.renew(op.Permits, s.leases.clock())
	}
	return d, false
}

// of returns the lease of an operation's client, a new one if need be; nil where there are too many, or
// once the store is closed.
func (ls *leases) of(limit *layout.Limit, op *stint.Op) *lease {
	if l := ls.find(limit, op.Key); l != nil || ls.count.Load() >= maxLeases {
		return l
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.find(limit, op.Key); l != nil || ls.closed || ls.count.Load() >= maxLeases {
		return l
	}
	if !ls.sweeping {
		ls.sweeping = true
		ls.work.Go(ls.run)
	}
	l := &lease{leases: ls, limit: limit, claim: stint.Claim{Key: strings.Clone(op.Key), Policy: op.Policy, Permits: 1}}
	now := ls.clock()
	l.rate.observed = now
	l.used.Store(int64(now))
	ls.change(l, func(list []*lease) []*lease { return append(list, l) })
	ls.count.Add(1)
	return l
}

// shard is where the leases of a client are.
func (ls *leases) shard(client string) *atomic.Pointer[[]*lease] {
	return &ls.shards[keyhash.String(ls.seed, client)%leaseShards]
}

// find finds a lease without a lock.
func (ls *leases) find(limit *layout.Limit, client string) *lease {
	if list := ls.shard(client).Load(); list != nil {
		for _, l := range *list {
			if l.limit == limit && l.claim.Key == client {
				return l
			}
		}
	}
	return nil
}

// change puts a changed copy in the place of the shard of a lease.
func (ls *leases) change(l *lease, change func([]*lease) []*lease) {
	shard := ls.shard(l.claim.Key)
	var list []*lease
	if old := shard.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = change(list)
	shard.Store(&list)
}

// all are the leases as they are; one that is added meanwhile may be missed.
func (ls *leases) all() iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		for i := range ls.shards {
			if list := ls.shards[i].Load(); list != nil {
				for _, l := range *list {
					if !yield(l) {
						return
					}
				}
			}
		}
	}
}

// forgetClients drops what was charged to states before an operation reset them.
func (ls *leases) forgetClients(b *wire.Batch, e *wire.Entry) {
	for _, p := range b.Limits(e) {
		if l := ls.find(p.Limit, b.Client(&p)); l != nil {
			l.mu.Lock()
			l.resetAt = e.Decision.At
			l.mu.Unlock()
			l.discard(false)
		}
	}
}

// forgetPolicy drops what is at hand and in flight of a policy's states, which were reset elsewhere,
// and what was to be returned to them.
func (ls *leases) forgetPolicy(name string) {
	ls.void(func(l *lease) bool { return l.claim.Policy.Name() == name })
}

// forgetAll drops what is at hand and in flight of all states, since announcements may have been missed.
func (ls *leases) forgetAll() { ls.void(func(*lease) bool { return true }) }

// void drops what leases have at hand and in flight, and returns nothing: their states
// may be new ones, to which it was not charged.
func (ls *leases) void(which func(*lease) bool) {
	for l := range ls.all() {
		if which(l) {
			l.discard(true)
		}
	}
	ls.mu.Lock()
	ls.returns = slices.DeleteFunc(ls.returns, func(r leaseReturn) bool { return which(r.lease) })
	ls.mu.Unlock()
}

// discardOutdated drops what is at hand of policies that are known to have been reset since.
func (ls *leases) discardOutdated() {
	for l := range ls.all() {
		l.discard(false)
	}
}

// begin reports whether a request may start, and counts it in.
func (ls *leases) begin() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !ls.closed {
		ls.work.Add(1)
	}
	return !ls.closed
}

// run returns what was not spent in time, until the store is closed.
func (ls *leases) run() {
	tick := time.NewTicker(max(ls.time/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			ls.tidy()
		case <-ls.stop:
			return
		}
	}
}

// tidy ends what has run out, and returns what is left of it.
func (ls *leases) tidy() {
	ls.sweep.Lock()
	defer ls.sweep.Unlock()
	now := ls.clock()
	for l := range ls.all() {
		if l.tidy(now) {
			continue
		}
		ls.mu.Lock()
		ls.change(l, func(list []*lease) []*lease {
			return slices.DeleteFunc(list, func(other *lease) bool { return other == l })
		})
		ls.mu.Unlock()
		ls.count.Add(-1)
	}
	ls.sendReturns()
}

// queueReturn has permits returned with the next round.
func (ls *leases) queueReturn(r leaseReturn) {
	ls.mu.Lock()
	ls.returns = append(ls.returns, r)
	ls.mu.Unlock()
}

// sendReturns returns what is to be returned, all of it together, and waits for the answers. It is
// not tried again: a return whose answer is lost may have been carried out.
func (ls *leases) sendReturns() {
	ls.mu.Lock()
	returns := ls.returns
	ls.returns = nil
	ls.mu.Unlock()
	var answers []func()
	for _, r := range returns {
		op := stint.Op{Verb: wire.ReturnLease, Claim: r.lease.claim}
		op.Permits = r.permits
		br := ls.store.batcherOf(&op)
		c := br.NewCall(ls.life, &op)
		c.TakenAt = r.at
		if br.Enqueue(c) == nil {
			answers = append(answers, func() {
				if br.Await(c) {
					br.Recycle(c)
				}
			})
		}
	}
	for _, wait := range answers {
		wait()
	}
}

// close returns everything.
func (ls *leases) close() {
	ls.mu.Lock()
	again := ls.closed
	ls.closed = true
	ls.mu.Unlock()
	if again {
		return
	}
	late := time.AfterFunc(ls.returnTime, ls.end)
	defer late.Stop()
	close(ls.stop)
	ls.work.Wait()
	for l := range ls.all() {
		l.close()
	}
	ls.sendReturns()
	ls.end()
}
