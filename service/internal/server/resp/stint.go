package resp

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
)

// check is STINT.CHECK policy key [permits]. The permits have no effect beyond what the target
// admits at most: more is a fault of the caller, as over HTTP.
func (c *conn) check(args [][]byte) {
	p := c.later()
	err := c.claim(p, args[1], args[2])
	if err == nil && len(args) == 4 {
		err = integer(&p.claim.Permits, "permits", args[3], 1, p.target.Most)
	}
	if err != nil {
		c.wrong(err)
		return
	}
	p.answer = answerChecked
}

// claim reads a policy's name and a key. The policy is looked up first, so that an unknown one is
// told whatever the key is.
func (c *conn) claim(p *pending, policy, key []byte) (err error) {
	if p.target, err = c.server.config.Target(text(policy)); err != nil {
		return err
	}
	p.claim = stint.Claim{Key: c.key(key), Policy: p.target.Policy, Permits: 1}
	return c.server.config.CheckKey(p.claim.Key)
}

// answerChecked answers with the decision.
func answerChecked(c *conn, p *pending, d *stint.Decision) {
	r := &c.batch.response
	p.target.Fill(r, &p.claim, d)
	c.decision(r, 0)
}

// decision begins an answer, which has so many more members, with what was decided, under the names
// that it has over HTTP. RESP2 has no maps and no booleans: there it is a flat list, and 1 or 0.
func (c *conn) decision(r *api.CheckResponse, more int) {
	if !r.Allowed {
		more += 2
	}
	c.mapping(10 + more)
	c.booleanOf("allowed", r.Allowed)
	c.integerOf("limit", r.Limit)
	c.integerOf("remaining", r.Remaining)
	c.integerOf("resetAfterMicros", r.ResetAfterMicros)
	c.integerOf("retryAfterMicros", r.RetryAfterMicros)
	c.integerOf("delayMicros", r.DelayMicros)
	c.integerOf("at", r.At)
	c.textOf("algorithm", r.Algorithm)
	c.booleanOf("degraded", r.Degraded)
	c.textOf("source", r.Source)
	if !r.Allowed {
		c.textOf("reason", r.Reason)
		c.textOf("limitName", r.LimitName)
	}
}

// evaluate is STINT.EVALUATE method path [name value ...]. It is decided by itself and not with the
// batch, since rules may hold it; the deadline for reading is lifted meanwhile.
func (c *conn) evaluate(args [][]byte) {
	if len(args)%2 == 0 {
		c.fail("ERR", fmt.Sprintf("%.64s has no value", args[len(args)-1]))
		return
	}
	if c.SetReadDeadline(time.Time{}) != nil { // the connection was cut, while one before this was held
		c.ending = true
		return
	}
	c.server.evaluating.Add(1)
	defer c.server.evaluating.Add(-1)
	answer, err := c.server.config.Evaluate(c.ctx, &Question{
		Address: c.address, Method: string(args[1]), Path: string(args[2]), Details: args[3:],
	})
	if err != nil {
		c.explain(err)
		return
	}
	more, shared := 4, answer.Class != "" || answer.Via != ""
	if shared {
		more += 2
	}
	if answer.Available != nil {
		more++
	}
	var marks []string
	for i := range answer.Exceeded {
		marks = append(marks, answer.Exceeded[i].Rule)
	}
	if marks != nil {
		more++
	}
	if answer.Vias != nil {
		more++
	}
	c.decision(&answer.CheckResponse, more)
	c.textOf("rule", answer.Rule)
	if shared {
		c.textOf("class", answer.Class)
		c.textOf("via", answer.Via)
	}
	if answer.Vias != nil {
		c.bulk("vias")
		c.mapping(len(answer.Vias))
		for _, rule := range slices.Sorted(maps.Keys(answer.Vias)) {
			c.textOf(rule, answer.Vias[rule])
		}
	}
	if answer.Available != nil {
		c.integerOf("available", *answer.Available)
	}
	c.listOf("matched", answer.Matched)
	c.listOf("shadowed", answer.Shadowed)
	c.listOf("missing", answer.Missing)
	if marks != nil {
		c.listOf("exceeded", slices.Compact(marks))
	}
}

// holds remembers of the holds that were reserved here what their ends have to say, in two
// generations, so that STINT.COMMIT needs the id alone. An end by another process, or after a
// restart, says it all. The two generations bound the memory to 2 x mostHolds,
// without a timer for each hold.
type holds struct {
	mu        sync.Mutex
	cur, prev map[string]held
	turned    time.Time
}

// held is what an end has to say of a hold. expiresAt lets the store charge a hold that it has
// lost.
type held struct {
	policy, key string
	expiresAt   stint.Instant
	ttl         time.Duration
}

const (
	mostHolds = 1 << 15 // of a generation
	// keptHolds is how long a generation lasts at least: as long as an end may come of a hold without renewals.
	keptHolds = bounds.MaxHoldTTL + 2*bounds.MaxHoldTTL // until it expires, and bounds.Remembered then
)

// put remembers a hold. A generation that is full, or old, becomes the previous one.
func (h *holds) put(id string, what held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.cur == nil || len(h.cur) >= mostHolds || now.Sub(h.turned) > keptHolds {
		h.cur, h.prev, h.turned = map[string]held{}, h.cur, now
	}
	h.cur[id] = what
}

// find is what was remembered of a hold in either generation.
func (h *holds) find(id string) (held, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what, known := h.cur[id]
	if !known {
		what, known = h.prev[id]
	}
	return what, known
}

// reserveHold is STINT.RESERVE id policy key n ttl. It is decided at once, as the hold's answer
// must not wait for commands behind it.
func (c *conn) reserveHold(args [][]byte) {
	ttl, err := notation.ParseDuration(text(args[5]))
	if err != nil || !bounds.IsHoldTTL(ttl) {
		c.wrong(stint.Invalid("ttl", fmt.Sprintf("%.32s", args[5]), bounds.HoldTTLs))
		return
	}
	p := c.later()
	if err = c.claim(p, args[2], args[3]); err == nil {
		err = integer(&p.claim.Permits, "n", args[4], 1, p.target.Most)
	}
	if err != nil {
		c.wrong(err)
		return
	}
	p.claim.Key, p.policy = string(args[3]), string(args[2])
	p.verb, p.hold = stint.VerbReserve, &stint.HoldOp{Hold: stint.Hold{ID: string(args[1]), TTL: ttl}}
	p.answer = answerReserved
	c.decide()
}

// answerReserved answers with the decision and the hold. A degraded one, which no store has, is remembered, too: its
// commit is charged by what it says.
func answerReserved(c *conn, p *pending, d *stint.Decision) {
	r, h := &c.batch.response, p.hold
	d.Full = h.Full
	p.target.Fill(r, &p.claim, d)
	if d.Allowed {
		c.server.holds.put(h.ID, held{p.policy, p.claim.Key, h.ExpiresAt, h.TTL})
	}
	c.decision(r, 4)
	c.textOf("id", h.ID)
	c.integerOf("expiresAt", int64(h.ExpiresAt))
	c.booleanOf("replayed", h.Replayed)
	c.booleanOf("lost", h.Lost)
}

// commitHold is STINT.COMMIT id n [policy key [expiresAt]]. The expiresAt that the reserve answered
// lets the store charge a hold that it has lost.
func (c *conn) commitHold(args [][]byte) {
	n := int64(0)
	if err := integer(&n, "n", args[2], 0, bounds.MaxPermits); err != nil {
		c.wrong(err)
		return
	}
	c.endHold(stint.VerbCommit, args[1], n, args[3:])
}

// cancelHold is STINT.CANCEL id [policy key].
func (c *conn) cancelHold(args [][]byte) { c.endHold(stint.VerbCancel, args[1], 0, args[2:]) }

// endHold ends a hold by what its command says, or else by what is remembered. What the command
// says counts before what is remembered, unless both agree: then the remembered expiresAt and TTL
// go with it.
func (c *conn) endHold(verb stint.Verb, id []byte, n int64, says [][]byte) {
	what, known := c.server.holds.find(text(id))
	switch {
	case len(says) == 1:
		c.wrong(stint.Invalid("key", "missing", "the policy and the key of the hold, or neither"))
		return
	case len(says) > 1:
		if policy, key := string(says[0]), string(says[1]); !known || policy != what.policy || key != what.key {
			what = held{policy: policy, key: key}
		}
		if len(says) == 3 {
			at := int64(0)
			if err := instant(&at, says[2]); err != nil {
				c.wrong(err)
				return
			}
			what.expiresAt = stint.Instant(at)
		}
	case !known:
		c.fail("UNKNOWN", "this process has not reserved "+fmt.Sprintf("%.128q", id)+
			": name the policy and the key behind the id and n")
		return
	}
	p := c.later()
	if err := c.claim(p, []byte(what.policy), []byte(what.key)); err != nil {
		c.wrong(err)
		return
	}
	p.verb, p.claim.Permits, p.answer = verb, n, answerEnded
	p.hold = &stint.HoldOp{Hold: stint.Hold{ID: string(id), TTL: what.ttl, ExpiresAt: what.expiresAt}}
	c.decide()
}

// instant reads microseconds since the Unix epoch. 16 digits reach to the year 2286.
func instant(to *int64, argument []byte) error {
	n, ok := int64(0), 0 < len(argument) && len(argument) <= 16
	for _, digit := range argument {
		ok = ok && '0' <= digit && digit <= '9'
		n = n*10 + int64(digit-'0')
	}
	if !ok {
		return stint.Invalid("expiresAt", fmt.Sprintf("%.32s", argument),
			"microseconds since the Unix epoch, as the reserve answered")
	}
	*to = n
	return nil
}

// answerEnded answers what was charged, and how the end came about.
func answerEnded(c *conn, p *pending, d *stint.Decision) {
	h := p.hold
	c.mapping(8)
	c.textOf("id", h.ID)
	c.integerOf("applied", d.Applied)
	c.booleanOf("late", h.Late)
	c.booleanOf("replayed", h.Replayed)
	c.booleanOf("reset", h.Reset)
	c.integerOf("limit", d.Limit)
	c.integerOf("remaining", d.Remaining)
	c.integerOf("at", int64(d.At))
}
