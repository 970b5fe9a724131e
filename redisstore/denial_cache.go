package redisstore

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// denials remembers denials, so that a client that keeps asking is answered without
// asking the server: a denial says until when the same cost of the same claims is
// denied. Another cost waits for longer or less, and other claims may be denied by
// another limit, so both are asked. What this process itself takes of a state ends the
// denials of it, since then the wait is longer than they say; what others take is not
// heard of.
//
// A denial is kept until its RetryAfter, and never for longer than the longest that a
// state of the limit matters: a longer wait is due to a state from a time that the
// server's clock does not have any more, and the clock may be put right before.
//
// What could make a denial wrong (a reset, a refund, a limit with other parameters
// that takes a state over) is announced by the script that does it, on a channel that
// every process listens to. A denial is kept only if nothing of its client was announced
// since its batch was sent, and nothing is kept while the channel is down. What
// remains: between a reset elsewhere and the arrival of its announcement, which takes
// as long as it takes to notice where the channel leads nowhere any more, and when the
// server's clock steps forth or its memory is wiped, a client may be denied that the
// server would admit, until its RetryAfter at the latest. It is never the other way
// round.
type denialCache struct {
	seed          maphash.Seed
	maxPerShard   int // entries in a shard
	now           func() time.Duration
	onPolicyReset func(policy string) // is told of policies that were forgotten elsewhere
	onMissed      func()              // is told when that may have been missed
	listening     atomic.Bool         // whether the channel is listened to
	wasLost       atomic.Bool         // whether it was and then was not
	sequence      atomic.Uint64       // of announcements, and of sessions on the channel
	entries       atomic.Int64
	hits          atomic.Uint64
	shards        [denialShards]denialShard
}

const denialShards = 64

type denialShard struct {
	mu        sync.Mutex
	announced uint64 // the sequence of the last announcement of a client here
	clients   map[string][]denial
	count     int
}

// denial is an operation's denial, kept with the client of the claim with the longest
// wait.
type denial struct {
	policy     *stint.Policy // of that claim
	permits    int64
	claimsHash uint64        // a hash of all claims, 0 if there is but one
	sent       time.Duration // by the local clock
	until      time.Duration
	decision   stint.Decision
	outs       []stint.Outcome // of one claim, if they say when Remaining grows
}

// covers reports whether the denial is of a claim among claims with the hash.
func (d *denial) covers(claim *stint.Claim, others uint64) bool {
	return d.policy == claim.Policy && d.permits == claim.Permits && d.claimsHash == others
}

// clientDenials is how many denials are kept of one client at most.
const clientDenials = 64

// clockRates is by how much of a wait two clocks may disagree: one part of so many.
const clockRates = 1000

func newDenialCache(most int, now func() time.Duration) *denialCache {
	return &denialCache{
		seed: maphash.MakeSeed(), maxPerShard: max(1, most/denialShards), now: now, onPolicyReset: func(string) {}, onMissed: func() {},
	}
}

func (c *denialCache) shard(client string) *denialShard {
	return &c.shards[maphash.String(c.seed, client)%denialShards]
}

// cacheable reports whether an operation's denial may come from the cache or go
// there.
func (s *Store) denialCacheable(op *stint.Op) bool {
	if s.denials == nil || op.Verb > stint.Try || op.Each != nil && op.And != nil || s.countsDenied(op.Policy) {
		return false
	}
	for i := range op.And {
		if s.countsDenied(op.And[i].Policy) {
			return false
		}
	}
	return true
}

func (s *Store) countsDenied(policy *stint.Policy) bool {
	plan := s.plan(policy)
	for i := range plan {
		if plan[i].limit.CountDenied {
			return true
		}
	}
	return false
}

// remembered answers an operation that is known to be denied.
func (s *Store) rememberedDenial(op *stint.Op) (d stint.Decision, denied bool) {
	if s.denials == nil || s.denials.entries.Load() == 0 || !s.denialCacheable(op) {
		return d, false
	}
	return s.denials.answer(op)
}

// keepDenial keeps the denial of an operation whose batch, or batches, were sent at f or
// later, from the outcomes of its limits.
func (s *Store) keepDenial(f sendMark, op *stint.Op, d stint.Decision, outcomes []stint.Outcome, grown bool) {
	n := refusal{decision: d}
	claim, first := &op.Claim, 0
	for i := -1; i < len(op.And); i++ {
		if i >= 0 {
			claim = &op.And[i]
		}
		plan := s.plan(claim.Policy)
		for j := range plan {
			n.lasts = max(n.lasts, min(outcomes[first+j].RetryAfter, micros(plan[j].life)))
			if first+j == int(d.Index) {
				n.claim = *claim
			}
		}
		first += len(plan)
	}
	if op.And != nil {
		n.claimsHash = s.denials.hash(op)
	} else if grown {
		n.outs = outcomes
	}
	s.denials.keep(f, &n)
}

// keep keeps a denial.
func (b *batch) keepDenial(e *entry) {
	limits := b.limitsOf(e)
	var op stint.Op
	for first := 0; first < len(limits); {
		policy := limits[first].policy
		claim := stint.Claim{Key: b.states[limits[first].state].client, Policy: policy, Permits: limits[first].permits}
		if first == 0 {
			op.Claim = claim
		} else {
			op.And = append(op.And, claim)
		}
		first += policy.Len()
	}
	b.store.keepDenial(b.sentAt, &op, e.decision, b.outcomesOf(e), e.growth)
}

// taken ends the denials of what an entry took.
func (b *batch) forgetDenials(e *entry) {
	limits := b.limitsOf(e)
	for i := 0; i < len(limits); i += limits[i].policy.Len() {
		b.store.denials.forgetTaken(b.states[limits[i].state].client, limits[i].policy)
	}
}

// answer answers an operation that is known to be denied.
func (c *denialCache) answer(op *stint.Op) (d stint.Decision, denied bool) {
	now := c.now()
	if op.And == nil {
		return c.claim(&op.Claim, 0, now, op.Each)
	}
	others := c.hash(op)
	d, denied = c.claim(&op.Claim, others, now, nil)
	for i := 0; i < len(op.And) && !denied; i++ {
		d, denied = c.claim(&op.And[i], others, now, nil)
	}
	return d, denied
}

// hash hashes the claims of an operation of several.
func (c *denialCache) hash(op *stint.Op) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	maphash.WriteComparable(&h, op.Claim)
	for i := range op.And {
		maphash.WriteComparable(&h, op.And[i])
	}
	return max(1, h.Sum64())
}

// claim answers for one claim among claims with a hash.
func (c *denialCache) claim(claim *stint.Claim, others uint64, now time.Duration, each []stint.Outcome) (d stint.Decision, hit bool) {
	s := c.shard(claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.clients[claim.Key]
	for i := range list {
		known := &list[i]
		if !known.covers(claim, others) {
			continue
		}
		if now >= known.until || now < known.sent || len(known.outs) < len(each) {
			return d, false
		}
		elapsed := (now - known.sent).Truncate(time.Microsecond)
		d = known.decision
		d.At = d.At.Add(elapsed)
		d.RetryAfter = later(d.RetryAfter, elapsed)
		d.ResetAfter = later(d.ResetAfter, elapsed)
		d.Source = stint.SourceDenialCache
		for j := range each {
			each[j] = known.outs[j]
			each[j].RetryAfter = later(each[j].RetryAfter, elapsed)
			each[j].ResetAfter = later(each[j].ResetAfter, elapsed)
			each[j].GrowsAfter = later(each[j].GrowsAfter, elapsed)
			each[j].Allowed = each[j].RetryAfter == 0
		}
		c.hits.Add(1)
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

// flying notes when a batch is sent.
type sendMark struct {
	sequence uint64
	sent     time.Duration
}

func (c *denialCache) mark() (f sendMark) {
	if c != nil && c.listening.Load() {
		f = sendMark{c.sequence.Load(), c.now()}
	}
	return f
}

// refusal is a denial to be kept.
type refusal struct {
	claim      stint.Claim // the one with the longest wait
	claimsHash uint64      // as in a denial
	lasts      time.Duration
	decision   stint.Decision
	outs       []stint.Outcome // as in a denial
}

// keep keeps what was denied by a batch that was sent at f.
func (c *denialCache) keep(f sendMark, n *refusal) {
	if n.lasts == 0 || n.decision.RetryAfter == stint.Never || f.sequence == 0 {
		return
	}
	client := n.claim.Key
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.announced > f.sequence || !c.listening.Load() {
		return
	}
	if s.clients == nil {
		s.clients = map[string][]denial{}
	}
	kept := denial{
		policy: n.claim.Policy, permits: n.claim.Permits, claimsHash: n.claimsHash, decision: n.decision,
		sent: f.sent, until: f.sent + n.lasts - n.lasts/clockRates,
	}
	list := s.clients[client]
	at := slices.IndexFunc(list, func(d denial) bool { return d.covers(&n.claim, n.claimsHash) })
	if at < 0 && len(list) == clientDenials {
		at = 0
		for i := range list {
			if list[i].until < list[at].until {
				at = i
			}
		}
	}
	if at >= 0 {
		kept.outs = append(list[at].outs[:0], n.outs...)
		list[at] = kept
		return
	}
	if s.count >= c.maxPerShard {
		c.evict(s)
	}
	kept.outs = append(kept.outs, n.outs...)
	// The key's memory is its caller's, who may use it again. An assignment to a key that is
	// there replaces that one too.
	s.clients[strings.Clone(client)] = append(s.clients[client], kept)
	s.count++
	c.entries.Add(1)
}

// taken forgets the denials of a policy of a client: this process has taken more of the
// state, so their waits are too short.
func (c *denialCache) forgetTaken(client string, policy *stint.Policy) {
	if c.entries.Load() == 0 {
		return
	}
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if list := s.clients[client]; len(list) > 0 {
		c.remove(s, client, list, func(d denial) bool { return d.policy.Name() == policy.Name() })
	}
}

// remove removes denials of a client. The shard is locked.
func (c *denialCache) remove(s *denialShard, client string, list []denial, which func(denial) bool) {
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

// evict makes room: of a few clients, the one goes whose denial ends first.
func (c *denialCache) evict(s *denialShard) {
	const sample = 8
	victim, seen := "", 0
	var end time.Duration
	for client, list := range s.clients {
		if seen == 0 || list[0].until < end {
			victim, end = client, list[0].until
		}
		if seen++; seen == sample {
			break
		}
	}
	c.drop(s, victim)
}

func (c *denialCache) drop(s *denialShard, client string) {
	n := len(s.clients[client])
	delete(s.clients, client)
	s.count -= n
	c.entries.Add(-int64(n))
}

// announce forgets a client, and lets no batch that is under way bring it back.
func (c *denialCache) announce(client string) {
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = c.sequence.Add(1)
	c.drop(s, client)
}

// announcePolicy forgets all denials of a policy, and lets no batch that is under way
// bring one back.
func (c *denialCache) announcePolicy(name string) {
	at := c.sequence.Add(1)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.announced = at
		for client, list := range s.clients {
			c.remove(s, client, list, func(d denial) bool { return d.policy.Name() == name })
		}
		s.mu.Unlock()
	}
}

// begin starts keeping denials, of batches sent from now on. What was leased while the
// channel was lost may be of policies that were forgotten then.
func (c *denialCache) subscribed() {
	c.sequence.Add(1)
	c.listening.Store(true)
	if c.wasLost.Load() {
		c.onMissed()
	}
}

// end forgets everything, since announcements may have been missed. While the channel was
// not listened to there is nothing, and leases are not let go of again and again where it
// can't be.
func (c *denialCache) unsubscribed() {
	if c.listening.Swap(false) {
		c.wasLost.Store(true)
		c.wipe()
	}
}

// wipe forgets everything, leases too.
func (c *denialCache) wipe() {
	defer c.onMissed()
	at := c.sequence.Add(1)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.announced = at
		c.entries.Add(-int64(s.count))
		s.clients, s.count = nil, 0
		s.mu.Unlock()
	}
}

// hear takes a message of the channel apart: clients, each behind its length in 2
// bytes. A length of 0, which no client has, says that a policy was forgotten, whose name
// follows behind its length. Who does not know that takes it for two clients. After a
// message that can't be read everything is forgotten.
func (c *denialCache) receive(message string) {
	policy := false
	for message != "" {
		name, rest, ok := cutName(message)
		switch {
		case !ok:
			c.wipe()
			return
		case policy:
			c.announcePolicy(name)
			c.onPolicyReset(name)
			policy = false
		case name == "":
			policy = true
		default:
			c.announce(name)
		}
		message = rest
	}
	if policy {
		c.wipe()
	}
}

// cutName cuts a name behind its length off a message.
func cutName(message string) (name, rest string, ok bool) {
	if len(message) < 2 {
		return "", "", false
	}
	end := 2 + int(message[0])<<8 + int(message[1])
	if len(message) < end {
		return "", "", false
	}
	return message[2:end], message[end:], true
}

// How long to wait before listening again.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// listen listens to the channel until the context ends.
func (c *denialCache) listen(ctx context.Context, conn Conn, channel string) {
	pause := firstPause
	for ctx.Err() == nil {
		_ = conn.Subscribe(ctx, channel, func() {
			pause = firstPause
			c.subscribed()
		}, c.receive)
		c.unsubscribed()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}
