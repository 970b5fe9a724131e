package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// holdEntry is the hold of an operation under way, as holds.lua reads it.
type holdEntry struct {
	told   stint.HoldOp // what the store says of it
	digest string       // of the id, the field of a live hold
	bucket string       // the field of its end, beside others'
	args   string

	applied int64
	err     error // why the operation has failed, though the script has not
}

const digestBytes = 8

// digestOf tells apart ids, or claims.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return string(sum[:digestBytes])
}

// newHoldEntry copies what the operation says of its hold.
func (b *batch) newHoldEntry(e *entry, op *stint.Op) *holdEntry {
	h := op.Hold
	digest := digestOf(h.ID)
	claims, costs := "", ""
	for _, p := range b.limitsOf(e) {
		ref := &b.states[p.state]
		claims += bigEndian(int64(len(ref.client))) + ref.client + ref.limit.identity.Value() + "\x00"
		costs += bigEndian(p.asked)
	}
	if op.Verb != stint.Commit {
		costs = ""
	}
	keep := "\x00"
	if h.Keep {
		keep = "\x01"
	}
	return &holdEntry{
		told: stint.HoldOp{Hold: h.Hold, ExpiresAt: h.ExpiresAt}, digest: digest, bucket: "\x00" + digest[:2],
		args: digest + digestOf(claims) + digestOf(claims + costs)[:4] +
			bigEndian(h.Lives().Microseconds(), h.Remembered().Microseconds(), int64(h.ExpiresAt)) + keep + h.ID,
	}
}

// idKeys are where a batcher's ids are remembered, by generation.
func (br *batcher) idKeys() (cur, prev string) {
	ids := strings.TrimSuffix(br.settingsKey(), "settings") + "holds:"
	return ids + generationNow, ids + generationBefore
}

// encodeHolds writes the ids that operations name.
func (b *batch) encodeHolds() {
	cur, prev := b.batcher.idKeys()
	b.keys = append(b.keys, cur, prev)
	at := len(b.args)
	b.arg("")
	count := int64(0)
	for i := range b.entries {
		if h := b.entries[i].hold; h != nil {
			b.arg(h.digest, h.bucket)
			count++
		}
	}
	for i := range b.entries {
		if h := b.entries[i].hold; h != nil {
			b.arg(h.args)
		}
	}
	b.args[at] = text(count)
	b.argNumber(b.store.options.MaxHolds)
}

// permits is how many permits the limit is asked for by a verb with n of them. Of a limit with a cost of its own, which a
// hold's end does not change, a Reserve has them below 0, and a Commit and a Cancel -1, as for every limit that keeps what
// was taken.
func (l *limit) permits(verb stint.Verb, n int64) int64 {
	cost, settles := l.limit.Cost, l.settles()
	switch {
	case verb == stint.Reserve && cost > 0:
		return -cost
	case verb == stint.Reserve:
		return n
	case verb == stint.Settle && settles:
		return algorithm.Amount(n)
	case verb == stint.Settle:
		return 0
	case verb < stint.Reserve || verb > stint.List:
		return l.limit.Takes(n)
	case !settles || l.limit.Algorithm == stint.AlgorithmLeakyBucket:
		return -1
	case verb == stint.Cancel:
		return 0
	}
	return n
}

// settles reports whether a Settle concerns the limit: not if it has a cost of its own, or if its permits are places.
func (l *limit) settles() bool {
	return l.limit.Cost == 0 && l.limit.Algorithm != stint.AlgorithmConcurrency
}

// Wake implements [stint.Waker]: it tells of holds that end, and of resets, here and in other processes, unless the
// store remembers no denials.
func (s *Store) Wake(key string, _ *stint.Policy, wake func()) (stop func()) {
	if s.denials == nil {
		return func() {}
	}
	return s.denials.waiters.Add([]string{key}, wake)
}

// list carries out a List.
func (s *Store) list(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	br := s.batcherOf(op)
	c := br.newSingleCall(ctx, op)
	if !br.do(c) {
		return stint.Decision{}, c.result[0].Err
	}
	live, d, err := c.live, c.result[0].Decision, c.result[0].Err
	br.recycle(c)
	slices.SortStableFunc(live, func(a, b stint.HoldState) int { return int(a.ExpiresAt - b.ExpiresAt) })
	if err == nil {
		*op.Live = live
	}
	return d, err
}

// readLive reads what holds a limit has.
func (d *decider) readLive(limit int) (live []stint.HoldState) {
	for range d.answers.number(4) {
		h := stint.HoldState{Limit: limit, ExpiresAt: stint.Instant(d.answers.number(8)), Permits: d.answers.number(8)}
		h.ID = d.answers.bytes(int(d.answers.number(2)))
		if d.answers.short {
			break
		}
		live = append(live, h)
	}
	return live
}

// The flags with which a script answers an operation on a hold, and what it answers.
const (
	flagReplayed = 1 << iota
	flagLost
	flagLate
	flagReset
	flagFull
)

const (
	holdAnswered = iota
	holdResolved
	holdUnknown
	holdOther
)

// readAnswer reads what the script has answered, which it does to all operations when permits are held.
func (d *decider) readAnswer(e *entry, limits []opLimit, outcomes []stint.Outcome) {
	switch {
	case e.hold != nil:
		if !d.readHold(e.hold) {
			return
		}
	case e.verb == stint.Reset:
		for i := range limits {
			limits[i].limit.reset(&state{}, &outcomes[i])
		}
		return
	case e.verb >= stint.List:
		for i := range limits {
			outcomes[i] = stint.Outcome{Allowed: true}
			if e.verb == stint.List {
				e.live = append(e.live, d.readLive(i)...)
			}
		}
		return
	default:
		d.answers.byte()
	}
	for i := range limits {
		outcomes[i] = d.answers.outcome(limits[i].limit.limit.Capacity)
	}
	if e.bulk > 0 {
		e.bulkAdmitted = d.answers.number(8)
		d.allowed += e.bulkAdmitted
	}
}

// readHold reads what the script says of a hold. It reports false if the operation has failed.
func (d *decider) readHold(h *holdEntry) (answered bool) {
	code, flags := d.answers.byte(), d.answers.byte()
	at := stint.Instant(d.answers.number(8))
	h.applied = d.answers.number(8)
	switch code {
	case holdAnswered:
		h.told.Replayed, h.told.Lost, h.told.Late = flags&flagReplayed != 0, flags&flagLost != 0, flags&flagLate != 0
		h.told.Reset, h.told.Full = flags&flagReset != 0, flags&flagFull != 0
		if at > 0 {
			h.told.ExpiresAt = at
		}
		return true
	case holdResolved:
		h.err = &stint.ResolvedError{ID: h.told.ID, End: stint.HoldEnd(flags), At: at}
	case holdUnknown:
		h.err = stint.ErrUnknownReservation
	case holdOther:
		h.err = stint.ErrOtherClaims
	default:
		h.err = unavailable(fmt.Errorf("%w: it answers %d about a hold", errReply, code))
	}
	return false
}

// tell says what became of the caller's hold.
func (h *holdEntry) tell(op *stint.HoldOp) {
	id := op.Hold
	*op = h.told
	op.Hold = id
}

// appendHold writes an operation's hold into the list of operations: its number.
func appendHold(list []byte, number *int) []byte {
	*number++
	return binary.BigEndian.AppendUint16(list, uint16(*number))
}
