package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore/internal/layout"
	"github.com/stint-go/stint/redisstore/internal/queue"
)

// leaseChunk is a number of a client's permits that the server has charged, to be spent in this
// process. Only left changes.
type leaseChunk struct {
	// left is permits; closedChunk once nothing may be spent any more.
	left atomic.Int64
	size int64
	// renewAt is how many are left when the next chunk is requested: half.
	renewAt int64
	// sent is when it was requested, and span for how long after that it may be spent, by the local
	// clock.
	sent time.Duration
	span time.Duration // for how long after that it may be spent
	// at is the server's time of the decision, by which its rest is returned.
	at stint.Instant
	// charged is the outcome of the state with the whole chunk charged, from which answers are made.
	charged stint.Outcome
}

// closedChunk is what is left of a closed chunk: less than anybody takes.
const closedChunk = -1

// newLeaseChunk makes a chunk of a reply. It may be spent for at most lifetime, and a window's until the
// window ends by the pessimistic reading of the local clock: it was sent before the server
// decided, and the rates of the clocks differ by 1/clockRates at most.
func newLeaseChunk(l *layout.Limit, q *chunkRequest, lifetime time.Duration) *leaseChunk {
	c := &leaseChunk{
		size:    q.granted,
		renewAt: q.granted / 2,
		sent:    q.sent,
		span:    lifetime,
		at:      q.decision.At,
		charged: q.outcomes[0],
	}
	c.left.Store(q.granted)
	c.charged.Remaining = max(0, c.charged.Remaining-q.bulkAdmitted)
	c.charged.ResetAfter += refillTime(l, q.bulkAdmitted)
	if wait := c.charged.ResetAfter; l.Algorithm() == stint.AlgorithmFixedWindow {
		c.span = min(lifetime, wait-wait/clockRates)
	}
	return c
}

// fresh reports whether the chunk may be spent at a local time.
func (c *leaseChunk) fresh(now time.Duration) bool {
	return c != nil && uint64(now-c.sent) < uint64(c.span)
}

// holds reports whether n permits may be spent of it now.
func (c *leaseChunk) holds(n int64, now time.Duration) bool {
	return c.fresh(now) && c.left.Load() >= n
}

// spend takes n permits, all or none, and returns how many are left.
func (c *leaseChunk) spend(n int64, now time.Duration) (left int64, ok bool) {
	if !c.fresh(now) {
		return 0, false
	}
	for {
		left = c.left.Load()
		if left < n {
			return left, false
		}
		if c.left.CompareAndSwap(left, left-n) {
			return left - n, true
		}
	}
}

// decision is that of a take with which so many permits are left.
func (c *leaseChunk) decision(now time.Duration, left int64) stint.Decision {
	elapsed := now - c.sent
	return stint.Decision{
		Allowed: true, Source: stint.SourceLease, Limit: c.charged.Limit, Remaining: c.charged.Remaining + left,
		ResetAfter: max(0, c.charged.ResetAfter-elapsed), At: c.at.Add(elapsed),
	}
}

// refillTime is how long a token bucket takes to refill n permits, rounded up; 0 for a window.
func refillTime(l *layout.Limit, n int64) time.Duration { return layout.Micros(l.TimeOf(n)) }

// chunkRequest is a request for a chunk. It is sent as a take of one permit, its caller's own or
// the first of the chunk, with a bulk of more behind it. If the take is denied, so is the bulk.
type chunkRequest struct {
	done      chan struct{} // closed when all below is set
	forCaller bool          // whether the take is its caller's
	// void says that the state that was charged is gone.
	void bool
	size int64 // permits to spend
	sent time.Duration

	decision     stint.Decision // of the take
	outcomes     [1]stint.Outcome
	bulkAdmitted int64
	granted      int64 // permits to spend
	err          error
}

// rateEstimate is the recent rate of one client in this process.
type rateEstimate struct {
	perSecond float64       // permits
	counted   int64         // permits up to observedAt
	observed  time.Duration // by the local clock
}

// observe brings the estimate up to date: taken permits have been asked for in all. With the span
// since the last observation d, the new rate weighs d / (d + half), so that the estimate follows
// within a few times half.
func (r *rateEstimate) observe(now time.Duration, taken int64, half time.Duration) {
	span := now - r.observed
	if span <= 0 {
		return
	}
	weight := float64(span) / float64(span+half)
	r.perSecond += weight * (float64(taken-r.counted)/span.Seconds() - r.perSecond)
	r.counted, r.observed = taken, now
}

// maxShare is the part of a limit's capacity that a chunk sized by the rate has at most, 1/maxShare,
// so that a process with two chunks leaves room for others.
const maxShare = 16

// lease is what one client of one limit has leased in this process. Permits are spent from the
// current chunk without a lock. The next chunk is requested when half of it is spent, and takes
// its place when it is used up or its time is over.
//
//	current --spent, or its time is over--> next --> current
//	request --granted--> next, or current if there is none that lasts
type lease struct {
	leases  *leases
	limit   *layout.Limit
	claim   stint.Claim // of one permit
	current atomic.Pointer[leaseChunk]
	// direct counts permits asked of the server, not taken from chunks.
	direct atomic.Int64
	used   atomic.Int64 // when it was last used, by the local clock

	mu      sync.Mutex
	next    *leaseChunk
	request *chunkRequest // in flight
	closed  bool          // whether no chunk is accepted any more
	// spent counts permits of chunks that have ended; with direct they give the client's rate.
	spent   int64
	resetAt stint.Instant // the client's last reset by this process
	rate    rateEstimate
}

// spend serves an operation from the current chunk, or else from the next one.
func (l *lease) spend(op *stint.Op) (d stint.Decision, ok bool) {
	now := l.leases.clock()
	chunk := l.current.Load()
	left, ok := chunk.spend(op.Permits, now)
	if !ok {
		l.used.Store(int64(now))
		chunk = l.useNext(op.Permits, now)
		if left, ok = chunk.spend(op.Permits, now); !ok {
			return d, false
		}
	}
	if left <= chunk.renewAt && left+op.Permits > chunk.renewAt {
		l.renew(op.Permits, now)
	}
	d = chunk.decision(now, left)
	if op.Each != nil {
		grows := d.ResetAfter
		if refill := refillTime(l.limit, 1); refill > 0 {
			grows = min(refill, grows)
		}
		op.Each[0] = stint.Outcome{
			Allowed:    true,
			Limit:      d.Limit,
			Remaining:  d.Remaining,
			ResetAfter: d.ResetAfter,
			GrowsAfter: grows,
		}
	}
	return d, true
}

// useNext puts the next chunk in the place of one that has ended or has less than n permits, and
// returns the current one.
func (l *lease) useNext(n int64, now time.Duration) *leaseChunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current.Load()
	if l.next == nil || current.holds(n, now) {
		return current
	}
	l.replace(l.next, now)
	return l.current.Load()
}

// replace ends the current chunk and puts another one, which may be nil, in its place. The lease is locked.
func (l *lease) replace(chunk *leaseChunk, now time.Duration) {
	l.retire(l.current.Load())
	l.current.Store(chunk)
	l.next = nil
	l.used.Store(int64(now))
}

// decide decides a take or a try. One request for a chunk is in flight at a time, and others wait
// for it. Those that it does not serve go to the server like all other operations.
func (l *lease) decide(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	store := l.leases.store
	if d, ok := l.spend(op); ok {
		return d, nil
	}
	if d, denied := store.rememberedDenial(op); denied {
		return d, nil
	}
	if q, mine := l.join(op); q != nil {
		var cancel context.CancelFunc
		ctx, cancel = queue.Within(ctx, op.Timeout)
		defer cancel()
		select {
		case <-q.done:
		case <-ctx.Done():
			return stint.Decision{}, queue.EndOf(ctx)
		}
		if mine {
			copy(op.Each, q.outcomes[:])
			return q.decision, q.err
		}
	}
	if d, ok := l.spend(op); ok {
		return d, nil
	}
	l.direct.Add(op.Permits)
	d, err := store.batcherOf(op).DecideOne(ctx, op)
	if err == nil && d.Allowed && op.Permits > 1 {
		l.renew(op.Permits, l.leases.clock())
	}
	return d, err
}

// join returns the request in flight, or makes one with the operation in it, if that takes one
// permit and a chunk is due; otherwise nil. None is due if one came since the caller looked.
func (l *lease) join(op *stint.Op) (q *chunkRequest, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.request != nil || op.Permits > 1 {
		return l.request, false
	}
	now := l.leases.clock()
	if l.current.Load().holds(1, now) {
		return nil, false
	}
	if size := l.chunkSize(now); size > 0 && l.ask(size, true) {
		l.direct.Add(1)
		return l.request, true
	}
	return nil, false
}

// renew requests the next chunk, unless that is in flight or there, or one would not cover n permits.
func (l *lease) renew(n int64, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.request != nil || l.next != nil {
		return
	}
	if size := l.chunkSize(now); size >= n {
		l.ask(size, false)
	}
}

// chunkSize is how many permits to ask for; 0 when the client is so slow that a chunk would
// only be returned. Sized by the rate, a chunk lasts for half of a lease's time: the
// next is requested when half of it is spent, so it is used up after three quarters.
// The lease is locked.
func (l *lease) chunkSize(now time.Duration) int64 {
	limit := &l.limit.Spec
	if limit.Lease > 0 {
		return limit.Lease
	}
	half := l.leases.time / 2
	taken := l.spent + l.direct.Load()
	if c := l.current.Load(); c != nil {
		taken += c.size - max(0, c.left.Load())
	}
	l.rate.observe(now, taken, half)
	return min(int64(l.rate.perSecond*half.Seconds()), max(1, limit.Capacity/maxShare))
}

// ask sends a request for a chunk. It does not depend on any caller's context, since
// the chunk is for all callers. The lease is locked.
func (l *lease) ask(size int64, forCaller bool) bool {
	if l.closed || !l.leases.begin() {
		return false
	}
	q := &chunkRequest{done: make(chan struct{}), forCaller: forCaller, size: size}
	l.request = q
	go func() {
		defer l.leases.work.Done()
		q.send(l)
		l.complete(q)
	}()
	return true
}

// send makes the request. The chunk's time runs from here, so that it includes the wait for the server.
func (q *chunkRequest) send(l *lease) {
	q.sent = l.leases.clock()
	br := l.leases.store.batcherOf(&stint.Op{Claim: l.claim})
	c := br.NewCall(l.leases.life, &stint.Op{Verb: stint.VerbTake, Claim: l.claim, Each: q.outcomes[:]})
	c.Bulk = q.size
	if !q.forCaller {
		c.Bulk--
	}
	done := br.Do(c)
	result := c.Result()
	q.decision, q.err = result.Decision, result.Err
	if !done {
		return
	}
	q.bulkAdmitted = c.BulkAdmitted
	if q.granted = c.BulkAdmitted; !q.forCaller && q.decision.Allowed {
		q.granted++
	}
	br.Recycle(c)
}

// complete accepts the chunk of a request, and wakes those who wait for it.
func (l *lease) complete(q *chunkRequest) {
	now := l.leases.clock()
	l.mu.Lock()
	l.request = nil
	if q.err == nil && q.granted > 0 && !q.void && !l.outdated(q.decision.At) {
		chunk := newLeaseChunk(l.limit, q, l.leases.time)
		current := l.current.Load()
		switch {
		case l.closed:
			l.retire(chunk)
		case current.fresh(now) && current.left.Load() > 0:
			l.retire(l.next)
			l.next = chunk
		default:
			l.replace(chunk, now)
		}
	}
	l.mu.Unlock()
	close(q.done)
}

// end ends a chunk, and reports how many of its permits were not spent. The lease is locked.
func (l *lease) end(c *leaseChunk) (rest int64) {
	if c == nil {
		return 0
	}
	rest = max(0, c.left.Swap(closedChunk))
	l.spent += c.size - rest
	return rest
}

// retire ends a chunk and returns what is left of it. The lease is locked.
func (l *lease) retire(c *leaseChunk) {
	if rest := l.end(c); rest > 0 {
		l.leases.queueReturn(leaseReturn{l, rest, c.at})
	}
}

// tidy ends chunks whose time is over. It reports whether the lease is of use: it has
// a chunk, or was used a while ago.
func (l *lease) tidy(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next != nil && !l.next.fresh(now) {
		l.retire(l.next)
		l.next = nil
	}
	if current := l.current.Load(); current != nil && !current.fresh(now) {
		l.replace(l.next, now)
	}
	l.closed = l.current.Load() == nil && l.request == nil &&
		now-time.Duration(l.used.Load()) >= idleLeaseTimes*l.leases.time
	return !l.closed
}

// close ends the lease and returns what is left.
func (l *lease) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.retire(l.next)
	l.retire(l.current.Swap(nil))
	l.next = nil
}

// discard ends the chunks that were charged to a state which is gone, and returns nothing: all of
// them and the one in flight, or those that are outdated.
func (l *lease) discard(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all && l.request != nil {
		l.request.void = true
	}
	if l.next != nil && (all || l.outdated(l.next.at)) {
		l.end(l.next)
		l.next = nil
	}
	if c := l.current.Load(); c != nil && (all || l.outdated(c.at)) {
		l.end(c)
		l.current.Store(l.next)
		l.next = nil
	}
}

// outdated reports whether the state was reset after an instant, as far as this process knows. The lease is locked.
func (l *lease) outdated(at stint.Instant) bool {
	br := l.leases.store.batcherOf(&stint.Op{Claim: l.claim})
	return at <= l.resetAt || int64(at) < br.Target.Epochs.Get(l.limit.EpochField)
}
