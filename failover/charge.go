package failover

import (
	"context"
	"time"

	"github.com/stint-go/stint"
)

// Charges are made so many at a time, and so long after one another.
const (
	chargeBatch = 256
	chargePause = 10 * time.Millisecond
)

// comeBack starts charging what was spent locally, if there is something to charge.
func (l *locals) comeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.touched) > 0 && !l.charging {
		l.charging = l.store.start(l.charge)
	}
}

// charge charges until nothing is left that can be charged: shards that are away, or
// failed the last call, have to answer first.
func (l *locals) charge() {
	for l.store.pause(chargePause) {
		if l.chargeBatch() {
			continue
		}
		l.mu.Lock()
		l.charging = l.chargeable()
		done := !l.charging
		l.mu.Unlock()
		if done {
			return
		}
	}
}

// chargeBatch charges some clients, and reports false when there was nothing to charge, or
// the store was closed.
func (l *locals) chargeBatch() bool {
	resume, err := l.hold(l.store.life)
	if err != nil {
		return false
	}
	defer resume()
	var ops []stint.Op
	for _, c := range l.take() {
		ops = l.spent(ops, c)
	}
	if ops == nil {
		return false
	}
	s := l.store
	results := make([]stint.Result, len(ops))
	s.send(s.life, s.config.Timeout, ops, results, false)
	for i := range results {
		if results[i].Err != nil {
			s.counts.dropped.Add(1) // it may have been charged
			continue
		}
		s.counts.charged.Add(uint64(max(0, results[i].Decision.Applied)))
	}
	return true
}

// chargeable reports whether there is something to charge. The mutex is held.
func (l *locals) chargeable() bool {
	for c := range l.touched {
		if l.store.shard(c.key).well() {
			return true
		}
	}
	return false
}

// take takes out clients whose shards are well, for one batch.
func (l *locals) take() (clients []client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits := 0
	for c := range l.touched {
		if !l.store.shard(c.key).well() {
			continue
		}
		if limits += c.plan.policy.Len(); limits > chargeBatch && clients != nil {
			break
		}
		clients = append(clients, c)
		delete(l.touched, c)
	}
	return clients
}

// spent takes what a client has spent, and what still counts of it, out of the local
// store, and appends the charges for it.
func (l *locals) spent(ops []stint.Op, c client) []stint.Op {
	share := c.plan.share.Load()
	local := l.store.config.Local
	ctx := context.Background()
	l.deciding.Lock()
	defer l.deciding.Unlock()
	from := len(ops)
	for i, part := range share.parts {
		d, err := local.Decide(ctx, stint.Op{Verb: stint.Peek, Claim: stint.Claim{Key: c.key, Policy: part, Permits: 1}})
		if used := d.Limit - d.Remaining; err == nil && used > 0 {
			ops = append(ops, stint.Op{
				Verb: stint.Settle, Claim: stint.Claim{Key: c.key, Policy: share.wholes[i], Permits: used},
			})
		}
	}
	reset := stint.Op{Verb: stint.Reset, Claim: stint.Claim{Key: c.key, Policy: share.policy}}
	if _, err := local.Decide(ctx, reset); err != nil {
		l.store.counts.dropped.Add(1)
		return ops[:from] // rather than charge it twice
	}
	return ops
}
