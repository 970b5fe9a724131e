package failover

import (
	"context"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
)

// Charges are made so many at a time, and so long after one another.
const (
	chargeBatch = 256
	chargePause = 10 * time.Millisecond
)

// A charge is what a client is charged: operations from one to another of a batch.
type charge struct {
	client
	share    *share
	from, to int
	all      bool // whether that is all that its share has against it
}

// startCharging starts charging what was spent locally, if there is something to charge.
func (l *pendingCharges) startCharging() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.touched) > 0 && !l.charging {
		l.charging = l.store.start(l.charge)
	}
}

// charge charges until nothing is left that can be charged: shards that are unreachable, or
// failed the last call, have to answer first.
func (l *pendingCharges) charge() {
	for sleep.For(l.store.life, chargePause) == nil {
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
func (l *pendingCharges) chargeBatch() bool {
	resume, err := l.hold(l.store.life)
	if err != nil {
		return false
	}
	defer resume()
	var ops []stint.Op
	var charges []charge
	for _, c := range l.takeClients() {
		var one charge
		ops, one = l.takeAccount(ops, c)
		charges = append(charges, one)
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
	for i := range charges {
		if c := &charges[i]; c.all && within(ops[c.from:c.to], results[c.from:c.to]) {
			l.renew(c)
		}
	}
	return true
}

// within reports whether the store has taken charges in full, and the client is within its
// limits nevertheless.
func within(ops []stint.Op, results []stint.Result) bool {
	for i := range results {
		r := &results[i]
		if r.Err != nil || r.Decision.Applied != ops[i].Permits || r.Decision.Remaining == 0 {
			return false
		}
	}
	return len(results) > 0
}

// renew resets a client's share, unless it was used since the charge was made.
func (l *pendingCharges) renew(c *charge) {
	l.deciding.Lock()
	defer l.deciding.Unlock()
	for _, out := range l.peek(c.share.account, c.key) {
		if out.Remaining < out.Limit {
			return
		}
	}
	reset := stint.Op{Verb: stint.Reset, Claim: stint.Claim{Key: c.key, Policy: c.share.policy}}
	_, _ = l.store.config.Local.Decide(context.Background(), reset) // else it stays as it is
}

// peek asks the local store about a client of a policy; nil if it can't tell.
func (l *pendingCharges) peek(policy *stint.Policy, key string) []stint.Outcome {
	peek := stint.Op{
		Verb: stint.Peek, Claim: stint.Claim{Key: key, Policy: policy, Permits: 1}, Each: make([]stint.Outcome, policy.Len()),
	}
	if _, err := l.store.config.Local.Decide(context.Background(), peek); err != nil {
		return nil
	}
	return peek.Each
}

// chargeable reports whether there is something to charge. The mutex is held.
func (l *pendingCharges) chargeable() bool {
	for c := range l.touched {
		if l.store.shard(c.key).healthy() {
			return true
		}
	}
	return false
}

// takeClients removes clients whose shards are healthy, for one batch.
func (l *pendingCharges) takeClients() (clients []client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits := 0
	for c := range l.touched {
		if !l.store.shard(c.key).healthy() {
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

// spent takes what a client has spent, and what still counts of it, out of its account, and
// appends the charges for it. Its share stays spent.
func (l *pendingCharges) takeAccount(ops []stint.Op, c client) ([]stint.Op, charge) {
	share := c.plan.share.Load()
	l.deciding.Lock()
	defer l.deciding.Unlock()
	one := charge{client: c, share: share, from: len(ops)}
	account, own := l.peek(share.account, c.key), l.peek(share.policy, c.key)
	one.all = account != nil && own != nil
	for i, out := range account {
		used := out.Limit - out.Remaining
		if used > 0 {
			ops = append(ops, stint.Op{
				Verb: stint.Settle, Claim: stint.Claim{Key: c.key, Policy: share.undivided[i], Permits: used},
			})
		}
		one.all = one.all && own[i].Limit-own[i].Remaining <= used && own[i].ResetAfter <= out.ResetAfter
	}
	reset := stint.Op{Verb: stint.Reset, Claim: stint.Claim{Key: c.key, Policy: share.account}}
	if _, err := l.store.config.Local.Decide(context.Background(), reset); err != nil {
		l.store.counts.dropped.Add(1)
		ops, one.all = ops[:one.from], false // rather than charge it twice
	}
	one.to = len(ops)
	return ops, one
}
