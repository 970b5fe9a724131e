package memstore

import (
	"cmp"
	"context"
	"runtime"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// Decide implements [stint.Store]. It blocks on nothing but the locks.
func (s *Store) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if err := op.Validate(); err != nil {
		return stint.Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return stint.Decision{}, err
	}
	return s.decide(&op)
}

// DecideAll implements [stint.Store]. Each operation of a batch has a time of its own.
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	s.touch(ops)
	for i := range ops {
		op := &ops[i]
		plain := op.Verb == stint.Take && op.Keep == 0 && op.Way == stint.Must
		if plain && op.And == nil && op.Each == nil && op.Hold == nil && op.Live == nil {
			results[i].Decision, results[i].Err = s.Take(ctx, op.Policy, op.Key, op.Permits)
			continue
		}
		results[i].Decision, results[i].Err = s.Decide(ctx, *op)
	}
}

// touch reads from where the states of a batch are, so that they are on their way from memory at the same time: the
// decisions, one after another, would wait for each of them.
func (s *Store) touch(ops []stint.Op) {
	var policy *stint.Policy
	var limits []limit
	for i := range ops {
		op := &ops[i]
		if op.Policy == nil {
			continue // which is refused
		}
		if op.Policy != policy { // batches have one most often
			p := s.plan(op.Policy)
			if policy, limits = op.Policy, p.limits; p.fault != nil {
				return // they are all refused, or one by one
			}
		}
		key := s.keyHash(op.Key)
		for j := range limits {
			hash := limits[j].stateHash(key)
			s.shard(hash).table.Load().touch(hash)
		}
	}
}

// errZero is why a store decides nothing that New did not make.
var errZero = stint.Invalid("store", "the zero memstore.Store", "one that New made")

// unfit is why a store without versions decides nothing.
func (s *Store) unfit() error { return cmp.Or[error](s.fault, errZero) }

// decide chooses the way: holds; one limit, which is the most frequent; several.
func (s *Store) decide(op *stint.Op) (stint.Decision, error) {
	if s.versions == nil {
		return stint.Decision{}, s.unfit()
	}
	if op.Hold != nil {
		return s.decideHold(*op)
	} else if op.Verb == stint.List {
		return s.list(op)
	}
	p := s.plan(op.Policy)
	if op.And == nil && len(p.limits) == 1 && p.fault == nil {
		return s.decideOne(op, &p.limits[0]), nil
	}
	return s.decideMany(op)
}

// decideOne carries out an operation on one limit. The clock is read while the state is held, so
// that no decision on a state has an earlier time than the one before it. Take reads it earlier:
// clock.go says how it keeps that.
func (s *Store) decideOne(op *stint.Op, l *limit) stint.Decision {
	var out stint.Outcome
	one := [1]limitOp{{limit: l, hash: s.hash(op.Key, l), permits: l.permits(op.Verb, op.Permits), keep: op.Keep}}
	ops := limitOps(one[:])
	p := &ops[0]
	t := s.shard(p.hash)
	t.mu.Lock()
	if op.Verb != stint.Reset {
		s.hold(t, p)
	}
	now := s.decidedAt(t, s.readClock())
	if op.Verb == stint.Reset {
		s.reset(t, p.hash, now)
		out = l.Untouched(p.keep)
	} else {
		s.load(t, p, now)
		ops.apply(0, algorithm.ActionOf(op.Verb), now, p.permits, &out)
		if l.CountsDenied() && !out.Allowed && op.Verb == stint.Take {
			ops.apply(0, algorithm.Deny, now, p.permits, &out)
		}
		if op.Each != nil {
			out.GrowsAfter = ops.grows(0, now, out.Remaining)
		}
		s.save(t, p)
		s.insertNew(t, p, ops, now)
	}
	t.mu.Unlock()
	runtime.KeepAlive(l) // until the slot is counted
	if p.needsMemory() && s.overCap() {
		s.fitCap(ops, now)
	}
	s.sweepNow(now)
	if op.Verb == stint.Reset {
		s.wake(ops)
	}
	if op.Each != nil {
		op.Each[0] = out
	}
	return stint.Decision{
		Allowed: out.Allowed, Limit: out.Limit, Remaining: out.Remaining, RetryAfter: out.RetryAfter,
		ResetAfter: out.ResetAfter, Delay: out.Delay, Applied: out.Applied, At: now,
	}
}

// Take implements [stint.Store]. It takes of one limit whose state is in a slot without the shard's
// lock, and without an operation. Where the slot can't be held at once, decideOne does it with the
// lock.
func (s *Store) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (d stint.Decision, err error) {
	if uint(len(key)-1) >= stint.MaxKeyBytes || n < 1 || policy == nil {
		// Decide says what is wrong.
		return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
	}
	if err = ctx.Err(); err != nil {
		return d, err
	}
	l := s.plan(policy).short
	if l == nil {
		op := stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}}
		if policy.NeedsReserve() {
			return s.Decide(ctx, op) // which says what is wrong
		}
		return s.decide(&op)
	}
	hash := l.stateHash(s.keyHash(key))
	id := l.version.id.Load()
	t := s.shard(hash)
	read := s.readClock()
	slot := t.table.Load().hold(hash, id, l.version)
	if slot == nil {
		op := stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}}
		return s.decideOne(&op, l), nil
	}
	now := s.decidedAt(t, read)
	var out stint.Outcome
	slot.set(l.ApplyNumbers(algorithm.Take, slot.numbers(), now, l.Takes(n), 0, &out))
	d.Allowed, d.Limit, d.Remaining, d.At = out.Allowed, out.Limit, out.Remaining, now
	d.RetryAfter, d.ResetAfter, d.Delay = out.RetryAfter, out.ResetAfter, out.Delay
	// The release comes last: it has to wait for the stores before it anyway, and what
	// copies the decision then finds it in the cache.
	slot.release(id)
	s.sweepNow(now)
	return d, nil
}

// limitOp is an operation as one of its limits decides it.
type limitOp struct {
	limit   *limit
	hash    uint64
	permits int64 // what the limit takes for what the claim asks: its own cost, if it has one
	keep    int64 // how many are left to others
	// slot is held while the operation is decided; nil: there is no state yet.
	slot    *slot
	epoch   *epoch // of the slot's state
	state   algorithm.State
	changed bool
	// holding is what is held of the state; nil: nothing.
	holding *holding
	// due is how many of its parts have expired by now.
	due int
	// own is the part of the hold that asks for more; nil: none does.
	own *part
	// shares is 1 + the number of the limitOp of an earlier way of its group that has the state; 0: it
	// has its own.
	shares int
	// lost is the newest time of pieces that do not come back, since a window of another length took
	// over their counts; 0: none.
	lost stint.Instant
}

// inlineLimits is how many limits an operation may have before deciding it allocates. Their
// limitOps are on the stack: more of them would cost every operation on several limits.
const inlineLimits = 4

// decideMany decides an operation on several limits, atomically: the shards of all its keys are
// locked, in order, until it is done.
func (s *Store) decideMany(op *stint.Op) (stint.Decision, error) {
	var (
		opsBuffer   [inlineLimits]limitOp
		outsBuffer  [inlineLimits]stint.Outcome
		locksBuffer [inlineLimits]uint64
		waysBuffer  [inlineLimits]stint.Way
	)
	ops, err := s.limitOps(op, opsBuffer[:0])
	if err != nil {
		return stint.Decision{}, err
	}
	outs := outsBuffer[:]
	if len(ops) > inlineLimits {
		outs = make([]stint.Outcome, len(ops))
	}
	outs = outs[:len(ops)]

	locks := s.lock(ops, locksBuffer[:0])
	if op.Verb != stint.Reset {
		for i := range ops {
			s.hold(s.shard(ops[i].hash), &ops[i])
		}
	}
	now := s.decidedTogether(locks)
	ways := op.AppendWays(waysBuffer[:0])
	if op.Verb == stint.Reset {
		s.resetEach(ops, outs, now)
	} else {
		s.applyEach(op, ops, outs, ways, now)
	}
	s.unlock(locks)
	s.finish(ops, now)
	if op.Verb == stint.Reset {
		s.wake(ops)
	}
	if op.Each != nil {
		copy(op.Each, outs)
	}
	switch {
	case ways != nil:
		return stint.CombineWays(outs, ways, now), nil
	case op.Verb == stint.Settle:
		return op.Combine(outs, now), nil
	}
	return stint.Combine(outs, now), nil
}

// lock locks the shards of all states, in order, and returns which.
func (s *Store) lock(ops []limitOp, locks []uint64) []uint64 {
	for i := range ops {
		// Limits of one client are neighbours, and in one shard.
		if at := ops[i].hash >> (64 - shardBits); ops[i].shares == 0 && (len(locks) == 0 || locks[len(locks)-1] != at) {
			locks = append(locks, at)
		}
	}
	if len(locks) > 1 {
		slices.Sort(locks)
		locks = slices.Compact(locks)
	}
	for _, i := range locks {
		s.shards[i].mu.Lock()
	}
	return locks
}

// unlock unlocks shards.
func (s *Store) unlock(locks []uint64) {
	for _, i := range locks {
		s.shards[i].mu.Unlock()
	}
}

// finish does what is to be done after an operation without its locks.
func (s *Store) finish(ops []limitOp, now stint.Instant) {
	grows := false
	for i := range ops {
		runtime.KeepAlive(ops[i].limit) // until the slot is counted
		grows = grows || ops[i].needsMemory()
	}
	if grows && s.overCap() {
		s.fitCap(ops, now)
	}
	s.sweepNow(now)
}

// limitOps appends those of an operation to a list.
func (s *Store) limitOps(op *stint.Op, ops limitOps) (_ limitOps, err error) {
	for i := 0; i < op.Claims() && err == nil; i++ {
		claim := op.NthClaim(i)
		if claim.Way > stint.Either {
			if first := ops.same(op, i); first >= 0 {
				ops = ops.share(op, claim, first)
				continue
			}
		}
		ops, err = s.limitOpsOf(op, claim, ops)
	}
	return ops, err
}

// same finds a claim of the same key and policy as claim i before it: the number of its first
// limitOp, or -1. It is one of an earlier way of the group, since nothing else may name the states
// of a way.
func (ops limitOps) same(op *stint.Op, i int) (first int) {
	claim := op.NthClaim(i)
	for j := range i {
		other := op.NthClaim(j)
		if other.Policy == claim.Policy && other.Key == claim.Key {
			return first
		}
		first += other.Policy.Len()
	}
	return -1
}

// share appends the limitOps of a claim whose states are those of limitOps from first on.
func (ops limitOps) share(op *stint.Op, claim *stint.Claim, first int) limitOps {
	for i := range claim.Policy.Len() {
		shared := &ops[first+i]
		shares := shared.shares
		if shares == 0 {
			shares = first + i + 1
		}
		ops = ops.add(op.Verb, claim, shared.limit, shared.hash, shares)
	}
	return ops
}

// limitOpsOf appends those of one claim. Two of one hash, which happens by chance once in 2^64
// pairs, get different ones.
func (s *Store) limitOpsOf(op *stint.Op, claim *stint.Claim, ops limitOps) (limitOps, error) {
	plan, keyHash := s.plan(claim.Policy), s.keyHash(claim.Key)
	for i := range plan.limits {
		l := &plan.limits[i]
		hash, shares := l.stateHash(keyHash), 0
		for shares == 0 && hasHash(ops, hash) {
			if claim.Way != stint.Must {
				shares = ops.find(op, claim, l, hash)
			}
			if shares == 0 {
				hash++ // a limitOp waits for its slot, and must not wait for another one
			}
		}
		ops = ops.add(op.Verb, claim, l, hash, shares)
	}
	return ops, plan.fault
}

// add appends the limitOp of a claim on a limit.
func (ops limitOps) add(verb stint.Verb, claim *stint.Claim, l *limit, hash uint64, shares int) limitOps {
	ops = append(ops, limitOp{})
	p := &ops[len(ops)-1] // filled in where it is, as it is large
	p.limit, p.hash, p.shares = l, hash, shares
	p.permits, p.keep = l.permits(verb, claim.Permits), claim.Keep
	return ops
}

// find finds a state that an earlier way of a claim's group names, too, and returns 1 + the number
// of its limitOp, or 0.
func (ops limitOps) find(op *stint.Op, claim *stint.Claim, l *limit, hash uint64) int {
	for i := range ops {
		if ops[i].shares == 0 && ops[i].hash == hash && ops[i].limit.tag == l.tag && op.ClaimAt(i).Key == claim.Key {
			return i + 1
		}
	}
	return 0
}

// limitOps are those of one operation.
type limitOps []limitOp

// owner is the limitOp that has the state of limitOp i.
func (ops limitOps) owner(i int) *limitOp {
	if j := ops[i].shares; j > 0 {
		i = j - 1
	}
	return &ops[i]
}

// hasHash reports whether one of the limitOps has the hash.
func hasHash(ops []limitOp, hash uint64) bool {
	for i := range ops {
		if ops[i].hash == hash {
			return true
		}
	}
	return false
}

// resetEach clears the states.
func (s *Store) resetEach(ops []limitOp, outs []stint.Outcome, now stint.Instant) {
	for i := range ops {
		s.reset(s.shard(ops[i].hash), ops[i].hash, now)
		outs[i] = ops[i].limit.Untouched(ops[i].keep)
	}
}

// applyEach first asks all limits, then carries the operation out on all. All slots are
// held until then. An operation that finds one of the states changed, and another one not
// there yet, waits for the shard's lock.
func (s *Store) applyEach(op *stint.Op, ops limitOps, outs []stint.Outcome, ways []stint.Way, now stint.Instant) {
	action := algorithm.ActionOf(op.Verb)
	tried := action
	if action == algorithm.Take {
		tried = algorithm.Peek
	}
	allowed := true
	last := len(ops) - 1 // which needs to be asked no more; -1 where ways are to be chosen among
	if ways != nil {
		last = -1
	}
	way, found := 0, false // where the way begins, and whether one before it admits
	for i := range ops {
		p := &ops[i]
		s.load(s.shard(p.hash), p, now)
		if ways != nil && ways[i] != stint.With {
			found = ways[i] == stint.Else && (found || admit(outs[way:i]))
			way = i
		}
		if found && op.Each == nil {
			outs[i].Limit = p.limit.Capacity() // nobody is told more but what is left
			continue
		}
		ask := tried
		if i == last && allowed {
			ask = action // all others admit, so that asking is deciding
		}
		ops.apply(i, ask, now, p.permits, &outs[i])
		allowed = allowed && outs[i].Allowed
	}
	var takenBuffer [inlineLimits]bool
	var taken []bool
	if ways != nil {
		if taken = takenBuffer[:]; len(ops) > inlineLimits {
			taken = make([]bool, len(ops))
		}
		allowed = stint.Choose(outs, ways, taken)
	}
	for i := range ops {
		p := &ops[i]
		switch {
		case i == last && allowed: // it was carried out above
		case allowed && action == algorithm.Take && (taken == nil || taken[i]):
			ops.apply(i, algorithm.Take, now, p.permits, &outs[i])
		case op.Verb == stint.Take && !allowed && p.limit.CountsDenied():
			ops.apply(i, algorithm.Deny, now, p.permits, &outs[i])
		}
	}
	for i := range ops {
		p := &ops[i]
		if taken != nil && !taken[i] {
			if !ops.leftByEarlier(i, outs) {
				ops.whatIsLeft(i, now, &outs[i])
			}
		}
		if op.Each != nil {
			outs[i].GrowsAfter = ops.grows(i, now, outs[i].Remaining)
		}
		s.save(s.shard(p.hash), p)
	}
	for i := range ops {
		s.insertNew(s.shard(ops[i].hash), &ops[i], ops, now)
	}
}

// admit reports whether all limits do.
func admit(outs []stint.Outcome) bool {
	for i := range outs {
		if !outs[i].Allowed {
			return false
		}
	}
	return true
}

// leftByEarlier is whatIsLeft of a limit whose state an earlier one has, which keeps no more: what
// that one has left, less what is kept beyond it. It reports false if there is none.
func (ops limitOps) leftByEarlier(i int, outs []stint.Outcome) bool {
	j := ops[i].shares - 1
	if j < 0 || ops[j].keep > ops[i].keep {
		return false
	}
	outs[i].Remaining, outs[i].ResetAfter = max(0, outs[j].Remaining-(ops[i].keep-ops[j].keep)), outs[j].ResetAfter
	return true
}

// whatIsLeft says of a limit that was asked, and not charged, what it has left after others were.
func (ops limitOps) whatIsLeft(i int, now stint.Instant, out *stint.Outcome) {
	var left stint.Outcome
	ops.apply(i, algorithm.Settle, now, 0, &left)
	out.Remaining, out.ResetAfter = left.Remaining, left.ResetAfter
}
