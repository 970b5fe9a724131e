package redisstore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/stint-go/stint"
)

func (f *flight) say(args ...string) { f.args = append(f.args, args...) }

// compose puts together what is sent.
func (f *flight) compose() {
	f.forget()
	if f.isTake() && !f.whole {
		f.composeTake()
		return
	}
	guess := stint.Instant(time.Now().UnixMicro())
	if pin := f.store.options.Now; pin != nil {
		guess = pin()
	}
	f.say(f.store.now(), f.store.channel)
	f.composeSettings()
	f.say("")
	f.described = len(f.args)
	for i := range f.entries {
		// Permits on top are an operation of their own there.
		f.mixed = f.mixed || f.entries[i].extra > 0 && f.sent(&f.entries[i])
	}
	for i := range f.states {
		f.place(int32(i), guess)
	}
	f.args[f.described-1] = text(int64(len(f.args)-f.described) / 2)
	switch {
	case f.mixed:
		f.mix |= operations
		f.composeFirst()
	case len(f.first) > 0:
		f.mix |= policies
		f.composePolicies()
	}
	for _, g := range f.second {
		f.composeTakes(g)
	}
}

// composeSettings writes what the processes have to know alike. A return of what was
// taken before its policy was reset gives nothing back: what it was taken of is gone.
func (f *flight) composeSettings() {
	f.keys = append(f.keys, f.lane.settingsKey())
	for i := range f.states {
		name := f.states[i].limit.policy
		if n := len(f.policies); n > 0 && f.policies[n-1] == name {
			continue
		}
		if _, known := f.epochs[name]; !known {
			f.epochs[name] = f.lane.epochs.get(name)
			f.policies = append(f.policies, name)
		}
	}
	f.say(f.layout.text, text(int64(len(f.policies))))
	for _, name := range f.policies {
		f.say(epochField(name))
	}
	for _, name := range f.policies {
		f.say(text(f.epochs[name]))
	}
	for i := range f.entries {
		e := &f.entries[i]
		if e.verb < release {
			continue
		}
		parts := f.partsOf(e)
		for j := range parts {
			if int64(e.taken) < f.epochs[parts[j].limit.policy] {
				parts[j].permits = 0
			}
		}
	}
}

// isTake reports whether all that is sent is one take of one limit, neither a log's nor a calendar's.
func (f *flight) isTake() bool {
	if len(f.states) != 1 || f.mixed {
		return false
	}
	t := &f.states[0]
	return t.alone && len(t.takes) == 1 && t.takes[0].k == 1
}

// composeTake is compose for one take, as take.lua reads it.
func (f *flight) composeTake() {
	t := &f.states[0]
	l := t.limit
	f.mix = single | mixOf(l.limit.Algorithm)
	epoch := f.lane.epochs.get(l.policy)
	f.epochs[l.policy] = epoch
	f.keys = append(f.keys, f.lane.settingsKey())
	g := f.group(t)
	g.states = append(g.states, 0)
	f.name(g)
	f.say(f.store.now(), f.layout.text, epochField(l.policy), text(epoch), l.parameters, l.format, l.taking(t.takes[0].n), t.client)
}

// place describes a state's limit and puts it into its group.
func (f *flight) place(at int32, guess stint.Instant) {
	t := &f.states[at]
	t.marked = false
	l := t.limit
	f.mix |= mixOf(l.limit.Algorithm)
	asked, again := f.asked[at]
	number, known := f.descriptions[l]
	if !known || again {
		number = (len(f.args)-f.described)/2 + 1
		if !again {
			asked = guess
			f.descriptions[l] = number
		}
		f.say(l.parameters, l.describeAt(asked))
	}
	t.number = int32(number)
	if l.log {
		f.logs = append(f.logs, at)
		return
	}
	g := f.group(t)
	f.mixed = f.mixed || !t.alone && !g.limit.same(l)
	g.states = append(g.states, at)
}

// group is the group of a state.
func (f *flight) group(t *touched) *group {
	key := groupKey{limit: t.limit, partition: t.partition}
	if !t.alone {
		key = groupKey{identity: t.limit.identity, partition: t.partition}
	}
	g, known := f.groups[key]
	if known {
		return g
	}
	if last := len(f.free) - 1; last >= 0 {
		g, f.free = f.free[last], f.free[:last]
	} else {
		g = &group{}
	}
	g.limit, g.partition = t.limit, t.partition
	f.groups[key] = g
	if t.alone {
		f.second = append(f.second, g)
	} else {
		f.first = append(f.first, g)
	}
	return g
}

// name adds a group's keys.
func (f *flight) name(g *group) {
	g.names = f.layout.hash(g.limit, g.partition, f.epochs[g.limit.policy])
	f.keys = append(f.keys, g.names.now, g.names.before)
}

// composeFirst writes the first part: states, then operations that name them.
func (f *flight) composeFirst() {
	f.say(text(int64(len(f.first))))
	for _, g := range f.first {
		f.name(g)
		f.say(g.limit.letter, text(int64(len(g.states))))
		only := true
		for _, at := range g.states {
			f.say(f.states[at].client)
			only = only && f.states[at].number == f.states[g.states[0]].number
		}
		var numbers []byte
		for i, at := range g.states {
			if i == 0 || !only {
				numbers = binary.BigEndian.AppendUint16(numbers, uint16(f.states[at].number))
			}
			f.enlist(at)
		}
		f.say(string(numbers))
	}
	f.say(text(int64(len(f.logs))))
	for _, at := range f.logs {
		t := &f.states[at]
		identity := inEpoch(t.limit.identity.Value(), f.epochs[t.limit.policy])
		f.keys = append(f.keys, f.layout.key(int(t.partition), identity, t.client))
		f.say(text(int64(t.number)), t.client)
		f.enlist(at)
	}
	f.composeMarkers()
	operations := f.operations[:0]
	for i := range f.entries {
		e := &f.entries[i]
		if !f.sent(e) {
			continue
		}
		growth := byte(0)
		if e.growth {
			growth = 1
		}
		operations = append(operations, byte(e.verb), growth)
		operations = binary.BigEndian.AppendUint16(operations, uint16(e.count))
		if e.verb >= release {
			operations = binary.BigEndian.AppendUint64(operations, uint64(e.taken))
		}
		for _, p := range f.partsOf(e) {
			operations = binary.BigEndian.AppendUint16(operations, uint16(f.states[p.state].number))
			operations = binary.BigEndian.AppendUint64(operations, uint64(p.permits))
		}
		if e.extra > 0 {
			operations = append(operations, byte(onTop), 0)
			operations = binary.BigEndian.AppendUint16(operations, 1)
			operations = binary.BigEndian.AppendUint16(operations, uint16(f.states[f.parts[e.from].state].number))
			operations = binary.BigEndian.AppendUint64(operations, uint64(e.extra))
		}
	}
	f.say(string(operations))
	f.operations = operations
}

// composeMarkers names the keys by which returns of leases know that the state was reset
// since. They are needed by who resets or gives back.
func (f *flight) composeMarkers() {
	at := len(f.args)
	f.say("")
	for i := range f.entries {
		e := &f.entries[i]
		if e.verb < stint.Reset || e.verb == stint.Settle {
			continue
		}
		for _, p := range f.partsOf(e) {
			t := &f.states[p.state]
			if p.limit.limit.Lease == 0 || t.marked {
				continue
			}
			t.marked = true
			f.marked = append(f.marked, p.state)
			identity := inEpoch(p.limit.identity.Value(), f.epochs[p.limit.policy])
			f.keys = append(f.keys, f.layout.key(int(t.partition), "reset."+identity, t.client))
			f.say(text(int64(t.number)))
		}
	}
	f.args[at] = text(int64(len(f.args) - at - 1))
}

// composePolicies writes the first part when it is not mixed.
func (f *flight) composePolicies() {
	f.say(text(int64(len(f.first))))
	for _, g := range f.first {
		f.name(g)
		f.say(text(int64(f.states[g.states[0]].number)), text(int64(len(g.states))))
		for _, at := range g.states {
			f.say(f.states[at].client)
			f.enlist(at)
		}
	}
	operations := f.operations[:0]
	for i := range f.entries {
		e := &f.entries[i]
		if !f.sent(e) {
			continue
		}
		operations = append(operations, byte(e.count))
		for _, p := range f.partsOf(e) {
			operations = binary.BigEndian.AppendUint16(operations, uint16(f.states[p.state].number))
			// What is above any capacity does not fit, however far.
			operations = binary.BigEndian.AppendUint32(operations, uint32(min(p.permits, math.MaxUint32)))
		}
	}
	f.say(string(operations))
	f.operations = operations
}

// enlist gives a state of the first part, whose description has been named, its
// number there.
func (f *flight) enlist(at int32) {
	f.numbered = append(f.numbered, at)
	f.states[at].number = int32(len(f.numbered))
}

// sent reports whether the script is to carry out the operation by itself: not when
// its state is sent with what is taken, nor when the states tell all that is asked.
func (f *flight) sent(e *entry) bool {
	if e.verb == stint.Peek {
		return e.logs
	}
	return !f.states[f.parts[e.from].state].alone
}

// composeTakes writes a group of the second part.
func (f *flight) composeTakes(g *group) {
	f.name(g)
	plain := true
	for _, at := range g.states {
		takes := f.states[at].takes
		plain = plain && len(takes) == 1 && takes[0].n == 1 && takes[0].k == 1
	}
	mode := "0"
	if plain {
		mode = "1"
	}
	f.say(text(int64(f.states[g.states[0]].number)), text(int64(len(g.states))), mode)
	for _, at := range g.states {
		f.say(f.states[at].client)
	}
	if plain {
		return
	}
	for _, at := range g.states {
		f.say(takesText(f.states[at].takes))
	}
}
