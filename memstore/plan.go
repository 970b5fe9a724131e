package memstore

import (
	"fmt"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
	"github.com/stint-go/stint/internal/keyhash"
)

// plan is a policy as this store decides it; it is kept with the policy.
type plan struct {
	limits []limit
	// short is what Take decides by itself: the one limit, whose state is in a slot. nil: there is
	// more to it.
	short *limit
	// countDenied is whether any limit counts denied requests.
	countDenied bool
	// fault is why the store can't decide it; nil: it can.
	fault error
}

// limit is one limit, ready to decide: one of the algorithm fields is set.
type limit struct {
	version     *limitVersion
	policy      string // the name of its policy
	algorithm   stint.Algorithm
	countDenied bool
	capacity    int64
	cost        int64 // of each operation; 0: what it asks for
	// tag tells apart the states of one key. It is 0 in the bits that choose the shard, so that all
	// states of a key are in one shard.
	tag uint64

	token   *algorithm.TokenBucket
	leaky   *algorithm.LeakyBucket
	window  *algorithm.FixedWindow
	log     *algorithm.SlidingWindowLog
	counter *algorithm.SlidingWindowCounter
	places  *algorithm.Concurrency
}

// plan returns the policy's plan.
func (s *Store) plan(policy *stint.Policy) *plan {
	return policy.Prepared(s, func() any { return s.prepare(policy) }).(*plan)
}

// prepare makes a policy's plan, and registers the versions of its limits.
func (s *Store) prepare(policy *stint.Policy) *plan {
	p := &plan{limits: make([]limit, policy.Len())}
	if s.versions == nil {
		p.fault = errZero
		return p
	}
	for i := range p.limits {
		limit := policy.Limit(i)
		l := &p.limits[i]
		switch limit.Algorithm {
		case stint.AlgorithmTokenBucket:
			l.token = algorithm.NewTokenBucket(limit)
		case stint.AlgorithmLeakyBucket:
			l.leaky = algorithm.NewLeakyBucket(limit)
		case stint.AlgorithmFixedWindow:
			l.window = algorithm.NewFixedWindow(limit)
		case stint.AlgorithmSlidingWindowLog:
			l.log = algorithm.NewSlidingWindowLog(limit)
		case stint.AlgorithmSlidingWindowCounter:
			l.counter = algorithm.NewSlidingWindowCounter(limit)
		case stint.AlgorithmConcurrency:
			l.places = algorithm.NewConcurrency(limit)
		default:
			p.fault = stint.Invalid("algorithm", limit.Algorithm, "one that memstore has")
		}
		l.policy, l.algorithm, l.capacity = policy.Name(), limit.Algorithm, limit.Capacity
		l.countDenied, l.cost = limit.CountDenied, limit.Cost
		p.countDenied = p.countDenied || limit.CountDenied
		// Lengths keep distinct names distinct when they are joined.
		identity := fmt.Sprintf("%d %d %s%s", limit.Algorithm, len(limit.Name), limit.Name, policy.Name())
		l.tag = keyhash.String(s.seed, identity) >> shardBits
		s.register(limit, l)
	}
	if l := &p.limits[0]; len(p.limits) == 1 && l.log == nil && l.places == nil && p.fault == nil {
		p.short = l
	}
	s.releaseVersionsAfter(p)
	return p
}

// takes is how many permits a request for n takes.
func (l *limit) takes(n int64) int64 {
	if l.cost > 0 {
		return l.cost
	}
	return n
}

// permits is how many permits the limit is asked for by a verb with so many of them; of a Reserve or a Commit it
// depends on what is held.
func (l *limit) permits(verb stint.Verb, n int64) int64 {
	switch {
	case verb > stint.Settle:
		return n
	case verb != stint.Settle:
		return l.takes(n)
	case l.settles():
		return n
	}
	return 0
}

// settles reports whether a Settle concerns the limit: not if it has a cost of its own, or if its permits are places.
func (l *limit) settles() bool { return l.cost == 0 && l.places == nil }

// apply carries out an action and reports whether it changed the state.
func (l *limit) apply(action algorithm.Action, st *state, now stint.Instant, n, keep int64, out *stint.Outcome) bool {
	if action == algorithm.Settle {
		n = algorithm.Amount(n)
	}
	switch {
	case l.log != nil && st.changed != nil:
		l.log.ApplyRead(st.changed.reader, action, &st.log, now, n, keep, out)
	case l.log != nil:
		l.log.Apply(action, &st.log, now, n, keep, out)
	case l.places != nil:
		l.places.Decide(st.held, n, keep, out)
	case l.token != nil && st.held > 0:
		b := st.tokens()
		l.token.Apply(action, &b, now, n, keep, out)
		st.setBucket(&b)
	default:
		l.applyWords(action, &st.words, now, n, keep, out)
	}
	changed := false
	switch action {
	case algorithm.Take:
		changed = out.Allowed
	case algorithm.Deny:
		changed = l.countDenied
	case algorithm.Settle:
		changed = out.Applied != 0
	case algorithm.Peek:
	}
	if st.changed == nil {
		return changed
	}
	if changed {
		st.changed = nil
	} else if runs := st.runs(); runs != nil {
		algorithm.CorrectWaits(runs, now, n, keep, st.held > 0, out)
	}
	return changed
}

// applyWords carries out an action on the state of a fixed-size algorithm. A Take
// that is denied and a Peek leave the state as it was.
func (l *limit) applyWords(action algorithm.Action, st *words, now stint.Instant, n, keep int64, out *stint.Outcome) {
	switch l.algorithm {
	case stint.AlgorithmTokenBucket:
		b := st.bucket()
		l.token.Apply(action, &b, now, n, keep, out)
		st.setBucket(&b)
	case stint.AlgorithmLeakyBucket:
		b := st.bucket()
		l.leaky.Apply(action, &b, now, n, keep, out)
		st.setBucket(&b)
	case stint.AlgorithmFixedWindow:
		w := st.window()
		l.window.Apply(action, &w, now, n, keep, out)
		st.setWindow(&w)
	case stint.AlgorithmSlidingWindowCounter:
		c := st.counter()
		l.counter.Apply(action, &c, now, n, keep, out)
		st.setCounter(&c)
	case stint.AlgorithmSlidingWindowLog, stint.AlgorithmConcurrency: // their states are not in words
	}
}

// resetOutcome is the outcome of a reset.
func (l *limit) resetOutcome(keep int64, out *stint.Outcome) {
	*out = stint.Outcome{Allowed: true, Limit: l.capacity, Remaining: max(0, l.capacity-keep)}
}

// sameAlgorithm reports whether two limits are of one algorithm.
func (l *limit) sameAlgorithm(o *limit) bool { return l.algorithm == o.algorithm }

// life returns when a state that l wrote equals an untouched one, and how long it
// was to live when it was written.
func (l *limit) life(st *state) (worthless stint.Instant, life int64) {
	switch l.algorithm {
	case stint.AlgorithmFixedWindow:
		w := st.window()
		return w.End, int64(w.End - w.Start)
	case stint.AlgorithmSlidingWindowCounter:
		c := st.counter()
		return l.counter.Worthless(&c)
	case stint.AlgorithmSlidingWindowLog:
		return l.log.Worthless(&st.log)
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		b := st.bucket()
		return b.Due + 1, int64(b.Due - b.Last)
	case stint.AlgorithmConcurrency: // its state is what is held
	}
	return longAgo, 0 // prepare lets no other algorithm in
}
