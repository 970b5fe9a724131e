package resp

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/keyhash"
	"github.com/stint-go/stint/internal/prefix"
)

// databases is how many there are to SELECT, as of a Redis that is not configured.
const databases = 16

// throttlePolicy is the name of CL.THROTTLE's policy in a database: there a key has one state, whatever the parameters
// are that it is asked about with.
func throttlePolicy(db int64) string {
	if db == 0 {
		return "cl.throttle"
	}
	return fmt.Sprintf("cl.throttle:%d", db)
}

// parameters are those of CL.THROTTLE: a token bucket of burst + 1 permits, of which count come in
// a period, and the database. They are the identity of a throttle: the same numbers are the same policy.
type parameters struct{ burst, count, seconds, db int64 }

// A throttle is what CL.THROTTLE with certain parameters asks.
type throttle struct {
	parameters
	// number is its place in throttles.all, from 1 on; 0 in a slot of seen is nobody.
	number uint64
	Target
	// gone says that its number may be another's by now.
	gone atomic.Bool
}

// A slot of seen has 64 bits: 54 of a key's hash, 10 of a throttle's number.
//
//	maxThrottles = 2^10 - 1, since 0 is nobody
//	seenSlots    x 8 bytes = 512 KiB
const (
	maxThrottles = 1023
	seenSlots    = 1 << 16
	numberBits   = 1<<10 - 1
)

// throttles remembers those that were asked for.
type throttles struct {
	mu    sync.RWMutex
	known map[parameters]*throttle
	all   []*throttle // by their numbers

	// seen is what keys were taken of with last: each slot has the hash of a key, but for its last bits, which are a
	// throttle's number. TTL says by these how long a state lasts.
	seen [seenSlots]atomic.Uint64
	seed keyhash.Seed
}

// of finds a throttle. Their number is bounded, since anybody may ask with any parameters. When
// maxThrottles are known, all are forgotten and begun anew: states go on, as they belong to keys.
// Only TTL is at a loss for a while.
func (t *throttles) of(p parameters) (*throttle, error) {
	t.mu.RLock()
	found := t.known[p]
	t.mu.RUnlock()
	if found != nil {
		return found, nil
	}
	limit := stint.TokenBucket(p.burst+1, stint.Per(p.count, time.Duration(p.seconds)*time.Second))
	limit.MaxDebt = stint.NoDebt
	policy, err := stint.NewPolicy(throttlePolicy(p.db), limit)
	if err != nil {
		return nil, stint.Invalid("max_burst, count and period", fmt.Sprintf("%d, %d and %d", p.burst, p.count, p.seconds),
			"a bucket that fills in less than 10 years")
	}
	found = &throttle{parameters: p, Target: Target{Policy: policy, Rule: policy.Name(), Least: limit.Algorithm}}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.all) >= maxThrottles {
		for _, old := range t.all {
			old.gone.Store(true)
		}
		t.known, t.all = map[parameters]*throttle{}, nil
		for i := range t.seen {
			t.seen[i].Store(0)
		}
	}
	t.known[p], t.all = found, append(t.all, found)
	found.number = uint64(len(t.all))
	return found, nil
}

// slot is the place of a key of a database, and its hash without the bits of the number. Another database has other
// hashes: an odd multiple of its number changes them all over.
func (t *throttles) slot(key string, db int64) (slot *atomic.Uint64, hash uint64) {
	hash = keyhash.String(t.seed, key) ^ uint64(db)*0x9e3779b97f4a7c15
	return &t.seen[hash%seenSlots], hash &^ numberBits
}

// see notes what a key was taken of with. It is not written when it says the same already, so that
// a hot key does not move a cache line between processors.
func (t *throttles) see(key string, by *throttle) {
	slot, hash := t.slot(key, by.db)
	if says := hash | by.number; slot.Load() != says {
		slot.Store(says)
	}
}

// seenBy is what a key of a database was taken of with last, nil if this process does not know it. Where it is alone,
// and all keys are asked about with the same parameters, it knows.
func (t *throttles) seenBy(key string, db int64, alone bool) *throttle {
	slot, hash := t.slot(key, db)
	says := slot.Load()
	t.mu.RLock()
	defer t.mu.RUnlock()
	var by *throttle
	if number := says & numberBits; says&^numberBits == hash && 0 < number && number <= uint64(len(t.all)) {
		by = t.all[number-1]
	} else if alone && len(t.all) == 1 {
		by = t.all[0]
	}
	if by == nil || by.db != db {
		return nil
	}
	return by
}

// ranges are those of the numbers of CL.THROTTLE, in their order.
var ranges = [...]struct {
	name        string
	least, most int64
}{
	{"max_burst", 0, bounds.MaxPermits - 1},
	{"count", 1, bounds.MaxPermits},
	{"period", 1, int64(bounds.MaxPeriod / time.Second)},
	{"quantity", 0, bounds.MaxPermits},
}

// throttled is CL.THROTTLE key max_burst count period [quantity], as redis-cell 0.5 has it.
func (c *conn) throttled(args [][]byte) {
	numbers, ok := [len(ranges)]int64{3: 1}, true
	for i, argument := range args[2:] {
		n := digits(argument)
		numbers[i], ok = n, ok && ranges[i].least <= n && n <= ranges[i].most
	}
	if !ok {
		c.wrong(notParameters(args[2:]))
		return
	}
	p, quantity := parameters{numbers[0], numbers[1], numbers[2], c.db}, numbers[3]
	key, t := c.key(args[1]), c.throttle
	err := c.server.config.CheckKey(key)
	if err == nil && (t == nil || t.parameters != p || t.gone.Load()) {
		t, err = c.server.throttles.of(p)
	}
	if err != nil {
		c.wrong(err)
		return
	}
	c.throttle = t
	asked := c.later()
	asked.claim = stint.Claim{Key: key, Policy: t.Policy, Permits: quantity}
	asked.target, asked.throttle, asked.answer = &t.Target, t, answerThrottled
	if quantity == 0 { // to look
		asked.verb, asked.claim.Permits, asked.answer = stint.VerbPeek, 1, answerLooked
	}
}

// notParameters says which numbers of CL.THROTTLE are not right.
func notParameters(numbers [][]byte) error {
	var faults []error
	for i, number := range numbers {
		faults = append(faults, integer(new(int64), ranges[i].name, number, ranges[i].least, ranges[i].most))
	}
	return prefix.Join(faults...)
}

// answerThrottled answers as redis-cell does: limited, the limit, what is left, and in how many seconds to come again,
// -1 for an admitted request and one that never will be, and until all is there. A denial says at least 1 second, where
// redis-cell may say 0.
func answerThrottled(c *conn, p *pending, d *stint.Decision) {
	limited, retry := int64(0), int64(-1)
	if d.Allowed {
		c.server.throttles.see(p.claim.Key, p.throttle)
	} else {
		limited = 1
		if d.RetryAfter != stint.Never {
			retry = max(1, seconds(d.RetryAfter))
		}
	}
	c.throttleReply(limited, d, retry)
}

func answerLooked(c *conn, _ *pending, d *stint.Decision) { c.throttleReply(0, d, -1) }

// throttleReply answers with redis-cell's five integers: limited, limit, remaining, retry after,
// reset after, the last two in seconds.
func (c *conn) throttleReply(limited int64, d *stint.Decision, retry int64) {
	c.out = append(c.out, "*5\r\n"...)
	c.integer(limited)
	c.integer(d.Limit)
	c.integer(d.Remaining)
	c.integer(retry)
	c.integer(seconds(d.ResetAfter))
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// integer reads an argument that is an integer from least to most.
func integer(to *int64, name string, argument []byte, least, most int64) error {
	n := digits(argument)
	if n < least || n > most {
		return stint.Invalid(name, fmt.Sprintf("%.32s", argument), fmt.Sprintf("an integer from %d to %d", least, most))
	}
	*to = n
	return nil
}

// digits reads a decimal number of up to ten digits; anything else is -1. Ten digits are enough for
// every bound, and can't overflow.
func digits(text []byte) (n int64) {
	if len(text) == 0 || len(text) > 10 {
		return -1
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// anyThrottle has a policy of each database, which tells whether there is a state of CL.THROTTLE, whatever parameters
// wrote it: no bucket is larger, and none of its size is slower. It reads a bucket that is full as not full until that
// could have been filled from empty (docs/internals/changed-limits.md).
var anyThrottle = func() (all [databases]*stint.Policy) {
	limit := stint.TokenBucket(bounds.MaxPermits, stint.Per(bounds.MaxPermits/9, 366*24*time.Hour))
	limit.MaxDebt = stint.NoDebt
	for db := range all {
		policy, err := stint.NewPolicy(throttlePolicy(int64(db)), limit)
		if err != nil {
			panic(err) //nolint:forbidigo // a constant
		}
		all[db] = policy
	}
	return all
}()

// throttleOp is an operation of one permit under a throttle's policy.
func throttleOp(verb stint.Verb, key string, policy *stint.Policy) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: key, Policy: policy, Permits: 1}}
}

// isFull reports whether a peek found all permits, which keys without a state have.
func isFull(r stint.Result) bool { return r.Decision.Remaining == r.Decision.Limit }

// remove is DEL and UNLINK: it resets the states of keys, and says how many there were.
func (c *conn) remove(args [][]byte) {
	c.countKeys(args[1:], true)
}

// exists is EXISTS: it says how many of the keys have states, those with all their permits have
// none.
func (c *conn) exists(args [][]byte) {
	c.countKeys(args[1:], false)
}

// countKeys counts the keys that have states, and resets them if they are to be removed. Each is
// two operations of one batch; another client may come between. Many keys are several batches, each
// with a turn of its own, so that their number counts and other clients' turns come between.
func (c *conn) countKeys(keys [][]byte, remove bool) {
	if !c.mayBeKeys(keys) {
		return
	}
	n := int64(0)
	var ops []stint.Op
	for some := range slices.Chunk(keys, batchSize) {
		ops = ops[:0]
		for _, key := range some {
			policy := anyThrottle[c.db]
			if by := c.server.throttles.seenBy(string(key), c.db, c.server.config.Take != nil); by != nil {
				policy = by.Policy
			}
			ops = append(ops, throttleOp(stint.VerbPeek, string(key), policy))
			if remove {
				ops = append(ops, throttleOp(stint.VerbReset, string(key), anyThrottle[c.db]))
			}
		}
		results, ok := c.ask(ops)
		if !ok {
			return
		}
		for i := range results {
			if ops[i].Verb == stint.VerbPeek && !isFull(results[i]) {
				n++
			}
		}
	}
	c.integer(n)
}

// mayBeKeys reports whether all of them can be keys. If not, it answers the client.
func (c *conn) mayBeKeys(keys [][]byte) bool {
	for _, key := range keys {
		if err := c.server.config.CheckKey(text(key)); err != nil {
			c.explain(err)
			return false
		}
	}
	return true
}

// ask has the store carry out few operations, of keys that were checked. If it can't, it answers the
// client.
func (c *conn) ask(ops []stint.Op) (results []stint.Result, ok bool) {
	ctx, leave, err := c.server.config.Enter(c.ctx, c.address, int64(len(ops)))
	if err != nil {
		c.explain(err)
		return nil, false
	}
	defer leave()
	results = make([]stint.Result, len(ops))
	c.server.config.DecideAll(ctx, ops, results)
	for i := range results {
		if results[i].Err != nil {
			c.explain(results[i].Err)
			return nil, false
		}
	}
	return results, true
}

// ttl is TTL and PTTL: how long until a key has all its permits, by what it was taken of with last;
// -2 if it has.
func (c *conn) ttl(args [][]byte) {
	if !c.mayBeKeys(args[1:]) {
		return
	}
	key := string(args[1])
	by := c.server.throttles.seenBy(key, c.db, c.server.config.Take != nil)
	ops := []stint.Op{throttleOp(stint.VerbPeek, key, anyThrottle[c.db])}
	if by != nil {
		ops = append(ops, throttleOp(stint.VerbPeek, key, by.Policy))
	}
	results, ok := c.ask(ops)
	if !ok {
		return
	}
	switch {
	case isFull(results[0]), by != nil && isFull(results[1]):
		c.integer(-2)
	case by == nil:
		c.fail("ERR", "the key has a state, and this process does not know by which parameters; "+
			"EXISTS says whether it has one")
	case is(args[0], "PTTL"):
		c.integer(int64((results[1].Decision.ResetAfter + time.Millisecond - 1) / time.Millisecond))
	default: // rounded, as Redis does
		c.integer(int64((results[1].Decision.ResetAfter + time.Second/2) / time.Second))
	}
}
