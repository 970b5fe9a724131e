package wire

import (
	"encoding/binary"
	"math"
	"strconv"
	"unique"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore/internal/layout"
)

// encoding is a batch as it is sent, which protocol.go describes, and what reading the reply needs
// of it. Its slices are used again by the next batch; what they point to is let go by
// clearEncoding.
type encoding struct {
	mix Mix // of the script
	// usual says that its first part is first_part_holds.lua's.
	usual       bool
	keys, args  []string
	operations  []byte           // of the first part
	text        []byte           // to make digests of
	claims      []claimText      // of a hold
	epochFields []string         // of the policies whose states are used
	epochs      map[string]int64 // by those
	// described is where the descriptions of limits begin among the arguments, two for each.
	described    int
	descriptions map[*layout.Limit]int // their numbers, from 1
	firstGroups  []*group
	secondGroups []*group
	groups       map[groupKey]*group
	freeGroups   []*group
	logs         []int32 // states of the first part
	resetMarked  []int32 // states with a key that has the time of their last reset
	numbered     []int32 // states of the first part in the script's order
	// bucketNumbers are the numbers of the ids' buckets, from 1, for the usual operations on holds.
	bucketNumbers map[string]int
}

// group is a hash with the states in it. In the first part it is a hash with all of its states; in
// the second one limit's takes in it.
type group struct {
	limit     *layout.Limit
	keys      *layout.GenerationKeys
	partition int32
	states    []int32

	current, previous generation // as they were found
}

// groupKey tells groups apart: of the first part by the identity, since two groups of one hash
// would each turn its generation; of the second by the limit. Two limits with the same identity
// count in the same state, by different parameters.
type groupKey struct {
	identity  unique.Handle[string]
	limit     *layout.Limit
	partition int32
}

// clearEncoding makes the encoding ready to be used again.
func (c *encoding) clearEncoding() {
	clear(c.keys)
	clear(c.args)
	clear(c.descriptions)
	clear(c.epochFields)
	clear(c.epochs)
	clear(c.bucketNumbers)
	for _, g := range c.groups {
		*g = group{states: g.states[:0]}
		c.freeGroups = append(c.freeGroups, g)
	}
	clear(c.groups)
	c.mix, c.keys, c.args, c.epochFields = 0, c.keys[:0], c.args[:0], c.epochFields[:0]
	c.firstGroups, c.secondGroups = c.firstGroups[:0], c.secondGroups[:0]
	c.logs, c.resetMarked, c.numbered = c.logs[:0], c.resetMarked[:0], c.numbered[:0]
}

// arg adds arguments. Arguments and keys are strings that the connection copies when it writes
// them.
func (c *encoding) arg(args ...string) { c.args = append(c.args, args...) }

// argNumber adds a number in text.
func (c *encoding) argNumber(n int) { c.args = append(c.args, text(int64(n))) }

// encode puts together what is sent. What a batch needs decides the script: one take; takes of one
// limit each, which go to the second part; or anything, in the first part. The cheapest that suits
// is taken.
func (b *Batch) encode() {
	b.clearEncoding()
	b.usual = b.holds && b.isUsual()
	if b.holds && !b.usual {
		b.mixed = true
		b.mix |= firstAny | withHolds
		for i := range b.states {
			b.states[i].runsOnly = false
		}
	}
	if b.isSingle() && !b.fullScript {
		b.encodeSingle()
		return
	}
	guess := b.target.Config.guess()
	b.arg(b.target.Config.NowText(), b.target.Config.Channel)
	b.encodeSettings()
	b.arg("")
	b.described = len(b.args)
	for i := range b.entries {
		// A bulk is an operation of its own in the first part.
		b.mixed = b.mixed || b.entries[i].bulk > 0 && b.sent(&b.entries[i])
	}
	for i := range b.states {
		b.describe(int32(i), guess)
	}
	b.args[b.described-1] = text(int64(len(b.args)-b.described) / 2)
	switch {
	case b.usual:
		b.mix |= firstHolds
		b.encodeFirst()
	case b.mixed:
		b.mix |= firstAny
		b.encodeFirst()
	case len(b.firstGroups) > 0:
		b.mix |= firstTakes
		b.encodeFirst()
	}
	for _, g := range b.secondGroups {
		b.encodeRuns(g)
	}
}

// encodeSettings writes what the processes have to know alike. A return of what was taken before
// its policy was reset returns nothing: the state that it was taken of is gone. A process that does
// not know of a reset yet is told by the script, which then has carried out nothing, and the batch
// is sent once more.
func (b *Batch) encodeSettings() {
	b.keys = append(b.keys, b.target.SettingsKey())
	for i := range b.states {
		field := b.states[i].limit.EpochField
		if n := len(b.epochFields); n > 0 && b.epochFields[n-1] == field {
			continue
		}
		if _, known := b.epochs[field]; !known {
			b.epochs[field] = b.target.Epochs.Get(field)
			b.epochFields = append(b.epochFields, field)
		}
	}
	b.arg(b.layout.Text)
	b.argNumber(len(b.epochFields))
	b.arg(b.epochFields...)
	for _, field := range b.epochFields {
		b.arg(text(b.epochs[field]))
	}
	for i := range b.entries {
		e := &b.entries[i]
		if e.Verb < Refund {
			continue
		}
		limits := b.Limits(e)
		for j := range limits {
			if int64(e.takenAt) < b.epochs[limits[j].Limit.EpochField] {
				limits[j].permits = 0
			}
		}
	}
}

// isSingle reports whether all that is sent is one take of one limit, neither a log's nor a calendar's.
func (b *Batch) isSingle() bool {
	if len(b.states) != 1 || b.mixed {
		return false
	}
	ref := &b.states[0]
	return ref.runsOnly && len(ref.runs) == 1 && ref.runs[0].k == 1
}

// encodeSingle is encode for one take, as single_take.lua reads it. It is the commonest batch of an
// idle service, and its script is the shortest.
func (b *Batch) encodeSingle() {
	ref := &b.states[0]
	l := ref.limit
	b.mix = single | mixOf(l.Spec.Algorithm)
	epoch := b.target.Epochs.Get(l.EpochField)
	b.epochs[l.EpochField] = epoch
	b.keys = append(b.keys, b.target.SettingsKey())
	g := b.group(ref)
	g.states = append(g.states, 0)
	b.addKeys(g)
	b.arg(b.target.Config.NowText(), b.layout.Text, l.EpochField, text(epoch), l.Parameters, l.Format,
		l.SingleArgs(ref.runs[0].n, ref.runs[0].keep), ref.client)
}

// describe describes a state's limit and puts the state into its group. Of a calendar it sends the
// windows around a guess of the time, or around the time that the script asked for. A limit is
// described once, however many states have it, and named by its number. One whose windows were
// asked for again has a description of its own.
func (b *Batch) describe(at int32, guess stint.Instant) {
	ref := &b.states[at]
	ref.resetMarked = false
	l := ref.limit
	b.mix |= mixOf(l.Spec.Algorithm)
	asked, again := b.asked[at]
	number, known := b.descriptions[l]
	if !known || again {
		number = (len(b.args)-b.described)/2 + 1
		if !again {
			asked = guess
			b.descriptions[l] = number
		}
		b.arg(l.Parameters, l.DescribeAt(asked))
	}
	ref.number = int32(number)
	if l.HasLog() {
		b.logs = append(b.logs, at)
		return
	}
	g := b.group(ref)
	b.mixed = b.mixed || !ref.runsOnly && !g.limit.Same(l)
	g.states = append(g.states, at)
}

// group is the group of a state. Groups are reused, so that their lists of states need not grow
// anew.
func (b *Batch) group(ref *stateRef) *group {
	key := groupKey{limit: ref.limit, partition: ref.partition}
	if !ref.runsOnly {
		key = groupKey{identity: ref.limit.Identity, partition: ref.partition}
	}
	g, known := b.groups[key]
	if known {
		return g
	}
	if last := len(b.freeGroups) - 1; last >= 0 {
		g, b.freeGroups = b.freeGroups[last], b.freeGroups[:last]
	} else {
		g = &group{}
	}
	g.limit, g.partition = ref.limit, ref.partition
	b.groups[key] = g
	if ref.runsOnly {
		b.secondGroups = append(b.secondGroups, g)
	} else {
		b.firstGroups = append(b.firstGroups, g)
	}
	return g
}

// addKeys adds a group's keys.
func (b *Batch) addKeys(g *group) {
	var dead *layout.GenerationKeys
	if g.keys, dead = b.layout.Hash(g.limit, g.partition, b.epochs[g.limit.EpochField]); dead != nil {
		b.target.Config.Unlink(dead)
	}
	b.keys = append(b.keys, g.keys.Cur, g.keys.Prev)
}

// key is a key of a state's own.
func (b *Batch) key(ref *stateRef, kind string) string {
	identity := layout.InEpoch(ref.limit.Identity.Value(), b.epochs[ref.limit.EpochField])
	return b.layout.Key(int(ref.partition), kind+identity, ref.client)
}

// markerKey is where it stands when a client's state was reset. It lives as long as something could
// be given back that was taken before.
func (b *Batch) markerKey(ref *stateRef) string {
	identity := layout.InEpoch(ref.limit.Identity.Value(), b.epochs[ref.limit.EpochField])
	return b.layout.Key(int(ref.partition), identity, "reset."+ref.client)
}

// encodeFirst writes the first part: states, then operations that name them. Numbers of
// descriptions are 16 bits each: one for the group if all its states have the same limit, else one
// for each state.
func (b *Batch) encodeFirst() {
	b.argNumber(len(b.firstGroups))
	for _, g := range b.firstGroups {
		b.addKeys(g)
		b.argNumber(len(g.states))
		same := true
		for _, at := range g.states {
			b.arg(b.states[at].client)
			same = same && b.states[at].number == b.states[g.states[0]].number
		}
		var numbers []byte
		for i, at := range g.states {
			if i == 0 || !same {
				numbers = binary.BigEndian.AppendUint16(numbers, uint16(b.states[at].number))
			}
			b.number(at)
		}
		b.arg(string(numbers))
	}
	if b.mixed && !b.usual {
		b.argNumber(len(b.logs))
		for _, at := range b.logs {
			ref := &b.states[at]
			b.keys = append(b.keys, b.key(ref, ""))
			if b.holds {
				b.keys = append(b.keys, b.key(ref, "held."))
			}
			b.arg(text(int64(ref.number)), ref.client)
			b.number(at)
		}
		b.encodeResetMarkers()
	}
	if b.holds {
		b.encodeHolds()
	}
	list, holds := b.operations[:0], 0
	for i := range b.entries {
		if e := &b.entries[i]; b.sent(e) {
			list = b.appendOperation(list, e, &holds)
		}
	}
	b.arg(string(list))
	b.operations = list
}

// number gives a state of the first part, whose description has been named, its number there.
func (b *Batch) number(at int32) {
	b.numbered = append(b.numbered, at)
	b.states[at].number = int32(len(b.numbered))
}

// appendOperation writes an operation of the first part. The form is that of protocol.go, in
// binary, big-endian: verb, flags, count of limits, what the verb needs, then state, permits and
// keep of each limit.
func (b *Batch) appendOperation(list []byte, e *Entry, holds *int) []byte {
	growth := byte(0)
	if e.Growth {
		growth = 1
	}
	if e.Ways != nil {
		growth += 2
	}
	list = append(list, byte(e.Verb), growth)
	list = binary.BigEndian.AppendUint16(list, uint16(e.limitCount))
	switch {
	case e.Verb == Refund, e.Verb == ReturnLease:
		list = binary.BigEndian.AppendUint64(list, uint64(e.takenAt))
	case e.hold != nil:
		*holds++
		number := *holds
		if b.usual {
			number = b.bucketNumbers[e.hold.bucket]
		}
		list = binary.BigEndian.AppendUint16(list, uint16(number))
		if b.usual {
			list = e.hold.appendUsual(list, e.Verb)
		}
	}
	for _, p := range b.Limits(e) {
		list = binary.BigEndian.AppendUint16(list, uint16(b.states[p.state].number))
		permits := p.permits
		if !b.mixed {
			permits = min(permits, math.MaxUint32) // more than any capacity does not fit, however far above
		}
		list = binary.BigEndian.AppendUint64(list, uint64(permits))
		list = binary.BigEndian.AppendUint32(list, uint32(p.Keep))
	}
	if b.usual && e.Verb == stint.VerbReserve {
		list = b.appendRecord(list, e)
	}
	for _, way := range e.Ways {
		list = binary.BigEndian.AppendUint16(list, way)
	}
	if e.bulk > 0 {
		list = append(list, byte(bulkTake), 0, 0, 1)
		list = binary.BigEndian.AppendUint16(list, uint16(b.states[b.opLimits[e.firstLimit].state].number))
		list = binary.BigEndian.AppendUint64(list, uint64(e.bulk))
		list = binary.BigEndian.AppendUint32(list, 0)
	}
	return list
}

// encodeResetMarkers names the keys by which what gives back permits knows that the state was reset
// since, or that its counts were taken over by a window of another length. Resets and the script write them
// (generations.lua), whether or not the limit has leases: that of another process, or before a change, may have.
func (b *Batch) encodeResetMarkers() {
	at := len(b.args)
	b.arg("")
	for i := range b.entries {
		e := &b.entries[i]
		if e.Verb != stint.VerbReset && e.Verb < Refund {
			continue
		}
		for _, p := range b.Limits(e) {
			ref := &b.states[p.state]
			if ref.resetMarked || !p.Limit.GivesBack() {
				continue
			}
			ref.resetMarked = true
			b.resetMarked = append(b.resetMarked, p.state)
			b.keys = append(b.keys, b.markerKey(ref))
			b.arg(text(int64(ref.number)))
		}
	}
	b.args[at] = text(int64(len(b.args) - at - 1))
}

// sent reports whether the script is to carry out the operation by itself: not when its state is
// sent with what is taken, nor when the states tell all that is asked. What need not be sent is
// decided when the reply is decoded, from the states that it brings.
func (b *Batch) sent(e *Entry) bool {
	switch {
	case e.answered:
		return false
	case e.Verb == stint.VerbPeek:
		return e.logs || b.holds && !b.usual
	}
	return !b.states[b.opLimits[e.firstLimit].state].runsOnly
}

// encodeRuns writes a group of the second part. Plain groups, of one permit for each client at the
// same keep, need no text for each run; nearly all traffic is of that kind.
func (b *Batch) encodeRuns(g *group) {
	b.addKeys(g)
	plain, mode, keep := true, "", int64(0)
	for i, at := range g.states {
		runs := b.states[at].runs
		if i == 0 && len(runs) > 0 {
			keep = runs[0].keep
		}
		plain = plain && len(runs) == 1 && runs[0] == run{1, keep, 1}
	}
	if plain {
		mode = text(keep)
	}
	b.arg(text(int64(b.states[g.states[0]].number)), text(int64(len(g.states))), mode)
	for _, at := range g.states {
		b.arg(b.states[at].client)
	}
	if plain {
		return
	}
	for _, at := range g.states {
		b.arg(runsText(b.states[at].runs))
	}
}

// small are numbers in text. Nearly all numbers that are sent are small, and need no allocation
// then.
var small = func() (texts [1024]string) {
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return texts
}()

// text is a number in decimal. Most are small, and those are made once.
func text(n int64) string {
	if n >= 0 && n < int64(len(small)) {
		return small[n]
	}
	return strconv.FormatInt(n, 10)
}

// runsText is how runs are sent: n, or nxk for k times n, with kN behind if N permits are kept, joined by commas.
func runsText(runs []run) string {
	if len(runs) == 1 && runs[0].k == 1 && runs[0].keep == 0 {
		return text(runs[0].n)
	}
	var buffer [64]byte
	line := buffer[:0]
	for i, r := range runs {
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendInt(line, r.n, 10)
		if r.k > 1 {
			line = append(line, 'x')
			line = strconv.AppendInt(line, r.k, 10)
		}
		if r.keep > 0 {
			line = append(line, 'k')
			line = strconv.AppendInt(line, r.keep, 10)
		}
	}
	return string(line)
}
