package wire

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/redisstore/internal/layout"
)

// holdEntry is the hold of an operation under way. It is kept over a resend of the batch.
type holdEntry struct {
	told   stint.HoldOp // what the store says of it
	bucket string       // the field of the id, beside others'
	digest string       // of the id
	claims digest       // of the claims, in the order of the operation
	answer digest       // of the claims, sorted, and what is asked for

	applied int64
	// left says that it is to be asked again, of the script for all operations.
	left bool
	// err is why the operation has failed, though the script has not.
	err error
}

// A digest is how much of a SHA-256 tells ids, or claims, of one client apart: 2^32 of them meet
// by chance once. Among a client's holds, MaxHolds at most, that is as good as never; what is
// compared decides nothing between clients.
type digest [8]byte

// digestOf tells apart ids, or claims.
func digestOf(text []byte) (d digest) {
	sum := sha256.Sum256(text)
	copy(d[:], sum[:])
	return d
}

// newHoldEntry copies what the operation says of its hold. The digest of the claims tells whether a
// second Reserve or an end is about the same claims in the same order; that of claims and costs whether an end
// is the same again. The order of limits may be another one than when it was reserved, but that of groups and their
// ways: so ends are remembered by limits that are sorted.
func (b *Batch) newHoldEntry(e *Entry, op *stint.Op) *holdEntry {
	h := op.Hold()
	b.text = append(b.text[:0], h.ID...)
	id := digestOf(b.text)
	named := string(append(append(b.text[:0], 0), id[:]...))
	entry := &holdEntry{told: stint.HoldOp{Hold: h.Hold, Via: h.Via}, bucket: named[:3], digest: named[1:]}
	b.claims = b.claimsOf(e, b.claims[:0])
	entry.claims, entry.answer = b.digestsOf(b.claims, op.Verb)
	if !slices.IsSortedFunc(b.claims, claimText.compare) {
		slices.SortStableFunc(b.claims, claimText.compare)
		_, entry.answer = b.digestsOf(b.claims, op.Verb)
	}
	return entry
}

// holdArgs is what the script for all operations reads of a hold, as GIVEN in hold_ids.lua has it. The id itself stands
// last but for the suffix, so that it needs no length, and for a tag of each limit, by which the script finds it among
// those of a hold that was reserved in another order.
func (b *Batch) holdArgs(e *Entry) string {
	h := e.hold
	claims := b.claimsOf(e, nil)
	tags := ""
	if len(claims) > 1 || e.Verb == stint.VerbDrop {
		tags = b.tagsOf(claims)
	}
	given := &h.told.Hold
	keep := "\x00"
	if given.OnExpiry == stint.ChargeOnExpiry {
		keep = "\x01"
	}
	remembered := bounds.Remembered(given.TTL)
	if e.Verb != stint.VerbReserve {
		remembered = decide.SurelyRemembered(given)
	}
	return h.digest + string(h.claims[:]) + string(h.answer[:answerBytes]) +
		layout.BigEndian(bounds.HoldTTL(given.TTL).Microseconds(), remembered.Microseconds(), int64(given.ExpiresAt)) +
		keep + string([]byte{h.told.Via}) + given.ID + b.suffix(e) + tags
}

// answerBytes is how much tells whether an end is the same again, and tagBytes how much tells the limits of one hold
// apart.
const answerBytes, tagBytes = 4, 4

// claimText is a limit that a hold is of, as text.
type claimText struct {
	way  uint16 // see stint.WayNumber
	text string
	cost int64 // that is asked for
}

// compare orders limits within a way, and ways.
func (c claimText) compare(d claimText) int {
	return cmp.Or(cmp.Compare(c.way, d.way), cmp.Compare(c.text, d.text))
}

// claimsOf appends the limits of an operation on a hold, in its order.
func (b *Batch) claimsOf(e *Entry, claims []claimText) []claimText {
	for i, p := range b.Limits(e) {
		ref := &b.states[p.state]
		b.text = binary.BigEndian.AppendUint64(b.text[:0], uint64(len(ref.client)))
		b.text = append(append(append(b.text, ref.client...), ref.limit.Identity.Value()...), 0)
		claim := claimText{text: string(b.text), cost: p.Asked}
		if e.Ways != nil {
			claim.way = e.Ways[i]
		}
		claims = append(claims, claim)
	}
	return claims
}

// digestsOf are the digests of limits, with their ways if there are any, and of those and what is asked of them.
func (b *Batch) digestsOf(claims []claimText, verb stint.Verb) (of, answer digest) {
	b.text = b.text[:0]
	for _, c := range claims {
		b.text = append(b.text, c.text...)
	}
	hasWays := slices.ContainsFunc(claims, func(c claimText) bool { return c.way > 0 })
	for i, c := range claims {
		way := "must"
		switch {
		case !hasWays:
			way = ""
		case c.way == 0:
		case i > 0 && claims[i-1].way == c.way:
			way = "with"
		case c.way%decide.PerGroup == 0:
			way = "either"
		case c.way%decide.PerGroup == bounds.MaxWays:
			way = "maybe" // of a group that may charge nothing
		default:
			way = "else"
		}
		b.text = append(b.text, way...)
	}
	of = digestOf(b.text)
	if verb != stint.VerbCommit {
		return of, of
	}
	for _, c := range claims {
		b.text = binary.BigEndian.AppendUint64(b.text, uint64(c.cost))
	}
	return of, digestOf(b.text)
}

// tagsOf tells apart the limits of an operation on a hold, and with a byte more their ways; one alone needs no tag.
func (b *Batch) tagsOf(claims []claimText) (tags string) {
	for _, c := range claims {
		tag := digestOf([]byte(c.text))
		tags += string(tag[:tagBytes]) + string([]byte{byte(c.way % 128)})
	}
	return tags
}

// suffix is what stands behind an id in its record, which hold_ids.lua describes, but for the tags.
func (b *Batch) suffix(e *Entry) string {
	epoch := int64(0)
	for _, p := range b.Limits(e) {
		epoch = max(epoch, b.epochs[p.Limit.EpochField])
	}
	return string(appendNumber([]byte{0}, epoch, 7))
}

// isUsual reports whether first_part_holds.lua can carry out the first part: all operations there
// reserve, commit or cancel, and of no log, calendar or leaky bucket. What it leaves is sent once
// more to the script for all. The usual script reads less and is shorter; what it can't decide it
// says, and changes nothing.
func (b *Batch) isUsual() bool {
	if b.usualLeft {
		return false
	}
	for i := range b.entries {
		e := &b.entries[i]
		if e.hold != nil && (e.Verb == stint.VerbDrop || bool(e.hold.told.OnExpiry) || e.Ways != nil) {
			return false
		}
		for _, p := range b.Limits(e) {
			kind := p.Limit.Spec.Algorithm
			switch {
			case e.hold == nil && (!b.states[p.state].runsOnly || kind == stint.AlgorithmConcurrency),
				e.hold != nil && (p.Limit.HasLog() || p.Limit.Calendar() || kind == stint.AlgorithmLeakyBucket):
				return false
			}
		}
	}
	return true
}

// encodeHolds writes the ids that operations name. The ids' buckets come first, all of them, so
// that the script can fetch them in one command; for the usual script each once.
func (b *Batch) encodeHolds() {
	cur, prev := b.target.idKeys()
	b.keys = append(b.keys, cur, prev)
	b.text = b.text[:0]
	for i := range b.entries {
		h := b.entries[i].hold
		if h == nil || !b.sent(&b.entries[i]) || b.usual && b.bucketNumbers[h.bucket] > 0 {
			continue
		}
		b.text = append(b.text, h.bucket...)
		b.bucketNumbers[h.bucket] = len(b.text) / len(h.bucket)
	}
	b.arg(string(b.text))
	b.argNumber(b.target.Config.MaxHolds)
	for i := range b.entries {
		if e := &b.entries[i]; e.hold != nil && b.sent(e) && !b.usual {
			b.arg(b.holdArgs(e))
		}
	}
}

// appendUsual appends what first_part_holds.lua has to know of a hold: the digest, and in two numbers of 4 bytes and
// one of 5 of a Reserve the TTL and how long its end is remembered, of a Commit and a Cancel the digest of the claims
// and what is asked for.
func (h *holdEntry) appendUsual(list []byte, verb stint.Verb) []byte {
	list = append(list, h.digest...)
	if verb == stint.VerbReserve {
		list = binary.BigEndian.AppendUint64(list, uint64(bounds.HoldTTL(h.told.Hold.TTL).Microseconds()))
		return appendNumber(list, bounds.Remembered(h.told.Hold.TTL).Microseconds(), 5)
	}
	return append(append(append(list, h.claims[:]...), 0), h.answer[:answerBytes]...)
}

// appendRecord appends a Reserve's record behind its expiry as hold_ids.lua has it, behind its length. It is written
// by Go, since putting bytes together is dear in Lua.
func (b *Batch) appendRecord(list []byte, e *Entry) []byte {
	h, limits, begin := e.hold, b.Limits(e), len(list)
	list = appendNumber(append(list, 0, 0), bounds.Remembered(h.told.Hold.TTL).Microseconds(), 5)
	list = append(append(list, h.claims[:]...), 0)
	list = binary.BigEndian.AppendUint16(list, uint16(len(limits)))
	for _, p := range limits {
		list = appendNumber(list, max(p.permits, -p.permits), 6)
		list = appendNumber(list, 0, 6)
	}
	list = append(append(list, h.told.ID...), b.suffix(e)...)
	if len(limits) > 1 {
		list = append(list, b.tagsOf(b.claimsOf(e, nil))...)
	}
	binary.BigEndian.PutUint16(list[begin:], uint16(len(list)-begin-2))
	return list
}

// appendNumber appends a number of so many bytes.
func appendNumber(text []byte, n int64, bytes int) []byte {
	for shift := 8 * (bytes - 1); shift >= 0; shift -= 8 {
		text = append(text, byte(n>>shift))
	}
	return text
}

// readLive reads what holds limit i of n has, and appends them to a list.
func (d *decider) readLive(live []stint.Hold, i, n int) []stint.Hold {
	for range d.answers.number(4) {
		expires, permits := stint.Instant(d.answers.number(8)), d.answers.number(8)
		id := d.answers.bytes(int(d.answers.number(2)))
		if d.answers.short {
			break
		}
		live = decide.AppendHold(live, id, i, n, permits, expires)
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

	viaShift = iota // the way that an end was on stands above them
)

const (
	holdAnswered = iota
	holdResolved
	holdUnknown
	holdOther
	holdLeft // by first_part_holds.lua
)

// readAnswer reads what the script has answered, which it does to all operations when permits are held.
func (d *decider) readAnswer(e *Entry, limits []OpLimit, outcomes []stint.Outcome) {
	switch {
	case e.hold != nil:
		if !d.readHold(e) {
			return
		}
		if d.batch.usual {
			for i := range limits {
				d.readHeld(limits[i].Limit, int64(limits[i].Keep), e.Growth, &outcomes[i])
			}
			return
		}
	case e.Verb == stint.VerbReset:
		for i := range limits {
			outcomes[i] = limits[i].Limit.Untouched(int64(limits[i].Keep))
		}
		return
	case e.Verb >= stint.VerbList:
		for i := range limits {
			outcomes[i] = stint.Outcome{Allowed: true}
			if e.Verb == stint.VerbList {
				e.Live = d.readLive(e.Live, i, len(limits))
			}
		}
		return
	default:
		d.answers.byte()
	}
	var bound []bool
	if e.Ways != nil && e.hold != nil {
		bound = make([]bool, len(limits))
	}
	for i := range limits {
		var on bool
		if outcomes[i], on = d.answers.outcome(&limits[i].Limit.Spec); bound != nil {
			bound[i] = on
		}
	}
	if bound != nil {
		e.bound = slices.Clone(e.Ways)
		e.via = max(e.via, decide.Bind(e.bound, func(i int) bool { return bound[i] }))
	}
	if e.bulk > 0 {
		e.BulkAdmitted = d.answers.number(8)
		d.allowed += e.BulkAdmitted
	}
}

// readHold reads what the script says of a hold. It reports false if the operation has failed.
func (d *decider) readHold(e *Entry) (answered bool) {
	h := e.hold
	code, flags, at := d.answers.byte(), byte(0), d.now
	switch {
	case !d.batch.usual:
		flags = d.answers.byte()
		at, h.applied = stint.Instant(d.answers.number(8)), d.answers.number(8)
	case code == holdAnswered:
		h.applied = -d.answers.number(6)
		if e.Verb == stint.VerbReserve {
			at += stint.Instant(bounds.HoldTTL(h.told.Hold.TTL).Microseconds())
		}
	}
	h.left = code == holdLeft
	switch code {
	case holdAnswered:
		h.told.Replayed, h.told.Lost, h.told.Late = flags&flagReplayed != 0, flags&flagLost != 0, flags&flagLate != 0
		h.told.Reset, h.told.Full = flags&flagReset != 0, flags&flagFull != 0
		e.via = flags >> viaShift
		if at > 0 {
			h.told.ExpiresAt = at
		}
		return true
	case holdResolved:
		h.err = &stint.ResolvedError{ID: h.told.ID, End: decide.End(flags).String(), At: at}
	case holdUnknown:
		h.err = stint.ErrUnknownReservation
	case holdOther:
		h.err = stint.ErrOtherClaims
	case holdLeft:
	default:
		h.err = unavailable(fmt.Errorf("%w: it answers %d about a hold", ErrReply, code))
	}
	return false
}

// readHeld reads what first_part_holds.lua says of a state, and works out what is left of the limit.
func (d *decider) readHeld(l *layout.Limit, keep int64, growth bool, out *stint.Outcome) {
	var numbers [3]int64
	for i := range numbers {
		numbers[i] = d.answers.number(7)
	}
	held := d.answers.number(6)
	var first, last stint.Instant
	if growth || l.HasPlaces() {
		first, last = stint.Instant(d.answers.number(7)), stint.Instant(d.answers.number(7))
	}
	*out = stint.Outcome{Allowed: true, Limit: l.Spec.Capacity}
	if l.Spec.Algorithm == stint.AlgorithmConcurrency {
		out.Remaining = max(0, l.Spec.Capacity-keep-held)
		if last > 0 {
			out.ResetAfter = layout.Micros(int64(last - d.now))
		}
		if first > 0 && out.Remaining < l.Spec.Capacity-keep {
			out.GrowsAfter = layout.Micros(int64(first - d.now))
		}
		return
	}
	var s algorithm.State
	l.Load(&s, d.now, numbers, l.Parameters, true)
	s.Held = held
	l.Apply(algorithm.Settle, &s, d.now, 0, keep, out)
	if out.GrowsAfter = l.GrowsAfter(&s, d.now, keep, out.Remaining); out.GrowsAfter > 0 && first > 0 {
		out.GrowsAfter = min(out.GrowsAfter, layout.Micros(int64(first-d.now)))
	}
}

// tell says what became of the caller's hold.
func (h *holdEntry) tell(op *stint.HoldOp) {
	asked := op.Hold
	*op = h.told
	op.Hold = asked
	op.ExpiresAt = h.told.ExpiresAt
}
