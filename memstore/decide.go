package memstore

import (
	"cmp"
	"context"
	"runtime"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/decide"
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
		if op.Verb == stint.VerbTake && op.Keep == 0 && op.And == nil && op.Each == nil && op.Extra == nil {
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
			continue // it is refused, or has groups alone
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
	if op.Hold() != nil {
		return s.decideHold(op)
	} else if op.Verb == stint.VerbList {
		return s.list(op)
	}
	if op.And == nil && op.Extra == nil {
		if p := s.plan(op.Policy); len(p.limits) == 1 && p.fault == nil {
			return s.decideOne(op, &p.limits[0]), nil
		}
	}
	return s.decideMany(op)
}

// decideOne carries out an operation on one limit. The clock is read while the state is held, so
// that no decision on a state has an earlier time than the one before it. Take reads it earlier:
// clock.go says how it keeps that.
func (s *Store) decideOne(op *stint.Op, l *limit) stint.Decision {
	var out stint.Outcome
	var states [1]decide.State
	places := [1]place{{limit: l, key: op.Key, hash: s.hash(op.Key, l)}}
	p, st := &places[0], &states[0]
	t := s.shard(p.hash)
	t.mu.Lock()
	if op.Verb != stint.VerbReset {
		s.hold(t, p)
	}
	now := s.decidedAt(t, s.readClock())
	if op.Verb == stint.VerbReset {
		s.reset(t, p.hash, now)
		out = l.Untouched(op.Keep)
	} else {
		s.load(t, p, st, now)
		st.One(&l.Machine, op.Verb, now, l.permits(op.Verb, op.Permits), op.Keep, op.Each != nil, &out)
		s.save(t, p, st)
		s.insertNew(t, p, st, places[:], now)
	}
	t.mu.Unlock()
	s.finish(places[:], states[:], now)
	if op.Verb == stint.VerbReset {
		s.wake(places[:])
	}
	if op.Each != nil {
		op.Each[0] = out
	}
	return decide.Single(&out, now)
}

// Take implements [stint.Store]. It takes of one limit whose state is in a slot without the shard's
// lock, and without an operation. Where the slot can't be held at once, decideOne does it with the
// lock.
func (s *Store) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (d stint.Decision, err error) {
	if uint(len(key)-1) >= bounds.MaxKeyBytes || n < 1 || policy == nil {
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

// An operation is one on several limits, or on a hold, under way. Its memory is kept for the next one.
type operation struct {
	decide.HoldOperation
	places []place // of the states
	locks  []uint64
	mine   []uint64 // hashes of the limits' states
	spare  *hold    // for the next that is new
}

// begin begins an operation, whose memory goes back to the store's operations in the end.
func (s *Store) begin(op *stint.Op) (*operation, error) {
	o, used := s.operations.Get().(*operation)
	if !used {
		o = new(operation)
	}
	o.Verb, o.Told = op.Verb, op.Each != nil
	o.Parts, o.Ways, o.places, o.locks = o.Parts[:0], o.Ways[:0], o.places[:0], o.locks[:0]
	if err := s.find(op, o); err != nil {
		return nil, err
	}
	o.States = slices.Grow(o.States[:0], len(o.places))[:len(o.places)]
	o.Outs = slices.Grow(o.Outs[:0], len(o.Parts))[:len(o.Parts)]
	clear(o.States)
	clear(o.Outs)
	return o, nil
}

// decideMany decides an operation on several limits, atomically: the shards of all its keys are
// locked, in order, until it is done.
func (s *Store) decideMany(op *stint.Op) (d stint.Decision, err error) {
	o, err := s.begin(op)
	if err != nil {
		return d, err
	}
	s.lock(o)
	if op.Verb == stint.VerbReset {
		o.Now = s.decidedTogether(o.locks)
		d = s.resetEach(o)
	} else {
		s.loadAll(o)
		o.Operation.Decide()
		s.saveAll(o)
		d = o.Decision()
	}
	s.unlock(o)
	s.finish(o.places, o.States, o.Now)
	if op.Verb == stint.VerbReset {
		s.wake(o.places)
	}
	if op.Each != nil {
		copy(op.Each, o.Outs)
	}
	s.operations.Put(o)
	return d, nil
}

// loadAll holds the states of an operation, whose shards are locked, sets its time, and loads them.
func (s *Store) loadAll(o *operation) {
	for i := range o.places {
		s.hold(s.shard(o.places[i].hash), &o.places[i])
	}
	o.Now = s.decidedTogether(o.locks)
	for i := range o.places {
		s.load(s.shard(o.places[i].hash), &o.places[i], &o.States[i], o.Now)
	}
}

// saveAll saves the states of an operation, and inserts those that have no slot yet.
func (s *Store) saveAll(o *operation) {
	for i := range o.places {
		s.save(s.shard(o.places[i].hash), &o.places[i], &o.States[i])
	}
	for i := range o.places {
		s.insertNew(s.shard(o.places[i].hash), &o.places[i], &o.States[i], o.places, o.Now)
	}
}

// lock locks the shards of all states, in order.
func (s *Store) lock(o *operation) {
	locks := o.locks
	for i := range o.places {
		// Limits of one client are neighbours, and in one shard.
		if at := o.places[i].hash >> (64 - shardBits); len(locks) == 0 || locks[len(locks)-1] != at {
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
	o.locks = locks
}

// unlock unlocks the shards.
func (s *Store) unlock(o *operation) {
	for _, i := range o.locks {
		s.shards[i].mu.Unlock()
	}
}

// finish does what is to be done after an operation without its locks.
func (s *Store) finish(places []place, states []decide.State, now stint.Instant) {
	grows := false
	for i := range places {
		runtime.KeepAlive(places[i].limit) // until the slot is counted
		grows = grows || places[i].needsMemory(&states[i])
	}
	if grows && s.overCap() {
		s.fitCap(places, now)
	}
	s.sweepNow(now)
}

// find finds where the states of an operation are, and writes down what it asks of each limit.
func (s *Store) find(op *stint.Op, o *operation) (err error) {
	groups := op.Groups()
	if op.Policy != nil || groups == nil {
		err = s.findClaim(o, &op.Claim, 0)
	}
	for i := 0; i < len(op.And) && err == nil; i++ {
		err = s.findClaim(o, &op.And[i], 0)
	}
	if groups != nil {
		o.Ways = slices.Grow(o.Ways, len(o.Parts))[:len(o.Parts)]
		clear(o.Ways)
	}
	for g, group := range groups {
		for w, way := range group {
			number := bounds.WayNumber(len(group[len(group)-1]) == 0, g, w)
			for i := 0; i < len(way) && err == nil; i++ {
				err = s.findClaim(o, &way[i], number)
			}
		}
	}
	return err
}

// findClaim is find for one claim of a way. Two states of one hash, which happens by chance once in 2^64 pairs, get
// different ones.
func (s *Store) findClaim(o *operation, claim *stint.Claim, way uint16) error {
	plan, hashed, keyHash := s.plan(claim.Policy), false, uint64(0)
	for i := range plan.limits {
		l := &plan.limits[i]
		at := -1
		if way != 0 || o.Verb == stint.VerbReset { // which alone may name a state twice
			at = indexOf(o.places, l, claim.Key)
		}
		if at < 0 {
			if !hashed {
				hashed, keyHash = true, s.keyHash(claim.Key)
			}
			at = len(o.places)
			hash := l.stateHash(keyHash)
			for hasHash(o.places, hash) {
				hash++ // a slot is held, and nobody waits for it twice
			}
			o.places = append(o.places, place{limit: l, key: claim.Key, hash: hash})
		}
		o.Parts = append(o.Parts, decide.Part{
			Machine: &l.Machine, State: at, Permits: l.permits(o.Verb, claim.Permits), Keep: claim.Keep,
		})
		if way != 0 {
			o.Ways = append(o.Ways, way)
		}
	}
	return plan.fault
}

// indexOf finds a key's state under a limit among those of an operation; -1: there is none.
func indexOf(list []place, l *limit, key string) int {
	for i := range list {
		if list[i].limit.tag == l.tag && list[i].key == key {
			return i
		}
	}
	return -1
}

// hasHash reports whether one of the states has the hash.
func hasHash(list []place, hash uint64) bool {
	for i := range list {
		if list[i].hash == hash {
			return true
		}
	}
	return false
}

// resetEach clears the states.
func (s *Store) resetEach(o *operation) stint.Decision {
	for i := range o.places {
		s.reset(s.shard(o.places[i].hash), o.places[i].hash, o.Now)
	}
	for i := range o.Parts {
		o.Outs[i] = o.Parts[i].Machine.Untouched(o.Parts[i].Keep)
	}
	return decide.Combine(o.Outs, o.Ways, o.Now)
}
