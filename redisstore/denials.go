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
// asking the server: a denial says until when the same cost is denied.
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

// denial is one claim's denial.
type denial struct {
	policy  *stint.Policy
	permits int64
	sent    time.Duration // by the local clock
	until   time.Duration
	at      stint.Instant // the server's time of the decision
	outs    []stint.Outcome
	grown   bool // whether outs say when Remaining grows
}

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

// answer answers an operation that is known to be denied.
func (c *denials) answer(op *stint.Op) (d stint.Decision, denied bool) {
	now := c.now()
	if op.And == nil {
		return c.claim(&op.Claim, now, op.Each)
	}
	first := 0 // the claim's first limit among the operation's
	for i := -1; i < len(op.And); i++ {
		claim := &op.Claim
		if i >= 0 {
			claim = &op.And[i]
		}
		if one, hit := c.claim(claim, now, nil); hit && (!denied || one.RetryAfter > d.RetryAfter) {
			d, denied = one, true
			d.Index += int32(first)
		}
		first += claim.Policy.Len()
	}
	return d, denied
}

// claim answers one claim.
func (c *denials) claim(claim *stint.Claim, now time.Duration, each []stint.Outcome) (d stint.Decision, hit bool) {
	s := c.shard(claim.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.clients[claim.Key]
	for i := range list {
		known := &list[i]
		if known.policy != claim.Policy || claim.Permits < known.permits || now >= known.until || now < known.sent ||
			each != nil && !known.grown {
			continue
		}
		elapsed := (now - known.sent).Truncate(time.Microsecond)
		d = stint.Combine(known.outs, known.at.Add(elapsed))
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

// keep keeps what a flight that was sent at f answered to a claim, if it is a denial.
func (c *denials) keep(f flying, claim stint.Claim, at stint.Instant, outs []stint.Outcome, grown bool) {
	wait := time.Duration(0)
	for i := range outs {
		wait = max(wait, outs[i].RetryAfter)
	}
	if wait == 0 || wait == stint.Never || f.sequence == 0 {
		return
	}
	policy, client := claim.Policy, claim.Key
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
		policy: policy, permits: claim.Permits, sent: f.sent, until: f.sent + wait - wait/clockRates, at: at, grown: grown,
	}
	list := s.clients[client]
	for i := range list {
		if list[i].policy == policy {
			kept.outs = append(list[i].outs[:0], outs...)
			list[i] = kept
			return
		}
	}
	if s.count >= c.most {
		c.evict(s)
	}
	kept.outs = append(kept.outs, outs...)
	// The key's memory is its caller's, who may use it again. An assignment to a key that is
	// there replaces that one too.
	s.clients[strings.Clone(client)] = append(s.clients[client], kept)
	s.count++
	c.entries.Add(1)
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
			left := slices.DeleteFunc(list, func(d denial) bool { return d.policy.Name() == name })
			gone := len(list) - len(left)
			s.count -= gone
			c.entries.Add(-int64(gone))
			if len(left) == 0 {
				delete(s.clients, client)
			} else {
				s.clients[client] = left
			}
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
