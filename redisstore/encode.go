package redisstore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/stint-go/stint"
)

func (b *batch) arg(args ...string) { b.args = append(b.args, args...) }

// compose puts together what is sent.
func (b *batch) encode() {
	b.clearEncoding()
	if b.isSingle() && !b.fullScript {
		b.encodeSingle()
		return
	}
	guess := stint.Instant(time.Now().UnixMicro())
	if pin := b.store.options.Now; pin != nil {
		guess = pin()
	}
	b.arg(b.store.now(), b.store.channel)
	b.encodeSettings()
	b.arg("")
	b.described = len(b.args)
	for i := range b.entries {
		// Permits on top are an operation of their own there.
		b.mixed = b.mixed || b.entries[i].bulk > 0 && b.sent(&b.entries[i])
	}
	for i := range b.states {
		b.describe(int32(i), guess)
	}
	b.args[b.described-1] = text(int64(len(b.args)-b.described) / 2)
	switch {
	case b.mixed:
		b.mix |= operations
		b.encodeOperations()
	case len(b.firstGroups) > 0:
		b.mix |= policies
		b.encodePolicies()
	}
	for _, g := range b.secondGroups {
		b.encodeRuns(g)
	}
}

// composeSettings writes what the processes have to know alike. A return of what was
// taken before its policy was reset gives nothing back: what it was taken of is gone.
func (b *batch) encodeSettings() {
	b.keys = append(b.keys, b.batcher.settingsKey())
	for i := range b.states {
		field := b.states[i].limit.epochField
		if n := len(b.epochFields); n > 0 && b.epochFields[n-1] == field {
			continue
		}
		if _, known := b.epochs[field]; !known {
			b.epochs[field] = b.batcher.epochs.get(field)
			b.epochFields = append(b.epochFields, field)
		}
	}
	b.arg(b.layout.text, text(int64(len(b.epochFields))))
	for _, field := range b.epochFields {
		b.arg(field)
	}
	for _, field := range b.epochFields {
		b.arg(text(b.epochs[field]))
	}
	for i := range b.entries {
		e := &b.entries[i]
		if e.verb < refund {
			continue
		}
		limits := b.limitsOf(e)
		for j := range limits {
			if int64(e.takenAt) < b.epochs[limits[j].limit.epochField] {
				limits[j].permits = 0
			}
		}
	}
}

// isTake reports whether all that is sent is one take of one limit, neither a log's nor a calendar's.
func (b *batch) isSingle() bool {
	if len(b.states) != 1 || b.mixed {
		return false
	}
	ref := &b.states[0]
	return ref.runsOnly && len(ref.runs) == 1 && ref.runs[0].k == 1
}

// composeTake is compose for one take, as take.lua reads it.
func (b *batch) encodeSingle() {
	ref := &b.states[0]
	l := ref.limit
	b.mix = single | mixOf(l.limit.Algorithm)
	epoch := b.batcher.epochs.get(l.epochField)
	b.epochs[l.epochField] = epoch
	b.keys = append(b.keys, b.batcher.settingsKey())
	g := b.group(ref)
	g.states = append(g.states, 0)
	b.addKeys(g)
	b.arg(b.store.now(), b.layout.text, l.epochField, text(epoch), l.parameters, l.format, l.singleArgsOf(ref.runs[0].n), ref.client)
}

// place describes a state's limit and puts it into its group.
func (b *batch) describe(at int32, guess stint.Instant) {
	ref := &b.states[at]
	ref.resetMarked = false
	l := ref.limit
	b.mix |= mixOf(l.limit.Algorithm)
	asked, again := b.asked[at]
	number, known := b.descriptions[l]
	if !known || again {
		number = (len(b.args)-b.described)/2 + 1
		if !again {
			asked = guess
			b.descriptions[l] = number
		}
		b.arg(l.parameters, l.describeAt(asked))
	}
	ref.number = int32(number)
	if l.log {
		b.logs = append(b.logs, at)
		return
	}
	g := b.group(ref)
	b.mixed = b.mixed || !ref.runsOnly && !g.limit.same(l)
	g.states = append(g.states, at)
}

// group is the group of a state.
func (b *batch) group(ref *stateRef) *group {
	key := groupKey{limit: ref.limit, partition: ref.partition}
	if !ref.runsOnly {
		key = groupKey{identity: ref.limit.identity, partition: ref.partition}
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

// name adds a group's keys.
func (b *batch) addKeys(g *group) {
	g.keys = b.layout.hash(g.limit, g.partition, b.epochs[g.limit.epochField])
	b.keys = append(b.keys, g.keys.cur, g.keys.prev)
}

// composeFirst writes the first part: states, then operations that name them.
func (b *batch) encodeOperations() {
	b.arg(text(int64(len(b.firstGroups))))
	for _, g := range b.firstGroups {
		b.addKeys(g)
		b.arg(g.limit.letter, text(int64(len(g.states))))
		only := true
		for _, at := range g.states {
			b.arg(b.states[at].client)
			only = only && b.states[at].number == b.states[g.states[0]].number
		}
		var numbers []byte
		for i, at := range g.states {
			if i == 0 || !only {
				numbers = binary.BigEndian.AppendUint16(numbers, uint16(b.states[at].number))
			}
			b.number(at)
		}
		b.arg(string(numbers))
	}
	b.arg(text(int64(len(b.logs))))
	for _, at := range b.logs {
		ref := &b.states[at]
		identity := inEpoch(ref.limit.identity.Value(), b.epochs[ref.limit.epochField])
		b.keys = append(b.keys, b.layout.key(int(ref.partition), identity, ref.client))
		b.arg(text(int64(ref.number)), ref.client)
		b.number(at)
	}
	b.encodeResetMarkers()
	operations := b.operations[:0]
	for i := range b.entries {
		e := &b.entries[i]
		if !b.sent(e) {
			continue
		}
		growth := byte(0)
		if e.growth {
			growth = 1
		}
		operations = append(operations, byte(e.verb), growth)
		operations = binary.BigEndian.AppendUint16(operations, uint16(e.limitCount))
		if e.verb >= refund {
			operations = binary.BigEndian.AppendUint64(operations, uint64(e.takenAt))
		}
		for _, p := range b.limitsOf(e) {
			operations = binary.BigEndian.AppendUint16(operations, uint16(b.states[p.state].number))
			operations = binary.BigEndian.AppendUint64(operations, uint64(p.permits))
		}
		if e.bulk > 0 {
			operations = append(operations, byte(bulkTake), 0)
			operations = binary.BigEndian.AppendUint16(operations, 1)
			operations = binary.BigEndian.AppendUint16(operations, uint16(b.states[b.opLimits[e.firstLimit].state].number))
			operations = binary.BigEndian.AppendUint64(operations, uint64(e.bulk))
		}
	}
	b.arg(string(operations))
	b.operations = operations
}

// composeMarkers names the keys by which returns of leases know that the state was reset
// since. They are needed by who resets or gives back.
func (b *batch) encodeResetMarkers() {
	at := len(b.args)
	b.arg("")
	for i := range b.entries {
		e := &b.entries[i]
		if e.verb < stint.Reset || e.verb == stint.Settle {
			continue
		}
		for _, p := range b.limitsOf(e) {
			ref := &b.states[p.state]
			if p.limit.limit.Lease == 0 || ref.resetMarked {
				continue
			}
			ref.resetMarked = true
			b.resetMarked = append(b.resetMarked, p.state)
			identity := inEpoch(p.limit.identity.Value(), b.epochs[p.limit.epochField])
			b.keys = append(b.keys, b.layout.key(int(ref.partition), "reset."+identity, ref.client))
			b.arg(text(int64(ref.number)))
		}
	}
	b.args[at] = text(int64(len(b.args) - at - 1))
}

// composePolicies writes the first part when it is not mixed.
func (b *batch) encodePolicies() {
	b.arg(text(int64(len(b.firstGroups))))
	for _, g := range b.firstGroups {
		b.addKeys(g)
		b.arg(text(int64(b.states[g.states[0]].number)), text(int64(len(g.states))))
		for _, at := range g.states {
			b.arg(b.states[at].client)
			b.number(at)
		}
	}
	operations := b.operations[:0]
	for i := range b.entries {
		e := &b.entries[i]
		if !b.sent(e) {
			continue
		}
		operations = append(operations, byte(e.limitCount))
		for _, p := range b.limitsOf(e) {
			operations = binary.BigEndian.AppendUint16(operations, uint16(b.states[p.state].number))
			// What is above any capacity does not fit, however far.
			operations = binary.BigEndian.AppendUint32(operations, uint32(min(p.permits, math.MaxUint32)))
		}
	}
	b.arg(string(operations))
	b.operations = operations
}

// enlist gives a state of the first part, whose description has been named, its
// number there.
func (b *batch) number(at int32) {
	b.numbered = append(b.numbered, at)
	b.states[at].number = int32(len(b.numbered))
}

// sent reports whether the script is to carry out the operation by itself: not when
// its state is sent with what is taken, nor when the states tell all that is asked.
func (b *batch) sent(e *entry) bool {
	if e.verb == stint.Peek {
		return e.logs
	}
	return !b.states[b.opLimits[e.firstLimit].state].runsOnly
}

// composeTakes writes a group of the second part.
func (b *batch) encodeRuns(g *group) {
	b.addKeys(g)
	plain := true
	for _, at := range g.states {
		takes := b.states[at].runs
		plain = plain && len(takes) == 1 && takes[0].n == 1 && takes[0].k == 1
	}
	mode := "0"
	if plain {
		mode = "1"
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
