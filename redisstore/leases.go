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

	sweeping  sync.Mutex
	returnsMu sync.Mutex
	returns   []leaseReturn
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
type leaseReturn struct {
	lease   *lease
	permits int64
	at      stint.Instant // when they were charged
}

// returnTime bounds how long Close waits for the server.
const returnTime = time.Second

func newLeases(s *Store) *leases {
	ls := &leases{store: s, time: s.options.LeaseTime, clock: uptime(), seed: maphash.MakeSeed(), stop: make(chan struct{})}
	if now := s.options.Now; now != nil {
		ls.clock = func() time.Duration { return micros(int64(now())) }
	}
	ls.life, ls.end = context.WithCancel(s.life)
	return ls
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
	if d, known = s.rememberedDenial(op); known {
		return d, true
	}
	if l != nil {
		l.direct.Add(op.Permits)
		l.renew(op.Permits, s.leases.clock())
	}
	return d, false
}

// decide decides an operation that may be decided by a lease of the limit.
func (ls *leases) decide(ctx context.Context, op *stint.Op, limit *limit) (stint.Decision, error) {
	if l := ls.of(limit, op); l != nil {
		return l.decide(ctx, op)
	}
	return ls.store.batcherOf(op).decideOne(ctx, op)
}

// of returns the lease of an operation's client, a new one if need be; none once the
// store is closed.
func (ls *leases) of(limit *limit, op *stint.Op) *lease {
	if l := ls.find(limit, op.Key); l != nil {
		return l
	}
	return ls.add(limit, op)
}

// find finds a lease without a lock.
func (ls *leases) find(limit *limit, client string) *lease {
	hash := maphash.String(ls.seed, client)
	if list := ls.shards[hash%leaseShards].Load(); list != nil {
		for i := range *list {
			if at := &(*list)[i]; at.hash == hash && at.lease.limit == limit && at.lease.claim.Key == client {
				return at.lease
			}
		}
	}
	return nil
}

func (ls *leases) add(limit *limit, op *stint.Op) *lease {
	if !ls.begin() {
		return nil
	}
	defer ls.under.Done()
	ls.start.Do(func() {
		ls.under.Add(1)
		go ls.sweeper()
	})
	now := ls.clock()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.find(limit, op.Key); l != nil {
		return l
	}
	if len(ls.all) >= maxLeases {
		ls.evict(now)
	}
	claim := stint.Claim{Key: strings.Clone(op.Key), Policy: op.Policy, Permits: 1}
	l := &lease{leases: ls, limit: limit, claim: claim, estimate: rateEstimate{observedAt: now}}
	l.used.Store(int64(now))
	ls.all = append(ls.all, l)
	ls.change(l, func(list []leaseAt) []leaseAt {
		return append(list, leaseAt{maphash.String(ls.seed, claim.Key), l})
	})
	return l
}

// change puts a changed copy in the place of the shard of a lease.
func (ls *leases) change(l *lease, how func([]leaseAt) []leaseAt) {
	shard := &ls.shards[maphash.String(ls.seed, l.claim.Key)%leaseShards]
	var list []leaseAt
	if old := shard.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = how(list)
	shard.Store(&list)
}

// remove forgets leases that are gone. The leases are locked.
func (ls *leases) remove(gone []*lease) {
	for _, l := range gone {
		ls.change(l, func(list []leaseAt) []leaseAt {
			return slices.DeleteFunc(list, func(at leaseAt) bool { return at.lease == l })
		})
	}
}

// evict lets go of the eighth that was not used for longest. The leases are locked.
func (ls *leases) evict(now time.Duration) {
	slices.SortFunc(ls.all, func(a, b *lease) int { return cmp.Compare(b.used.Load(), a.used.Load()) })
	keep := len(ls.all) - len(ls.all)/8
	for _, l := range ls.all[keep:] {
		l.drop(now, true)
	}
	ls.remove(ls.all[keep:])
	clear(ls.all[keep:])
	ls.all = ls.all[:keep]
}

// forget drops what is at hand of states that an operation has reset.
func (ls *leases) forget(b *batch, e *entry) {
	for _, p := range b.limitsOf(e) {
		if l := ls.find(p.limit, b.states[p.state].client); l != nil {
			l.drop(ls.clock(), false)
		}
	}
}

// forgetPolicy drops what is at hand and under way of a policy's states, which are gone,
// and what was to be given back to them.
func (ls *leases) forgetPolicy(name string) {
	ls.void(func(l *lease) bool { return l.claim.Policy.Name() == name })
}

// forgetAll drops what is at hand and under way of all states, since what was announced of
// them may have been missed.
func (ls *leases) forgetAll() { ls.void(func(*lease) bool { return true }) }

// refresh drops what is at hand of policies that are known to have been reset since.
func (ls *leases) refresh() {
	now := ls.clock()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.all {
		l.refresh(now)
	}
}

// void drops what leases have at hand and under way, and gives nothing back: their states
// may be new ones, to which it was not charged.
func (ls *leases) void(which func(*lease) bool) {
	now := ls.clock()
	ls.mu.Lock()
	for _, l := range ls.all {
		if which(l) {
			l.void(now)
		}
	}
	ls.mu.Unlock()
	ls.returnsMu.Lock()
	ls.returns = slices.DeleteFunc(ls.returns, func(d leaseReturn) bool { return which(d.lease) })
	ls.returnsMu.Unlock()
}

func (ls *leases) count() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.all)
}

// begin reports whether something new may start, and counts it in.
func (ls *leases) begin() bool {
	ls.gate.Lock()
	defer ls.gate.Unlock()
	if !ls.closed {
		ls.under.Add(1)
	}
	return !ls.closed
}

// sweeper gives back what was not spent in time, until the store is closed.
func (ls *leases) sweeper() {
	defer ls.under.Done()
	tick := time.NewTicker(max(ls.time/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			ls.sweep()
		case <-ls.stop:
			return
		}
	}
}

// sweep ends what has run out, and gives back what is left of it.
func (ls *leases) sweep() {
	ls.sweeping.Lock()
	defer ls.sweeping.Unlock()
	now := ls.clock()
	ls.mu.Lock()
	kept := ls.all[:0]
	var gone []*lease
	for _, l := range ls.all {
		if l.tidy(now) {
			kept = append(kept, l)
		} else {
			gone = append(gone, l)
		}
	}
	clear(ls.all[len(kept):])
	ls.all = kept
	ls.remove(gone)
	ls.mu.Unlock()
	ls.sendReturns()
}

func (ls *leases) queueReturn(d leaseReturn) {
	ls.returnsMu.Lock()
	ls.returns = append(ls.returns, d)
	ls.returnsMu.Unlock()
}

// settle gives back what is owed, all of it together, and waits for the answers. It is
// not tried again: an answer that is lost may have been carried out.
func (ls *leases) sendReturns() {
	ls.returnsMu.Lock()
	debts := ls.returns
	ls.returns = nil
	ls.returnsMu.Unlock()
	calls := make([]*call, 0, len(debts))
	batchers := make([]*batcher, 0, len(debts))
	for _, d := range debts {
		br := ls.store.batcherOf(&stint.Op{Claim: d.lease.claim})
		c := br.newCall(ls.life)
		c.op[0] = stint.Op{Verb: returnLease, Claim: d.lease.claim}
		c.op[0].Permits, c.takenAt = d.permits, d.at
		c.ops, c.results = c.op[:], c.result[:]
		if br.enqueue(c) == nil {
			calls, batchers = append(calls, c), append(batchers, br)
		}
	}
	for i, c := range calls {
		if batchers[i].await(c) {
			batchers[i].recycle(c)
		}
	}
}

// close gives everything back.
func (ls *leases) close() {
	ls.gate.Lock()
	again := ls.closed
	ls.closed = true
	ls.gate.Unlock()
	if again {
		return
	}
	late := time.AfterFunc(returnTime, ls.end)
	defer late.Stop()
	close(ls.stop)
	ls.under.Wait()
	now := ls.clock()
	ls.mu.Lock()
	for _, l := range ls.all {
		l.drop(now, true)
	}
	ls.mu.Unlock()
	ls.sendReturns()
	ls.end()
}
