package redisstore

import (
	"context"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/keyhash"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/waiters"
	"github.com/stint-go/stint/redisstore/internal/layout"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// denialCache remembers denials, so that a client that keeps asking is answered without
// asking the server: a denial says until when the same cost of the same claims is
// denied. Another cost waits for longer or less, and other claims may be denied by
// another limit, so both are asked. When this process takes from a state, its remembered
// denials are dropped: the true wait is longer now. What others take is not noticed.
//
// A denial is kept until its RetryAfter, counted from sending, so that it never outlasts the true wait. What
// callers are told counts down from the receipt of the reply, so that a caller who waits as told is
// never too early. A denial is never kept for longer than the longest that a
// state of the limit matters: a longer wait means that the server's clock has stepped
// back, and it may be corrected sooner.
//
// What could make a denial wrong (a reset, a refund, a limit with other parameters that takes a
// state over) is announced by the script that does it, on a channel that every process subscribes
// to. A denial is kept only if nothing of its client was announced since its batch was sent, and
// nothing is kept while there is no subscription. What remains: between a reset elsewhere and the
// arrival of its announcement, which takes as long as it takes to notice a lost connection, and
// when the server's clock steps forward or its memory is wiped, a client may be denied that the
// server would admit, until its RetryAfter at the latest. It is never the other way round. It is
// safe for concurrent use: shards have locks of their own, and an idle cache costs a load of one
// counter.
type denialCache struct {
	seed        keyhash.Seed // of shards
	claimsSeed  maphash.Seed
	maxPerShard int
	now         func() time.Duration

	onPolicyReset func(policy string) // called when a policy was reset elsewhere
	onMissed      func()              // called when that may have been missed

	listening atomic.Bool   // whether there is a subscription
	wasLost   atomic.Bool   // whether there was one before
	sequence  atomic.Uint64 // of announcements, and of subscriptions
	entries   atomic.Int64
	hits      atomic.Uint64
	waiters   waiters.List[string] // by client
	shards    [denialShards]denialShard
}

// denialShards are locked separately; maxClientDenials bounds the denials of one client, by cost,
// so that one with many costs does not take the room of others.
const (
	denialShards     = 64
	maxClientDenials = 64
	// maxOutcomes bounds of how many limits it is remembered what they said. With more of them the server is asked.
	maxOutcomes = 64
	// clockRates is by how much of a wait two clocks may disagree: 1/clockRates of it.
	clockRates = 1000
)

// A denialShard has the denials of some clients under one lock.
type denialShard struct {
	mu sync.Mutex
	// announced is the sequence of the last announcement of a client here: what was sent before it is
	// not kept.
	announced uint64
	clients   map[string][]denial
	// count is how many denials all clients have.
	count int
}

// denial is an operation's denial, kept with the client of the claim with the longest wait.
//
//	sent <= the server decided <= received
//	until = sent + RetryAfter x (1 - 1/clockRates)     the latest time at which it is surely denied
//	told  = RetryAfter - (now - received)              never less than the true wait
type denial struct {
	policy  *stint.Policy // of that claim
	permits int64
	keep    int64
	// claimsHash is of all claims, 0 if there is but one.
	claimsHash uint64
	// sent is by the local clock, as are received and until.
	sent     time.Duration
	received time.Duration // waits count from then: the server decided between the two
	until    time.Duration // counted from sending
	decision stint.Decision
	outcomes []stint.Outcome // of all claims, if they say when Remaining grows
}

// covers reports whether the denial is of a claim among claims with the hash.
func (d *denial) covers(claim *stint.Claim, claimsHash uint64) bool {
	return d.policy == claim.Policy && d.permits == claim.Permits && d.keep == claim.Keep && d.claimsHash == claimsHash
}

// newDenialCache makes a cache for so many denials, by a local clock.
func newDenialCache(size int, now func() time.Duration) *denialCache {
	return &denialCache{
		seed:          keyhash.MakeSeed(),
		claimsSeed:    maphash.MakeSeed(),
		maxPerShard:   max(1, size/denialShards),
		now:           now,
		onPolicyReset: func(string) {},
		onMissed:      func() {},
	}
}

// shard is where the denials of a client are.
func (c *denialCache) shard(client string) *denialShard {
	return &c.shards[keyhash.String(c.seed, client)%denialShards]
}

// denialCacheable reports whether an operation's denial may come from the cache or be kept.
func (s *Store) denialCacheable(op *stint.Op) bool {
	if s.denials == nil || op.Verb > stint.VerbTry || op.Policy != nil && s.countsDenied(op.Policy) {
		return false // no limit of a way counts them
	}
	return !slices.ContainsFunc(op.And, func(claim stint.Claim) bool { return s.countsDenied(claim.Policy) })
}

// countsDenied reports whether a denial by the policy changes a state, so that it has to reach the
// server.
func (s *Store) countsDenied(policy *stint.Policy) bool {
	plan := s.plan(policy)
	for i := range plan {
		if plan[i].Spec.CountDenied {
			return true
		}
	}
	return false
}

// rememberedDenial answers an operation that is known to be denied.
func (s *Store) rememberedDenial(op *stint.Op) (d stint.Decision, denied bool) {
	c := s.denials
	if c == nil || c.entries.Load() == 0 || !s.denialCacheable(op) {
		return d, false
	}
	if d, denied = c.find(op); denied {
		c.hits.Add(1)
	}
	return d, denied
}

// find finds the denial of an operation.
func (c *denialCache) find(op *stint.Op) (d stint.Decision, denied bool) {
	now := c.now()
	if op.And == nil && op.Extra == nil {
		return c.claim(&op.Claim, 0, now, op.Each)
	}
	hash := c.hash(op)
	if op.Groups() != nil {
		return c.groupsDenied(op, hash, now)
	}
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		if d, denied = c.claim(claim, hash, now, op.Each); denied {
			break
		}
	}
	return d, denied
}

// groupsDenied answers an operation with groups, whose denial is kept for each of its claims: what
// comes back to any of them may let another way admit. What its limits say is kept with the first.
func (c *denialCache) groupsDenied(op *stint.Op, hash uint64, now time.Duration) (d stint.Decision, denied bool) {
	each := op.Each
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		said, known := c.claim(claim, hash, now, each)
		if !known {
			return stint.Decision{}, false
		}
		if !denied {
			d, denied, each = said, true, nil
		}
	}
	return d, denied
}

// hash hashes the claims of an operation of several, each with its way: alternatives are not the same together.
func (c *denialCache) hash(op *stint.Op) uint64 {
	var h maphash.Hash
	h.SetSeed(c.claimsSeed)
	for i := range op.Len() {
		claim, way := op.NthClaim(i)
		maphash.WriteComparable(&h, way)
		maphash.WriteComparable(&h, *claim)
	}
	return max(1, h.Sum64())
}

// claim answers for one claim among claims with a hash.
func (c *denialCache) claim(
	claim *stint.Claim,
	claimsHash uint64,
	now time.Duration,
	each []stint.Outcome,
) (d stint.Decision, hit bool) {
	s := c.shard(claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.clients[claim.Key]
	for i := range list {
		known := &list[i]
		if !known.covers(claim, claimsHash) {
			continue
		}
		if now >= known.until || now < known.sent || len(known.outcomes) < len(each) {
			return d, false
		}
		elapsed := max(0, now-known.received).Truncate(time.Microsecond)
		d = known.decision
		d.At = d.At.Add(elapsed)
		d.RetryAfter = later(d.RetryAfter, elapsed)
		d.ResetAfter = later(d.ResetAfter, elapsed)
		d.Source = stint.SourceDenialCache
		for j := range each {
			each[j] = known.outcomes[j]
			each[j].RetryAfter = later(each[j].RetryAfter, elapsed)
			each[j].ResetAfter = later(each[j].ResetAfter, elapsed)
			each[j].GrowsAfter = later(each[j].GrowsAfter, elapsed)
			each[j].Allowed = each[j].RetryAfter == 0
		}
		return d, true
	}
	return d, false
}

// later is what is left of a wait.
func later(wait, elapsed time.Duration) time.Duration {
	if wait == stint.Never {
		return wait
	}
	return max(0, wait-elapsed)
}

// sendMark notes when a batch is sent.
type sendMark struct {
	sequence uint64 // 0: nothing may be kept
	sent     time.Duration
}

// mark is taken before a batch is sent: what is announced from here on is later.
func (c *denialCache) mark() (m sendMark) {
	if c != nil && c.listening.Load() {
		m = sendMark{c.sequence.Load(), c.now()}
	}
	return m
}

// longestMemory is more than any denial is kept for.
const longestMemory = time.Duration(math.MaxInt64)

// keepDenial keeps the denial of an operation that was sent at a mark, from the outcomes of its
// limits, as long as no limit on denials would count it; grows says that they say when Remaining grows.
func (s *Store) keepDenial(m sendMark, op *stint.Op, d stint.Decision, outcomes []stint.Outcome, grows bool) {
	if d.RetryAfter == stint.Never {
		return
	}
	var longest stint.Claim
	var lasts time.Duration
	first, hasWays := 0, op.Groups() != nil
	until := longestMemory // when a limit on denials begins to count again
	for i := range op.Len() {
		claim, _ := op.NthClaim(i)
		plan := s.plan(claim.Policy)
		for j := range plan {
			if plan[j].Spec.Denials {
				until = min(until, outcomes[first+j].RetryAfter) // 0 while it counts
			}
			if !hasWays || first+j == int(d.Index) {
				lasts = max(lasts, min(outcomes[first+j].RetryAfter, layout.Micros(plan[j].Life)))
			}
			if first+j == int(d.Index) {
				longest = *claim
			}
		}
		first += len(plan)
	}
	lasts = min(lasts, until)
	kept := denial{policy: longest.Policy, permits: longest.Permits, keep: longest.Keep, decision: d}
	if op.And != nil || hasWays {
		kept.claimsHash = s.denials.hash(op)
	}
	if grows && len(outcomes) <= maxOutcomes {
		kept.outcomes = outcomes
	}
	if !hasWays {
		s.denials.keep(m, longest.Key, &kept, lasts)
		return
	}
	for i := range op.Len() {
		claim, _ := op.NthClaim(i)
		kept.policy, kept.permits, kept.keep = claim.Policy, claim.Permits, claim.Keep
		s.denials.keep(m, claim.Key, &kept, lasts)
		kept.outcomes = nil
	}
}

// note takes note of what a batch that was sent at a mark brought: it keeps denials, and forgets those that are wrong
// now.
func (s *Store) note(b *wire.Batch, mark sendMark) {
	entries := b.Entries()
	for i := range entries {
		e := &entries[i]
		if e.Verb == stint.VerbReset {
			s.leases.forgetClients(b, e)
		}
		switch {
		case e.Verb == stint.VerbReset || e.Verb > stint.VerbReserve && e.Verb != stint.VerbList ||
			e.Verb == stint.VerbSettle && e.Decision.Applied < 0:
			if s.denials != nil {
				limits := b.Limits(e)
				for j := range limits {
					s.denials.announce(b.Client(&limits[j]))
				}
			}
		case s.denials == nil || e.Verb == stint.VerbPeek:
		case e.Decision.Allowed || e.BulkAdmitted > 0:
			s.forgetDenials(b, e)
		case e.Verb <= stint.VerbTry:
			s.keepDenialOf(b, e, mark)
		}
	}
}

// keepDenialOf keeps the denial of an entry, unless one of its limits counts denied requests.
func (s *Store) keepDenialOf(b *wire.Batch, e *wire.Entry, mark sendMark) {
	limits := b.Limits(e)
	if slices.ContainsFunc(limits, func(p wire.OpLimit) bool { return p.Limit.Spec.CountDenied }) {
		return
	}
	var op stint.Op
	for first := 0; first < len(limits); {
		p, way := &limits[first], uint16(0)
		claim := stint.Claim{Key: b.Client(p), Policy: p.Limit.Policy, Permits: p.Asked, Keep: int64(p.Keep)}
		if e.Ways != nil {
			way = e.Ways[first]
		}
		decide.Append(&op, claim, way)
		first += p.Limit.Policy.Len()
	}
	s.keepDenial(mark, &op, e.Decision, b.Outcomes(e), e.Growth)
}

// keep keeps a denial of what was sent at a mark, for a time from then. The outcomes are copied. At
// the bound a denial of any other client goes: a wrong choice costs one round trip.
func (c *denialCache) keep(m sendMark, client string, d *denial, lasts time.Duration) {
	if lasts == 0 || m.sequence == 0 {
		return
	}
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.announced > m.sequence || !c.listening.Load() {
		return
	}
	if s.clients == nil {
		s.clients = map[string][]denial{}
	}
	kept := *d
	kept.sent, kept.received, kept.until = m.sent, c.now(), m.sent+lasts-lasts/clockRates
	list := s.clients[client]
	claim := stint.Claim{Policy: d.policy, Permits: d.permits, Keep: d.keep}
	at := slices.IndexFunc(list, func(known denial) bool { return known.covers(&claim, d.claimsHash) })
	if at < 0 && len(list) == maxClientDenials {
		at = 0
	}
	if at >= 0 {
		kept.outcomes = append(list[at].outcomes[:0], d.outcomes...)
		list[at] = kept
		return
	}
	if s.count >= c.maxPerShard {
		for other := range s.clients { // any
			c.forget(s, other, func(denial) bool { return true })
			break
		}
	}
	kept.outcomes = append([]stint.Outcome(nil), d.outcomes...)
	// The caller may use the key's memory again. An assignment to a key that is
	// there replaces that one too.
	s.clients[strings.Clone(client)] = append(s.clients[client], kept)
	s.count++
	c.entries.Add(1)
}

// forgetDenials ends the denials of what an entry took: this process has taken more of the
// state, so their waits are too short.
func (s *Store) forgetDenials(b *wire.Batch, e *wire.Entry) {
	c := s.denials
	if c.entries.Load() == 0 {
		return
	}
	limits := b.Limits(e)
	for i := 0; i < len(limits); i += limits[i].Limit.Policy.Len() {
		client, name := b.Client(&limits[i]), limits[i].Limit.Policy.Name()
		shard := c.shard(client)
		shard.mu.Lock()
		c.forget(shard, client, func(d denial) bool { return d.policy.Name() == name })
		shard.mu.Unlock()
	}
}

// forget removes denials of a client. The shard is locked.
func (c *denialCache) forget(s *denialShard, client string, which func(denial) bool) {
	list := s.clients[client]
	left := slices.DeleteFunc(list, which)
	gone := len(list) - len(left)
	s.count -= gone
	c.entries.Add(-int64(gone))
	if len(left) == 0 {
		delete(s.clients, client)
	} else if gone > 0 {
		s.clients[client] = left
	}
}

// announce forgets a client, and lets no batch that is in flight bring it back.
func (c *denialCache) announce(client string) {
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = c.sequence.Add(1)
	c.forget(s, client, func(denial) bool { return true })
	c.waiters.Wake(client)
}

// announcePolicy forgets all denials of a policy, and lets no batch that is in flight
// bring one back.
func (c *denialCache) announcePolicy(name string) {
	c.forgetAll(func(d denial) bool { return d.policy.Name() == name })
}

// wipe forgets everything, leases too.
func (c *denialCache) wipe() {
	c.forgetAll(func(denial) bool { return true })
	c.onMissed()
}

// forgetAll forgets the denials that match, of all clients, and wakes all who wait.
func (c *denialCache) forgetAll(which func(denial) bool) {
	defer c.waiters.WakeAll()
	at := c.sequence.Add(1)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.announced = at
		for client := range s.clients {
			c.forget(s, client, which)
		}
		s.mu.Unlock()
	}
}

// subscribed starts keeping denials, of batches sent from now on. Policies may have been reset while there was no
// subscription, and then leases are of states that are gone.
func (c *denialCache) subscribed() {
	c.sequence.Add(1)
	c.listening.Store(true)
	if c.wasLost.Load() {
		c.onMissed()
	}
}

// unsubscribed forgets everything, since announcements may be missed from now on. It does so once, so that leases
// work while no subscription can be made.
func (c *denialCache) unsubscribed() {
	if c.listening.Swap(false) {
		c.wasLost.Store(true)
		c.wipe()
	}
}

// receive reads a message of the channel: clients, and policies that were reset. After a message that can't be read
// everything is forgotten.
func (c *denialCache) receive(message string) {
	read := wire.ReadAnnouncements(message, c.announce, func(policy string) {
		c.announcePolicy(policy)
		c.onPolicyReset(policy)
	})
	if !read {
		c.wipe()
	}
}

// How long to wait before subscribing again.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// listen keeps a subscription to the channel until the context ends. The pause doubles up to
// lastPause, and begins anew once a subscription was there.
func (c *denialCache) listen(ctx context.Context, conn redisconn.Conn, channel string) {
	pause := firstPause
	for ctx.Err() == nil {
		_ = conn.Subscribe(ctx, channel, func() {
			pause = firstPause
			c.subscribed()
		}, c.receive)
		c.unsubscribed()
		_ = sleep.For(ctx, pause)
		pause = min(2*pause, lastPause)
	}
}
