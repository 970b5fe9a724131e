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
// since its flight was sent, and nothing is kept while the channel is down. What
// remains: between a reset elsewhere and the arrival of its announcement, which takes
// as long as it takes to notice where the channel leads nowhere any more, and when the
// server's clock steps forth or its memory is wiped, a client may be denied that the
// server would admit, until its RetryAfter at the latest. It is never the other way
// round.
type denials struct {
	seed     maphash.Seed
	most     int // entries in a shard
	now      func() time.Duration
	forgot   func(policy string) // is told of policies that were forgotten elsewhere
	missed   func()              // is told when that may have been missed
	live     atomic.Bool         // whether the channel is listened to
	lost     atomic.Bool         // whether it was and then was not
	sequence atomic.Uint64       // of announcements, and of sessions on the channel
	entries  atomic.Int64
	hits     atomic.Uint64
	shards   [denialShards]denialShard
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
	policy   *stint.Policy // of that claim
	permits  int64
	others   uint64        // a hash of all claims, 0 if there is but one
	sent     time.Duration // by the local clock
	until    time.Duration
	decision stint.Decision
	outs     []stint.Outcome // of one claim, if they say when Remaining grows
}

// covers reports whether the denial is of a claim among claims with the hash.
func (d *denial) covers(claim *stint.Claim, others uint64) bool {
	return d.policy == claim.Policy && d.permits == claim.Permits && d.others == others
}

// clientDenials is how many denials are kept of one client at most.
const clientDenials = 64

// clockRates is by how much of a wait two clocks may disagree: one part of so many.
const clockRates = 1000

func newDenials(most int, now func() time.Duration) *denials {
	return &denials{
		seed: maphash.MakeSeed(), most: max(1, most/denialShards), now: now, forgot: func(string) {}, missed: func() {},
	}
}

// uptime is a local clock that does not step.
func uptime() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

func (c *denials) shard(client string) *denialShard {
	return &c.shards[maphash.String(c.seed, client)%denialShards]
}

// cacheable reports whether an operation's denial may come from the cache or go
// there.
func (s *Store) cacheable(op *stint.Op) bool {
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
func (s *Store) remembered(op *stint.Op) (d stint.Decision, denied bool) {
	if s.denials == nil || s.denials.entries.Load() == 0 || !s.cacheable(op) {
		return d, false
	}
	return s.denials.answer(op)
}

// keepDenial keeps the denial of an operation whose flight, or flights, were sent at f or
// later, from the outcomes of its limits.
func (s *Store) keepDenial(f flying, op *stint.Op, d stint.Decision, outs []stint.Outcome, grown bool) {
	n := refusal{decision: d}
	claim, first := &op.Claim, 0
	for i := -1; i < len(op.And); i++ {
		if i >= 0 {
			claim = &op.And[i]
		}
		plan := s.plan(claim.Policy)
		for j := range plan {
			n.lasts = max(n.lasts, min(outs[first+j].RetryAfter, micros(plan[j].life)))
			if first+j == int(d.Index) {
				n.claim = *claim
			}
		}
		first += len(plan)
	}
	if op.And != nil {
		n.others = s.denials.hash(op)
	} else if grown {
		n.outs = outs
	}
	s.denials.keep(f, &n)
}

// keep keeps a denial.
func (f *flight) keep(e *entry) {
	parts := f.partsOf(e)
	var op stint.Op
	for first := 0; first < len(parts); {
		policy := parts[first].policy
		claim := stint.Claim{Key: f.states[parts[first].state].client, Policy: policy, Permits: parts[first].permits}
		if first == 0 {
			op.Claim = claim
		} else {
			op.And = append(op.And, claim)
		}
		first += policy.Len()
	}
	f.store.keepDenial(f.flying, &op, e.decision, f.outsOf(e), e.growth)
}

// taken ends the denials of what an entry took.
func (f *flight) taken(e *entry) {
	parts := f.partsOf(e)
	for i := 0; i < len(parts); i += parts[i].policy.Len() {
		f.store.denials.taken(f.states[parts[i].state].client, parts[i].policy)
	}
}

// answer answers an operation that is known to be denied.
func (c *denials) answer(op *stint.Op) (d stint.Decision, denied bool) {
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
func (c *denials) hash(op *stint.Op) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	maphash.WriteComparable(&h, op.Claim)
	for i := range op.And {
		maphash.WriteComparable(&h, op.And[i])
	}
	return max(1, h.Sum64())
}

// claim answers for one claim among claims with a hash.
func (c *denials) claim(claim *stint.Claim, others uint64, now time.Duration, each []stint.Outcome) (d stint.Decision, hit bool) {
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

// flying notes when a flight is sent.
type flying struct {
	sequence uint64
	sent     time.Duration
}

func (c *denials) send() (f flying) {
	if c != nil && c.live.Load() {
		f = flying{c.sequence.Load(), c.now()}
	}
	return f
}

// refusal is a denial to be kept.
type refusal struct {
	claim    stint.Claim // the one with the longest wait
	others   uint64      // as in a denial
	lasts    time.Duration
	decision stint.Decision
	outs     []stint.Outcome // as in a denial
}

// keep keeps what was denied by a flight that was sent at f.
func (c *denials) keep(f flying, n *refusal) {
	if n.lasts == 0 || n.decision.RetryAfter == stint.Never || f.sequence == 0 {
		return
	}
	client := n.claim.Key
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.announced > f.sequence || !c.live.Load() {
		return
	}
	if s.clients == nil {
		s.clients = map[string][]denial{}
	}
	kept := denial{
		policy: n.claim.Policy, permits: n.claim.Permits, others: n.others, decision: n.decision,
		sent: f.sent, until: f.sent + n.lasts - n.lasts/clockRates,
	}
	list := s.clients[client]
	at := slices.IndexFunc(list, func(d denial) bool { return d.covers(&n.claim, n.others) })
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
	if s.count >= c.most {
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
func (c *denials) taken(client string, policy *stint.Policy) {
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
func (c *denials) remove(s *denialShard, client string, list []denial, which func(denial) bool) {
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
func (c *denials) evict(s *denialShard) {
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

func (c *denials) drop(s *denialShard, client string) {
	n := len(s.clients[client])
	delete(s.clients, client)
	s.count -= n
	c.entries.Add(-int64(n))
}

// announce forgets a client, and lets no flight that is under way bring it back.
func (c *denials) announce(client string) {
	s := c.shard(client)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = c.sequence.Add(1)
	c.drop(s, client)
}

// announcePolicy forgets all denials of a policy, and lets no flight that is under way
// bring one back.
func (c *denials) announcePolicy(name string) {
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

// begin starts keeping denials, of flights sent from now on. What was leased while the
// channel was lost may be of policies that were forgotten then.
func (c *denials) begin() {
	c.sequence.Add(1)
	c.live.Store(true)
	if c.lost.Load() {
		c.missed()
	}
}

// end forgets everything, since announcements may have been missed. While the channel was
// not listened to there is nothing, and leases are not let go of again and again where it
// can't be.
func (c *denials) end() {
	if c.live.Swap(false) {
		c.lost.Store(true)
		c.wipe()
	}
}

// wipe forgets everything, leases too.
func (c *denials) wipe() {
	defer c.missed()
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
func (c *denials) hear(message string) {
	policy := false
	for message != "" {
		name, rest, ok := cutName(message)
		switch {
		case !ok:
			c.wipe()
			return
		case policy:
			c.announcePolicy(name)
			c.forgot(name)
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
func (c *denials) listen(ctx context.Context, conn Conn, channel string) {
	pause := firstPause
	for ctx.Err() == nil {
		_ = conn.Subscribe(ctx, channel, func() {
			pause = firstPause
			c.begin()
		}, c.hear)
		c.end()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}
