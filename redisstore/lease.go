package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// lease is what one client of one limit has in this process. Permits are spent from
// the current grant without a lock; the next grant is asked for when half of it is
// gone, and takes its place when it is used up or has ended.
type lease struct {
	leases  *leases
	limit   *limit
	claim   stint.Claim // of one permit
	current atomic.Pointer[leaseChunk]
	direct  atomic.Int64 // permits asked of the server, not taken from grants
	used    atomic.Int64 // when it was last seen in use, by the local clock

	mu       sync.Mutex
	next     *leaseChunk
	request  *chunkRequest // under way
	gone     bool          // whether the process has let go of the lease
	spent    int64         // permits, of grants that have ended
	estimate rateEstimate
}

// request is a request for a share. It is sent as a take of one permit, its caller's own
// or the first of the share, with more on top. If that one is denied, so are the others.
type chunkRequest struct {
	done      chan struct{} // closed when all below is set
	forCaller bool          // whether the take is its caller's
	void      bool          // whether its share was charged to a state that is gone
	size      int64         // permits to spend
	sent      time.Duration

	decision     stint.Decision // of the take
	outs         [1]stint.Outcome
	bulkAdmitted int64 // permits charged on top of the take
	granted      int64 // permits to spend
	err          error
}

// spend takes n permits of what is at hand.
func (l *lease) spend(n int64, now time.Duration) (g *leaseChunk, d stint.Decision, ok bool) {
	if g = l.current.Load(); !g.fresh(now) {
		return g, d, false
	}
	left, ok := g.spend(n)
	if !ok {
		return g, d, false
	}
	if left <= g.renewAt && left+n > g.renewAt {
		l.renew(n, now)
	}
	return g, g.decision(now, left), true
}

// serve serves an operation from what is at hand, the next grant included.
func (l *lease) serve(op *stint.Op) (d stint.Decision, ok bool) {
	now := l.leases.clock()
	g, d, ok := l.spend(op.Permits, now)
	if !ok {
		l.used.Store(int64(now))
		l.useNext(op.Permits, now)
		g, d, ok = l.spend(op.Permits, now)
	}
	if ok && op.Each != nil {
		op.Each[0] = g.outcome(l.limit, &d)
	}
	return d, ok
}

// promote puts the next grant in the place of one that has ended or has less than n
// permits.
func (l *lease) useNext(n int64, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := l.current.Load()
	if l.next == nil || current.fresh(now) && current.left.Load() >= n {
		return
	}
	l.retire(current, now)
	l.current.Store(l.next)
	l.next = nil
}

// decide decides a take or a try for which there is too little at hand. One request for
// a share is under way at a time, and others wait for it. Whom it does not serve goes to
// the server like everybody else.
func (l *lease) decide(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	store := l.leases.store
	if d, ok := l.serve(op); ok {
		return d, nil
	}
	if d, denied := store.rememberedDenial(op); denied {
		return d, nil
	}
	if q, mine := l.join(op); q != nil {
		select {
		case <-q.done:
		case <-ctx.Done():
			return stint.Decision{}, ctx.Err()
		}
		if mine {
			copy(op.Each, q.outs[:])
			return q.decision, q.err
		}
		if d, ok := l.serve(op); ok {
			return d, nil
		}
	}
	l.direct.Add(op.Permits)
	d, err := store.batcherOf(op).decideOne(ctx, op)
	if err == nil && d.Allowed && op.Permits > 1 {
		l.renew(op.Permits, l.leases.clock())
	}
	return d, err
}

// join returns the request under way, or makes one with the operation in it, if that
// takes one permit and a share is due; otherwise nil.
func (l *lease) join(op *stint.Op) (q *chunkRequest, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.request != nil || op.Permits > 1 {
		return l.request, false
	}
	if size := l.size(l.leases.clock()); size > 0 && l.ask(size, true) {
		l.direct.Add(1)
		return l.request, true
	}
	return nil, false
}

// renew asks for the next share, unless that is under way or there, or one would not
// cover n permits.
func (l *lease) renew(n int64, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.request != nil || l.next != nil {
		return
	}
	if size := l.size(now); size >= n {
		l.ask(size, false)
	}
}

// ask sends a request for a share. It does not depend on any caller's context, since
// the share is not one caller's. The lease is locked.
func (l *lease) ask(size int64, own bool) bool {
	if l.gone || !l.leases.begin() {
		return false
	}
	q := &chunkRequest{done: make(chan struct{}), forCaller: own, size: size}
	l.request = q
	go func() {
		defer l.leases.under.Done()
		q.send(l)
		l.complete(q)
	}()
	return true
}

// be sent makes the request. Who waits for the server also pays for the wait: a share's
// time runs from here.
func (q *chunkRequest) send(l *lease) {
	q.sent = l.leases.clock()
	br := l.leases.store.batcherOf(&stint.Op{Claim: l.claim})
	c := br.newCall(l.leases.life)
	c.op[0] = stint.Op{Verb: stint.Take, Claim: l.claim, Each: q.outs[:]}
	c.bulk = q.size
	if !q.forCaller {
		c.bulk--
	}
	c.ops, c.results = c.op[:], c.result[:]
	free := br.do(c)
	q.decision, q.err = c.result[0].Decision, c.result[0].Err
	if !free {
		return
	}
	q.bulkAdmitted = c.bulkAdmitted
	if q.granted = c.bulkAdmitted; !q.forCaller && q.decision.Allowed {
		q.granted++
	}
	br.recycle(c)
}

// land puts a share at hand, and wakes who waits for it.
func (l *lease) complete(q *chunkRequest) {
	now := l.leases.clock()
	l.mu.Lock()
	l.request = nil
	if q.err == nil && q.granted > 0 && !q.void && !l.outdated(q.decision.At) {
		l.accept(newLeaseChunk(l.limit, q, now, l.leases.time), now)
	}
	l.mu.Unlock()
	close(q.done)
}

// take takes a grant in. The lease is locked.
func (l *lease) accept(g *leaseChunk, now time.Duration) {
	current := l.current.Load()
	switch {
	case l.gone:
		l.retire(g, now)
	case current.fresh(now) && current.left.Load() > 0:
		l.retire(l.next, now)
		l.next = g
	default:
		l.retire(current, now)
		l.current.Store(g)
	}
}

// retire ends a grant; what is left of it goes back. The lease is locked.
func (l *lease) retire(g *leaseChunk, now time.Duration) {
	if g == nil {
		return
	}
	rest := g.close()
	l.spent += g.size - rest
	if g.returnable(l.limit, rest, now) {
		l.leases.queueReturn(leaseReturn{l, rest, g.at})
	}
}

// tidy ends grants whose time is over. It reports whether the lease is of use: it holds
// a grant, or was used a while ago.
func (l *lease) tidy(now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next != nil && !l.next.fresh(now) {
		l.retire(l.next, now)
		l.next = nil
	}
	if current := l.current.Load(); current != nil && !current.fresh(now) {
		l.retire(current, now)
		l.current.Store(l.next)
		l.next = nil
		l.used.Store(int64(now))
	}
	if l.current.Load() != nil || l.request != nil || now-time.Duration(l.used.Load()) < idle*l.leases.time {
		return true
	}
	l.gone = true
	return false
}

// drop lets go of the lease. If what is left goes back is up to the caller: after a
// reset there is nothing to give it back to.
func (l *lease) drop(now time.Duration, giveBack bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(now, giveBack)
}

// dropLocked is drop of a lease that is locked.
func (l *lease) dropLocked(now time.Duration, giveBack bool) {
	for _, g := range []*leaseChunk{l.current.Swap(nil), l.next} {
		if g == nil {
			continue
		}
		if giveBack {
			l.retire(g, now)
		} else {
			l.spent += g.size - g.close()
		}
	}
	l.next = nil
	l.gone = l.gone || giveBack
}

// void drops what is at hand, and what a request under way brings.
func (l *lease) void(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.request != nil {
		l.request.void = true
	}
	l.dropLocked(now, false)
}

// outdated reports whether the policy was reset after an instant, as far as is known.
func (l *lease) outdated(at stint.Instant) bool {
	return int64(at) < l.leases.store.batcherOf(&stint.Op{Claim: l.claim}).epochs.get(l.claim.Policy.Name())
}

// refresh drops what is at hand of before a reset.
func (l *lease) refresh(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.current.Load(); g == nil || l.outdated(g.at) {
		l.dropLocked(now, false)
	}
}
