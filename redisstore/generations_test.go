package redisstore_test

import (
	"errors"
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// TestGenerations drives a store through generations of its hashes, under a clock that
// jumps to where they turn and steps back, and holds each answer to the oracle and
// each hash to what generations.lua says of it.
func TestGenerations(t *testing.T) {
	if flag.Lookup("rapid.seed").Value.String() == "0" {
		// One run is like the other, so it may be short, and what fails need not be kept.
		if err := errors.Join(flag.Set("rapid.seed", "1"), flag.Set("rapid.checks", "60"), flag.Set("rapid.nofailfile", "true")); err != nil {
			t.Fatal(err)
		}
	}
	conn := newConn(t)
	for _, algorithm := range notation.Algorithms() {
		if algorithm == stint.AlgorithmSlidingWindowLog {
			continue // it is in no hash
		}
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) { newHistory(t, rt, conn, algorithm).run() })
		})
	}
}

// history is one run of a store.
type history struct {
	*rapid.T
	t        *testing.T
	store    *redisstore.Store
	clock    *storetest.Clock
	oracle   *oracle.Oracle
	policies []*stint.Policy // of one limit each, all of one identity
	clients  []string
	hashes   []*hashes // by partition, those that have been seen
	lives    []stint.Instant
	prefix   string
}

// hashes are the two generations of a partition.
type hashes struct {
	cur, prev generation
	key       string // of cur
}

// generation is a hash as it was read.
type generation struct {
	*hash                    // nil: there is none
	fields map[string]string // as it is stored
	fate   fate              // when it is to expire
	at     float64           // when it does, in milliseconds of the server's time
}

func (g generation) head() string { return g.fields[""] }

// fate is when a key is to expire: between two times of the server, in milliseconds,
// and then some.
type fate struct{ from, to float64 }

func newHistory(t *testing.T, rt *rapid.T, conn redisconn.Conn, algorithm stint.Algorithm) *history {
	h := &history{T: rt, t: t, clock: storetest.NewClock(dawn), oracle: oracle.New(0)}
	h.store, h.prefix = storeOn(t, conn, redisstore.Options{
		Now:        h.clock.Now,
		Partitions: rapid.IntRange(1, 2).Draw(rt, "partitions"),
		MaxBatch:   rapid.SampledFrom([]int{1, 3, redisstore.DefaultMaxBatch}).Draw(rt, "batch"),
	})
	valid := func(l stint.Limit) bool { return l.Validate() == nil }
	var limit stint.Limit
	for i := range rapid.IntRange(1, 4).Draw(rt, "limits") {
		other := limitOf(algorithm).Filter(valid).Draw(rt, "limit")
		// A limit's debt matters to how long states live, and not to what they mean.
		variant := limit
		if variant.MaxDebt = other.MaxDebt; i > 0 && valid(variant) && rapid.IntRange(0, 3).Draw(rt, "variant") == 0 {
			other = variant
		}
		limit = other
		h.policies = append(h.policies, policyOf(t, "", limit))
		_, life := longest(limit)
		h.lives = append(h.lives, withMargin(life))
	}
	for i := range rapid.IntRange(1, 4).Draw(rt, "clients") {
		h.clients = append(h.clients, string(rune('a'+i)))
	}
	return h
}

// limitOf draws limits whose states live for about as long as each other, or far
// longer.
func limitOf(algorithm stint.Algorithm) *rapid.Generator[stint.Limit] {
	return rapid.Custom(func(rt *rapid.T) stint.Limit {
		l := stint.Limit{
			Algorithm: algorithm,
			Capacity:  rapid.SampledFrom([]int64{1, 2, 5, 1000, bounds.MaxPermits}).Draw(rt, "capacity"),
			MaxDebt:   rapid.SampledFrom([]int64{0, stint.NoDebt, 1, 3000}).Draw(rt, "debt"),
		}
		switch {
		case l.IsBucket():
			l.Rate = rapid.SampledFrom([]stint.Rate{
				stint.Per(1, 100*time.Millisecond), stint.PerSecond(1), stint.Per(2, 3*time.Second), stint.PerMinute(7), stint.Per(1, time.Hour),
				stint.PerSecond(bounds.MaxPermits),
			}).Draw(rt, "rate")
		case algorithm == stint.AlgorithmFixedWindow && rapid.IntRange(0, 3).Draw(rt, "calendar") == 0:
			l.Calendar = rapid.SampledFrom([]stint.Calendar{stint.CalendarMinute, stint.CalendarHour, stint.CalendarDay}).Draw(rt, "unit")
		default:
			l.Window = rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, time.Minute}).Draw(rt, "window")
		}
		return l
	})
}

// run makes batches and checks each.
func (h *history) run() {
	for range rapid.IntRange(1, 30).Draw(h.T, "batches") {
		h.move()
		h.expire()
		ops := h.batch()
		before := h.serverTime(redis(h.t, "TIME"))
		results := make([]stint.Result, len(ops))
		h.store.DecideAll(h.t.Context(), ops, results)
		idle := true
		gone := map[string]bool{} // whom the batch reset and did not write again
		for i, r := range results {
			o := ops[i]
			if r.Err != nil {
				h.Fatalf("%s %d of %s: %v", o.Verb, o.Permits, o.Key, r.Err)
			}
			must.Get(h.oracle.Check(o, h.clock.Instant(), oracle.Got(o, r)))(h)
			for j := range o.Each {
				changes := o.Verb == stint.VerbReset || o.Verb == stint.VerbSettle && o.Each[j].Applied != 0 ||
					(o.Verb == stint.VerbTake || o.Verb == stint.VerbTry) && r.Decision.Allowed
				if !changes {
					continue
				}
				client := o.Key
				if j > 0 {
					client = o.And[j-1].Key
				}
				idle, gone[client] = false, o.Verb == stint.VerbReset
			}
		}
		h.inspect(before, idle, gone)
	}
}

// move moves the clock: a little, by lives of states, to where generations turn, or
// back.
func (h *history) move() {
	now := h.clock.Instant()
	life := rapid.SampledFrom(h.lives).Draw(h.T, "life")
	us := func(what string, from, to stint.Instant) stint.Instant {
		return stint.Instant(rapid.Int64Range(int64(from), int64(to)).Draw(h.T, what))
	}
	switch rapid.IntRange(0, 11).Draw(h.T, "move") {
	case 0, 1, 2:
	case 3:
		now += us("ahead", 1, 1_500_000)
	case 4, 5:
		now += us("within a life", 1, life)
	case 6:
		now += us("lives", life/2, 3*life)
	case 7, 8, 9:
		var edges []stint.Instant
		for _, p := range h.hashes {
			for _, g := range []generation{p.cur, p.prev} {
				if g.hash != nil {
					edges = append(edges, g.start, g.turn, g.turn+g.life, g.dead)
				}
			}
		}
		if len(edges) > 0 {
			edge := rapid.SampledFrom(edges).Draw(h.T, "edge") + us("beside", -1, 1)
			if back := rapid.IntRange(0, 3).Draw(h.T, "go back to it") == 0; edge > now || back && edge > dawn/2 {
				now = edge
			}
		}
	case 10:
		now -= us("back within the margin", 1, 900_000)
	default:
		now -= us("back", 1, min(2*life, 1e12))
	}
	h.clock.Set(now)
}

// batch draws operations.
func (h *history) batch() []stint.Op {
	claim := func() stint.Claim {
		return stint.Claim{
			Key:    rapid.SampledFrom(h.clients).Draw(h.T, "client"),
			Policy: rapid.SampledFrom(h.policies).Draw(h.T, "policy"),
		}
	}
	ops := make([]stint.Op, rapid.IntRange(1, 5).Draw(h.T, "operations"))
	for i := range ops {
		o := stint.Op{Claim: claim()}
		o.Verb = rapid.SampledFrom([]stint.Verb{
			stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbTry, stint.VerbPeek, stint.VerbPeek, stint.VerbSettle, stint.VerbSettle, stint.VerbReset,
		}).Draw(h.T, "verb")
		limit := o.Policy.Limit(0)
		o.Permits = h.permits(o.Verb, limit)
		if rapid.IntRange(0, 7).Draw(h.T, "two claims") == 0 {
			other := claim()
			other.Permits = h.permits(o.Verb, other.Policy.Limit(0))
			if o.And = []stint.Claim{other}; o.Validate() != nil {
				o.And = nil
			}
		}
		o.Each = make([]stint.Outcome, o.Limits())
		ops[i] = o
	}
	return ops
}

func (h *history) permits(verb stint.Verb, limit stint.Limit) int64 {
	switch verb {
	case stint.VerbReset:
		return 0
	case stint.VerbSettle:
		n := rapid.SampledFrom([]int64{1, 2, limit.Capacity, limit.Capacity + bounds.Debt(limit.MaxDebt, limit.Capacity), bounds.MaxPermits}).Draw(h.T, "amount")
		if limit.Algorithm != stint.AlgorithmLeakyBucket && rapid.Bool().Draw(h.T, "refund") {
			n = -n
		}
		return n
	default:
		return rapid.SampledFrom([]int64{1, 1, 1, 2, max(1, limit.Capacity/2), limit.Capacity, limit.Capacity + 1}).Draw(h.T, "permits")
	}
}

// serverTime is the server's time in milliseconds, of a reply to TIME.
func (h *history) serverTime(reply any) float64 {
	return float64(timeOf(h.t, reply)) / 1000
}

// look reads two hashes in one step, and the time.
const look = `
local reply = {redis.call('TIME')}
for _, key in ipairs(KEYS) do
  reply[#reply + 1] = redis.call('HGETALL', key)
  reply[#reply + 1] = redis.call('PEXPIRETIME', key)
end
return reply`

func (h *history) read(key string) (cur, prev generation, at float64) {
	before := key[:len(key)-len("cur")] + "prev"
	reply := redis(h.t, "EVAL", look, 2, key, before).([]any)
	for i, g := range []*generation{&cur, &prev} {
		fields, _ := reply[1+2*i].([]any)
		expires, _ := reply[2+2*i].(int64)
		g.at, g.fields = float64(expires), map[string]string{}
		for j := 0; j < len(fields); j += 2 {
			g.fields[fields[j].(string)] = fields[j+1].(string)
		}
		g.hash = hashOf(h, key, fields)
	}
	return cur, prev, h.serverTime(reply[0])
}

// expire lets, at times, hashes expire whose life is over by the pinned clock; the
// server's own runs on another.
func (h *history) expire() {
	for _, p := range h.hashes {
		for i, g := range []*generation{&p.prev, &p.cur} {
			name := [...]string{"prev", "cur"}[i]
			first := i == 0 || p.prev.hash == nil // which expires before cur does
			if first && g.hash != nil && h.clock.Instant() >= g.turn+g.life && rapid.Bool().Draw(h.T, name+" expires") {
				redis(h.t, "DEL", p.key[:len(p.key)-len("cur")]+name)
				*g = generation{}
			}
		}
	}
}

// inspect reads the hashes after a batch: idle says that it changed nothing, gone who
// was reset by it and not written again.
func (h *history) inspect(before float64, idle bool, gone map[string]bool) {
	seen := map[string]*hashes{}
	for _, p := range h.hashes {
		seen[p.key] = p
	}
	if !idle {
		for _, key := range keysOf(h.t, h.prefix) {
			if key[len(key)-len("cur"):] == "cur" && seen[key] == nil {
				h.hashes = append(h.hashes, &hashes{key: key})
			}
		}
	}
	for _, p := range h.hashes {
		cur, prev, after := h.read(p.key)
		h.compare(p, &cur, &prev, before, after)
		if kept := maps.Equal(cur.fields, p.cur.fields) && maps.Equal(prev.fields, p.prev.fields); idle && !kept {
			h.Fatalf("%s: nothing was changed, and it is written: from %+v, %+v to %+v, %+v", p.key, p.cur.hash, p.prev.hash, cur.hash, prev.hash)
		}
		for client, is := range gone {
			for _, g := range []generation{cur, prev} {
				if g.hash != nil {
					if s, found := g.states[client]; found && is {
						h.Fatalf("%s: %s was reset and has the state %+v", p.key, client, s)
					}
				}
			}
		}
		p.cur, p.prev = cur, prev
	}
}

// compare holds a partition's hashes to generations.lua, given what they were.
func (h *history) compare(p *hashes, cur, prev *generation, before, after float64) {
	now := h.clock.Instant()
	turned := cur.hash != nil && (p.cur.hash == nil || cur.start != p.cur.start || cur.dead != p.cur.dead)
	switch {
	case turned && p.cur.hash != nil:
		if now < p.cur.turn || prev.head() != p.cur.head() {
			h.Fatalf("%s: turned at %d from %+v, %+v to %+v, %+v", p.key, now, p.cur.hash, p.prev.hash, cur.hash, prev.hash)
		}
		prev.fate = p.cur.fate
	case prev.head() != p.prev.head():
		h.Fatalf("%s: not turned at %d, and prev was %+v and is %+v", p.key, now, p.prev.hash, prev.hash)
	default:
		prev.fate = p.prev.fate
	}
	if turned && (cur.start != now || cur.turn < now+slices.Min(h.lives) || prev.hash == nil && p.cur.hash != nil) {
		h.Fatalf("%s: at %d started %+v", p.key, now, cur.hash)
	}
	if cur.hash != nil && p.cur.hash != nil && !turned {
		kept := cur.turn == p.cur.turn && cur.life >= p.cur.life && len(cur.versions) >= len(p.cur.versions)
		if !kept {
			h.Fatalf("%s: the head was %+v and is %+v", p.key, p.cur.hash, cur.hash)
		}
		h.rewritten(p, cur, now)
	}
	if cur.hash != nil && prev.hash != nil {
		if end := prev.turn + prev.life; cur.dead != end || cur.turn < end {
			h.Fatalf("%s: states of prev are worthless at %d, and cur says %+v", p.key, end, cur.hash)
		}
	}
	cur.fate = p.cur.fate
	if cur.hash != nil && cur.head() != p.cur.head() {
		left := float64((cur.turn+withMargin(cur.life)-now+999)/1000) + 86_400_000
		cur.fate = fate{float64(int64(before)) + left, after + left}
	}
	for name, g := range map[string]*generation{"cur": cur, "prev": prev} {
		if g.hash == nil {
			continue
		}
		if g.at < g.fate.from || g.at > g.fate.to {
			h.Fatalf("%s: %s expires at %.0f, want %.0f to %.0f: %+v", p.key, name, g.at, g.fate.from, g.fate.to, g.hash)
		}
		for client, s := range g.states {
			if end := s.matters(p.key); end+1_000_000 > g.turn+g.life {
				h.Fatalf("%s: %s holds %+v of %s, which matters until %d, and lives for less than a second more: %+v", p.key, name, s, client, end, g.hash)
			}
		}
	}
}

// rewritten fails the test when a state was written, other than by a write to its
// hash, which the time forbids: from its turn on a generation is not written to.
func (h *history) rewritten(p *hashes, cur *generation, now stint.Instant) {
	if now < cur.turn {
		return
	}
	for client, s := range cur.states {
		if was, found := p.cur.states[client]; !found || was != s {
			h.Fatalf("%s: at %d it is due to turn, and is written: %+v was %+v", p.key, now, cur.hash, p.cur.hash)
		}
	}
	if !maps.Equal(cur.states, p.cur.states) && len(cur.states) >= len(p.cur.states) {
		h.Fatalf("%s: at %d it is due to turn, and is written: %+v was %+v", p.key, now, cur.hash, p.cur.hash)
	}
}
