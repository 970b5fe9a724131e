package redisstore

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// leases are the shares of permits that this process has of limits with leases, to be
// spent here. docs/redis.md says what they keep to: a share is spent within the lease's
// time from when it was asked for, and its permits were charged in between, so what is
// spent in [a, b] was charged in [a - time, b], where the server admits no more than the
// limit lets. What is left of a share goes back once, after it can't be spent any more,
// and leaves the state no better than if it had never been charged (see
// [algorithm.TokenBucket.Lapse] and [algorithm.FixedWindow.Release]).
type leases struct {
	store  *Store
	time   time.Duration
	clock  func() time.Duration
	seed   maphash.Seed
	shards [leaseShards]atomic.Pointer[[]leaseAt] // copied to be changed

	mu  sync.Mutex // of all that changes shards
	all []*lease

	gate   sync.Mutex
	closed bool
	under  sync.WaitGroup // requests, and the sweeper
	life   context.Context
	end    context.CancelFunc
	stop   chan struct{} // closed to end the sweeper
	start  sync.Once

	sweeping sync.Mutex
	owed     sync.Mutex
	debts    []debt
}

const (
	leaseShards = 256
	maxLeases   = 4096 // at hand at once
	idle        = 10   // a lease is forgotten when it is not used for so many times its time
)

// leaseAt is a lease with the hash of its client's key.
type leaseAt struct {
	hash  uint64
	lease *lease
}

// debt is what is to be given back.
type debt struct {
	lease   *lease
	permits int64
	at      stint.Instant // when they were charged
}

// returnTime bounds how long Close waits for the server.
const returnTime = time.Second

func newLeases(s *Store) *leases {
	c := &leases{store: s, time: s.options.LeaseTime, clock: uptime(), seed: maphash.MakeSeed(), stop: make(chan struct{})}
	if now := s.options.Now; now != nil {
		c.clock = func() time.Duration { return micros(int64(now())) }
	}
	c.life, c.end = context.WithCancel(s.life)
	return c
}

// leasable returns the limit of an operation that may be decided by a lease: a take or
// a try of one policy with one limit that has leases.
func (s *Store) leasable(op *stint.Op) *limit {
	if op.Verb > stint.Try || op.And != nil || op.Policy.Len() > 1 {
		return nil
	}
	if l := &s.plan(op.Policy)[0]; l.limit.Lease != 0 {
		return l
	}
	return nil
}

// marked marks a denial by limits with leases, of which the server can't tell whether
// the permits that are missing were spent.
func marked(op *stint.Op, d stint.Decision) stint.Decision {
	if d.Allowed || d.RetryAfter == 0 || d.RetryAfter == stint.Never {
		return d
	}
	d.Leased = op.LimitAt(int(d.Index)).Lease != 0
	return d
}

// atHand answers an operation without the server if it can.
func (s *Store) atHand(op *stint.Op) (d stint.Decision, known bool) {
	limit := s.leasable(op)
	var l *lease
	if limit != nil {
		if l = s.leases.of(limit, op); l != nil {
			if d, known = l.serve(op); known {
				return d, true
			}
		}
	}
	if d, known = s.remembered(op); known {
		return d, true
	}
	if l != nil {
		l.direct.Add(op.Permits)
		l.renew(op.Permits, s.leases.clock())
	}
	return d, false
}

// decide decides an operation that may be decided by a lease of the limit.
func (c *leases) decide(ctx context.Context, op *stint.Op, limit *limit) (stint.Decision, error) {
	if l := c.of(limit, op); l != nil {
		return l.decide(ctx, op)
	}
	return c.store.lane(op).decideOne(ctx, op)
}

// of returns the lease of an operation's client, a new one if need be; none once the
// store is closed.
func (c *leases) of(limit *limit, op *stint.Op) *lease {
	if l := c.find(limit, op.Key); l != nil {
		return l
	}
	return c.add(limit, op)
}

// find finds a lease without a lock.
func (c *leases) find(limit *limit, client string) *lease {
	hash := maphash.String(c.seed, client)
	if list := c.shards[hash%leaseShards].Load(); list != nil {
		for i := range *list {
			if at := &(*list)[i]; at.hash == hash && at.lease.limit == limit && at.lease.claim.Key == client {
				return at.lease
			}
		}
	}
	return nil
}

func (c *leases) add(limit *limit, op *stint.Op) *lease {
	if !c.begin() {
		return nil
	}
	defer c.under.Done()
	c.start.Do(func() {
		c.under.Add(1)
		go c.sweeper()
	})
	now := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.find(limit, op.Key); l != nil {
		return l
	}
	if len(c.all) >= maxLeases {
		c.evict(now)
	}
	claim := stint.Claim{Key: strings.Clone(op.Key), Policy: op.Policy, Permits: 1}
	l := &lease{leases: c, limit: limit, claim: claim, demand: demand{seen: now}}
	l.used.Store(int64(now))
	c.all = append(c.all, l)
	c.change(l, func(list []leaseAt) []leaseAt {
		return append(list, leaseAt{maphash.String(c.seed, claim.Key), l})
	})
	return l
}

// change puts a changed copy in the place of the shard of a lease.
func (c *leases) change(l *lease, how func([]leaseAt) []leaseAt) {
	shard := &c.shards[maphash.String(c.seed, l.claim.Key)%leaseShards]
	var list []leaseAt
	if old := shard.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = how(list)
	shard.Store(&list)
}

// remove forgets leases that are gone. The leases are locked.
func (c *leases) remove(gone []*lease) {
	for _, l := range gone {
		c.change(l, func(list []leaseAt) []leaseAt {
			return slices.DeleteFunc(list, func(at leaseAt) bool { return at.lease == l })
		})
	}
}

// evict lets go of the eighth that was not used for longest. The leases are locked.
func (c *leases) evict(now time.Duration) {
	slices.SortFunc(c.all, func(a, b *lease) int { return cmp.Compare(b.used.Load(), a.used.Load()) })
	keep := len(c.all) - len(c.all)/8
	for _, l := range c.all[keep:] {
		l.drop(now, true)
	}
	c.remove(c.all[keep:])
	clear(c.all[keep:])
	c.all = c.all[:keep]
}

// forget drops what is at hand of states that an operation has reset.
func (c *leases) forget(f *flight, e *entry) {
	for _, p := range f.partsOf(e) {
		if l := c.find(p.limit, f.states[p.state].client); l != nil {
			l.drop(c.clock(), false)
		}
	}
}

// forgetPolicy drops what is at hand and under way of a policy's states, which are gone,
// and what was to be given back to them.
func (c *leases) forgetPolicy(name string) {
	c.void(func(l *lease) bool { return l.claim.Policy.Name() == name })
}

// forgetAll drops what is at hand and under way of all states, since what was announced of
// them may have been missed.
func (c *leases) forgetAll() { c.void(func(*lease) bool { return true }) }

// refresh drops what is at hand of policies that are known to have been reset since.
func (c *leases) refresh() {
	now := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.all {
		l.refresh(now)
	}
}

// void drops what leases have at hand and under way, and gives nothing back: their states
// may be new ones, to which it was not charged.
func (c *leases) void(which func(*lease) bool) {
	now := c.clock()
	c.mu.Lock()
	for _, l := range c.all {
		if which(l) {
			l.void(now)
		}
	}
	c.mu.Unlock()
	c.owed.Lock()
	c.debts = slices.DeleteFunc(c.debts, func(d debt) bool { return which(d.lease) })
	c.owed.Unlock()
}

func (c *leases) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// begin reports whether something new may start, and counts it in.
func (c *leases) begin() bool {
	c.gate.Lock()
	defer c.gate.Unlock()
	if !c.closed {
		c.under.Add(1)
	}
	return !c.closed
}

// sweeper gives back what was not spent in time, until the store is closed.
func (c *leases) sweeper() {
	defer c.under.Done()
	tick := time.NewTicker(max(c.time/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.sweep()
		case <-c.stop:
			return
		}
	}
}

// sweep ends what has run out, and gives back what is left of it.
func (c *leases) sweep() {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	now := c.clock()
	c.mu.Lock()
	kept := c.all[:0]
	var gone []*lease
	for _, l := range c.all {
		if l.tidy(now) {
			kept = append(kept, l)
		} else {
			gone = append(gone, l)
		}
	}
	clear(c.all[len(kept):])
	c.all = kept
	c.remove(gone)
	c.mu.Unlock()
	c.settle()
}

func (c *leases) owe(d debt) {
	c.owed.Lock()
	c.debts = append(c.debts, d)
	c.owed.Unlock()
}

// settle gives back what is owed, all of it together, and waits for the answers. It is
// not tried again: an answer that is lost may have been carried out.
func (c *leases) settle() {
	c.owed.Lock()
	debts := c.debts
	c.debts = nil
	c.owed.Unlock()
	parcels := make([]*parcel, 0, len(debts))
	lanes := make([]*lane, 0, len(debts))
	for _, d := range debts {
		lane := c.store.lane(&stint.Op{Claim: d.lease.claim})
		p := lane.newParcel(c.life)
		p.op[0] = stint.Op{Verb: lapse, Claim: d.lease.claim}
		p.op[0].Permits, p.taken = d.permits, d.at
		p.ops, p.results = p.op[:], p.result[:]
		if lane.enqueue(p) == nil {
			parcels, lanes = append(parcels, p), append(lanes, lane)
		}
	}
	for i, p := range parcels {
		if lanes[i].await(p) {
			lanes[i].recycle(p)
		}
	}
}

// close gives everything back.
func (c *leases) close() {
	c.gate.Lock()
	again := c.closed
	c.closed = true
	c.gate.Unlock()
	if again {
		return
	}
	late := time.AfterFunc(returnTime, c.end)
	defer late.Stop()
	close(c.stop)
	c.under.Wait()
	now := c.clock()
	c.mu.Lock()
	for _, l := range c.all {
		l.drop(now, true)
	}
	c.mu.Unlock()
	c.settle()
	c.end()
}
