package oracle_test

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/oracle"
)

// A name says whose state it is.
type name struct {
	policy, limit string
	algorithm     stint.Algorithm
	key           string
}

// A ledger checks the invariants of holds on a store's answers, by other means than the model:
// it writes down which permits were taken when, takes off them what the ends of holds leave over, and counts.
//
// It knows what a limit would admit only as long as the limit stays the same, nothing is refunded, and the clock
// is not set back; until the next reset it then leaves that account alone. Concurrency is counted always.
type ledger struct {
	accounts map[name]*account
	pledges  map[string]*pledge
	now      int64 // the latest time that was seen

	// Checked counts the limits whose Remaining was held to the account.
	Checked int
}

// An item is what was taken, or charged, at an instant.
type item struct{ at, n int64 }

type account struct {
	limit stint.Limit
	mixed bool // see ledger; windows of the calendar are left to the model
	items []*item
	start int64 // of the newest window, where the first request begins one
}

// A pledge is a hold: what the ledger knows of an id.
type pledge struct {
	names   []name
	expires int64
	keep    bool
	live    bool
	dropped bool // some of it: its end is late for that, and for the rest in time
	// doubtful says that it is open whether it was reset, or has expired before.
	doubtful bool
	shares   []*share

	remembered int64 // for how long its expiry is
}

// inOrderOf brings the shares into the order of limits. It reports false if it has others. Of the ways that share a state
// the order is theirs.
func (p *pledge) inOrderOf(of []name) bool {
	if len(p.names) != len(of) {
		return false
	}
	var shares []*share
	used := make([]bool, len(of))
	for _, n := range of {
		at := 0
		for at < len(of) && (used[at] || p.names[at] != n) {
			at++
		}
		if at == len(of) {
			return false
		}
		used[at] = true
		shares = append(shares, p.shares[at])
	}
	p.names, p.shares = of, shares
	return true
}

// A share is what a hold has of one limit.
type share struct {
	permits int64   // in all
	expired int64   // in all, before it expired
	owed    int64   // of these, what expiries had charged before
	paid    int64   // of these, what an expiry charged for good
	items   []*item // the rest, the oldest first
	gone    bool    // reset, or dropped
	fixed   bool    // of a fixed cost
}

// newLedger returns an empty ledger.
func newLedger() *ledger {
	return &ledger{accounts: map[name]*account{}, pledges: map[string]*pledge{}}
}

// ResetAll is told of a reset of policies.
func (l *ledger) ResetAll(scope stint.Scope, now stint.Instant) {
	l.tick(int64(now))
	for _, p := range l.pledges {
		p.doubtful = p.doubtful || slices.ContainsFunc(p.shares, func(s *share) bool { return s.gone })
	}
	for n := range l.accounts {
		if scope.All || n.policy == scope.Policy {
			l.reset(n)
		}
	}
}

// reset drops an account, and what is held of it.
func (l *ledger) reset(n name) {
	delete(l.accounts, n)
	for _, p := range l.pledges {
		for i, s := range p.shares {
			if p.live && p.names[i] == n && s.permits > s.paid {
				*s = share{permits: s.permits, paid: s.paid, gone: true}
			}
		}
	}
}

// names are the limits of an operation, and whose they are.
func names(op stint.Op) (list []name) {
	for _, c := range oracle.Claims(&op) {
		for _, limit := range c.Policy.Limits() {
			list = append(list, name{c.Policy.Name(), limit.Name, limit.Algorithm, c.Key})
		}
	}
	return list
}

func asked(op stint.Op) (permits []int64) {
	return ofClaims(op, func(c *stint.Claim) int64 { return c.Permits })
}

// kept are how many permits of each limit an operation leaves to others.
func kept(op stint.Op) []int64 { return ofClaims(op, func(c *stint.Claim) int64 { return c.Keep }) }

// ofClaims is a number of each limit's claim.
func ofClaims(op stint.Op, number func(c *stint.Claim) int64) (list []int64) {
	for _, c := range oracle.Claims(&op) {
		for range c.Policy.Len() {
			list = append(list, number(c))
		}
	}
	return list
}

// Note is told of an operation, what the store said of it, and which limits the model says were charged, and how
// much. It returns which invariant does not hold.
func (l *ledger) Note(op, carried stint.Op, got stint.Result, want oracle.Answer, at stint.Instant) error {
	l.tick(int64(at))
	if got.Err != nil || op.Verb == stint.VerbList {
		return nil
	}
	of := names(op)
	accounts := make([]*account, len(of))
	for i, n := range of {
		limit := limitOf(op, i)
		if op.Verb == stint.VerbReset {
			l.reset(n)
		}
		a := l.accounts[n]
		if a == nil {
			a = &account{limit: limit, mixed: limit.Calendar != 0}
			l.accounts[n] = a
		}
		if limit.Cost = a.limit.Cost; limit != a.limit || int64(at) < l.now {
			a.mixed = true
		}
		accounts[i] = a
	}
	grown := make([]int64, len(of)) // what was admitted
	switch op.Verb {
	case stint.VerbTake, stint.VerbTry:
		for i, n := range asked(op) {
			if a := accounts[i]; limitOf(op, i).Denials {
				if !got.Decision.Allowed && op.Verb == stint.VerbTake && a.room(l.now).Sign() > 0 {
					a.add(l.now, 1)
				}
			} else if got.Decision.Allowed && want.Charged[i] {
				grown[i] = limitOf(op, i).Takes(n)
				accounts[i].add(l.now, grown[i])
			}
		}
	case stint.VerbSettle:
		for i, a := range accounts {
			if n := want.Each[i].Applied; n < 0 {
				a.mixed = true
			} else if fixed := limitOf(op, i).Cost > 0 || limitOf(op, i).Denials; !fixed && a.limit.Algorithm != stint.AlgorithmConcurrency {
				a.add(l.now, n)
			}
		}
	case stint.VerbReserve:
		if got.Decision.Allowed {
			grown = l.reserve(op, carried, want, of, accounts)
		}
	case stint.VerbCommit, stint.VerbCancel:
		l.end(op, carried, want, of, accounts)
	case stint.VerbDrop:
		l.drop(op, of)
	default:
	}
	keeps := kept(op)
	for i, a := range accounts {
		if err := l.check(op, i, of[i], a, grown[i], keeps[i], carried.Each[i], got.Decision.Allowed); err != nil {
			return err
		}
	}
	return nil
}

// tick lets expire what is due.
func (l *ledger) tick(now int64) {
	if now < l.now {
		for _, a := range l.accounts {
			a.mixed = true
		}
	}
	l.now = max(l.now, now)
	for id, p := range l.pledges {
		if p.live && p.expires <= l.now {
			p.live = false
			for i := range p.shares {
				p.expire(i)
			}
		}
		if !p.live && p.expires+p.remembered < l.now {
			delete(l.pledges, id)
		}
	}
}

// expire settles a share as an expiry does: "by on_expiry: release (as Commit of 0, numbers stay) or keep".
func (p *pledge) expire(i int) {
	s := p.shares[i]
	if s.expired, s.owed = s.permits, s.paid; s.gone {
		return // what was reset is taken anew
	}
	if !p.keep && !s.fixed {
		s.giveBack(p.names[i], s.permits-s.paid)
	}
	if p.keep && p.names[i].algorithm != stint.AlgorithmConcurrency {
		s.paid = s.permits
	} else {
		s.permits = s.paid
	}
	s.items = nil
}

// giveBack takes permits off the newest parts: "each part took its share of min(held, actual) ..., oldest part first".
func (s *share) giveBack(n name, permits int64) {
	if n.algorithm == stint.AlgorithmLeakyBucket {
		return // "but a leaky bucket's turns"
	}
	for i := len(s.items) - 1; i >= 0 && permits > 0; i-- {
		back := min(permits, s.items[i].n)
		s.items[i].n -= back
		permits -= back
	}
}

func (a *account) add(at, n int64) *item {
	it := &item{at, n}
	if n > 0 && a.limit.Algorithm != stint.AlgorithmConcurrency {
		if at >= a.start+a.limit.Window.Microseconds() || a.taken(a.start, at+1) == 0 {
			a.start = at
		}
		a.items = append(a.items, it)
	}
	return it
}

func (l *ledger) reserve(op, carried stint.Op, want oracle.Answer, of []name, accounts []*account) (grown []int64) {
	p := l.pledges[op.Hold().ID]
	if p == nil || !p.inOrderOf(of) {
		p = &pledge{names: of, shares: make([]*share, len(of))}
		for i := range p.shares {
			p.shares[i] = &share{}
		}
		l.pledges[op.Hold().ID] = p
	}
	if carried.Hold().Replayed && !p.live { // the clock was set back to before it expired, and no write had noticed that
		for _, s := range p.shares {
			s.permits, s.paid = s.expired, s.owed
		}
	}
	p.expires, p.keep, p.live = int64(carried.Hold().ExpiresAt), bool(op.Hold().OnExpiry), true
	p.remembered = bounds.Remembered(op.Hold().TTL).Microseconds()
	grown = make([]int64, len(of))
	for i, n := range asked(op) {
		s := p.shares[i]
		accounts[i].mixed = accounts[i].mixed || p.doubtful
		if !want.Charged[i] {
			continue
		}
		if s.gone {
			*s = share{}
		}
		s.fixed = limitOf(op, i).Cost > 0
		if grown[i] = max(0, limitOf(op, i).Takes(n)-s.permits); grown[i] > 0 {
			s.permits += grown[i]
			s.items = append(s.items, accounts[i].add(l.now, grown[i]))
		}
	}
	return grown
}

func (l *ledger) end(op, carried stint.Op, want oracle.Answer, of []name, accounts []*account) {
	p := l.pledges[op.Hold().ID]
	if carried.Hold().Replayed {
		return
	}
	for _, a := range accounts {
		a.mixed = a.mixed || p != nil && p.doubtful
	}
	live := p != nil && p.live && p.inOrderOf(of)
	for i, n := range asked(op) {
		if applied := want.Each[i].Applied; applied > 0 {
			accounts[i].add(l.now, applied)
		}
		if !live || p.shares[i].gone || carried.Hold().Late && !p.dropped {
			continue
		}
		s, keeps := p.shares[i], n
		if limitOf(op, i).Cost > 0 {
			keeps = s.permits
		}
		if op.Verb == stint.VerbCancel {
			keeps = 0
		}
		s.giveBack(of[i], min(s.permits-keeps, s.permits-s.paid))
	}
	delete(l.pledges, op.Hold().ID)
}

// drop lets expire what a hold has of these limits.
func (l *ledger) drop(op stint.Op, of []name) {
	p := l.pledges[op.Hold().ID]
	if p == nil || !p.live {
		return
	}
	p.dropped = true
	for i, n := range p.names {
		if slices.Contains(of, n) && !p.shares[i].gone && p.shares[i].permits > p.shares[i].paid {
			paid := p.shares[i].paid
			permits := p.shares[i].permits
			p.expire(i)
			*p.shares[i] = share{permits: permits, paid: paid, gone: true}
		}
	}
}

// check holds one limit's outcome to its account: invariants 1 and 2, and of concurrency 4 and 6.
func (l *ledger) check(op stint.Op, i int, n name, a *account, grown, keep int64, e stint.Outcome, allowed bool) error {
	limit := limitOf(op, i)
	if limit.Algorithm == stint.AlgorithmConcurrency {
		held := l.held(n)
		if grown > 0 && allowed && held > limit.Capacity-keep {
			return fmt.Errorf("limit %d: invariant 6: %d are held of %d, of which %d were to be kept", i, held, limit.Capacity, keep)
		}
		if want := max(0, limit.Capacity-held-keep); !a.mixed && e.Remaining != want {
			return fmt.Errorf("limit %d: invariants 4 and 5: %d remain, by the ledger %d", i, e.Remaining, want)
		}
		l.Checked++
		return nil
	}
	if a.mixed {
		a.items = nil
		return nil
	}
	l.Checked++
	room := a.room(l.now)
	if grown > 0 && allowed && room.Cmp(rat(keep)) < 0 {
		return fmt.Errorf("limit %d: invariant 1: admitted, and by the ledger %s remain, of which %d were to be kept", i, room.RatString(), keep)
	}
	want := max(0, floor(room)-keep)
	switch limit.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmSlidingWindowLog:
		if e.Remaining > want {
			return fmt.Errorf("limit %d: invariant 2: %d remain, by the ledger at most %d", i, e.Remaining, want)
		}
	default:
		if e.Remaining != want {
			return fmt.Errorf("limit %d: invariant 2: %d remain, by the ledger %d", i, e.Remaining, want)
		}
	}
	return nil
}

// held is how many permits live holds have.
func (l *ledger) held(n name) (sum int64) {
	for _, p := range l.pledges {
		for i, s := range p.shares {
			if p.live && p.names[i] == n && !s.gone {
				sum += s.permits
			}
		}
	}
	return sum
}

// room is what is left of an account: of windows and logs what was taken in them, of buckets a bucket that only takes.
func (a *account) room(now int64) *big.Rat {
	capacity, window := rat(a.limit.Capacity), a.limit.Window.Microseconds()
	switch a.limit.Algorithm {
	case stint.AlgorithmFixedWindow:
		if a.limit.FirstRequest && now >= a.start+window {
			return capacity
		} else if a.limit.FirstRequest {
			return sub(capacity, rat(a.taken(a.start, now+1)))
		}
		a.forget(now - now%window)
		return sub(capacity, rat(a.taken(now-now%window, now+1)))
	case stint.AlgorithmSlidingWindowLog:
		a.forget(now - window + 1)
		return sub(capacity, rat(a.taken(now-window+1, now+1)))
	case stint.AlgorithmSlidingWindowCounter:
		start := now - now%window
		a.forget(start - window)
		previous := big.NewRat(a.taken(start-window, start)*(window-(now-start)), window)
		return sub(sub(capacity, previous), rat(a.taken(start, now+1)))
	default:
	}
	full := new(big.Rat) // when the bucket is full, the queue empty
	for _, it := range a.items {
		full = add(greater(full, rat(it.at)), mul(rat(it.n), permitTime(a.limit)))
	}
	backlog := greater(sub(full, rat(now)), new(big.Rat))
	if a.limit.Algorithm == stint.AlgorithmLeakyBucket {
		return sub(capacity, rat(ceil(quo(backlog, permitTime(a.limit)))))
	}
	if backlog.Sign() == 0 {
		a.items = nil
	}
	return sub(capacity, quo(backlog, permitTime(a.limit)))
}

func (a *account) forget(before int64) {
	a.items = slices.DeleteFunc(a.items, func(it *item) bool { return it.at < before })
}

func (a *account) taken(from, to int64) (n int64) {
	for _, it := range a.items {
		if it.at >= from && it.at < to {
			n += it.n
		}
	}
	return n
}

// Exact arithmetic.

func rat(n int64) *big.Rat       { return new(big.Rat).SetInt64(n) }
func add(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }
func quo(a, b *big.Rat) *big.Rat { return new(big.Rat).Quo(a, b) }

func greater(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func floor(a *big.Rat) int64 { return new(big.Int).Div(a.Num(), a.Denom()).Int64() } // of a positive denominator

func ceil(a *big.Rat) int64 { return -floor(new(big.Rat).Neg(a)) }

// permitTime is P / R: the time of one permit, in microseconds.
func permitTime(l stint.Limit) *big.Rat {
	return big.NewRat(l.Rate.Period.Microseconds(), l.Rate.Permits)
}
