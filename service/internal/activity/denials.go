package activity

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// How many of each are kept: a denial takes some 400 bytes of a place of its own, so the rings take
// 4 MB.
const (
	maxDenials = 10_000
	// maxShadowDenials bounds those of rules in shadow, which have places of their own and push out no
	// other.
	maxShadowDenials = 1_000
	maxChanges       = 1_000
)

// A denial is one of the last, in a place of its own.
type denial struct {
	// number is its place in the order of all denials, which clients of the API name.
	number       uint64
	at           int64
	rule, reason string
	class        string
	// The texts stand one after the other: text[:client] is the client, text[client:extent] the
	// request ID.
	client, extent uint16
	text           [maxClient + maxRequestID]byte
}

// A denialRing has the last ones, in their order.
type denialRing struct {
	slots []denial
	made  uint64
}

// denials are the last ones, and those of rules in shadow, numbered together.
type denials struct {
	real, shadow denialRing
	made         uint64
}

// init makes the places.
func (d *denials) init() {
	d.real.slots, d.shadow.slots = make([]denial, maxDenials), make([]denial, maxShadowDenials)
}

// add overwrites the oldest.
func (d *denials) add(e *stint.Event, client string) {
	ring := &d.real
	if e.Shadow {
		ring = &d.shadow
	}
	s := &ring.slots[ring.made%uint64(len(ring.slots))]
	ring.made++
	d.made++
	s.number, s.at, s.rule, s.class, s.reason = d.made, int64(e.At), e.Rule, e.Class, string(e.Reason)
	s.client = uint16(copy(s.text[:], client))
	s.extent = s.client + uint16(copy(s.text[s.client:], e.RequestID[:min(len(e.RequestID), maxRequestID)]))
}

// show is the denial as the API has it; its texts are copies.
func (s *denial) show() Denial {
	return Denial{
		Seq: s.number, At: stint.Instant(s.at), Rule: s.rule, Class: s.class, Reason: s.reason,
		Client: textOf(s.text[:s.client]), RequestID: textOf(s.text[s.client:s.extent]),
	}
}

// A denialQuery says which denials are wanted; the zero value of a field is any.
type denialQuery struct {
	rule, reason string
	// keys of which one is the client's; nil is any
	clients []string
	// "true" for those of rules in shadow only, "false" for the others
	shadow string
	// that the rule, the client or the request ID contains
	text   string
	before uint64 // the number below which they have to be
	after  uint64 // and above
	masked bool   // the text is not looked for in clients
}

// matches reports whether a denial is wanted.
func (q *denialQuery) matches(d *Denial) bool {
	return (q.shadow == "" || (q.shadow == "true") == d.Shadow) && (q.rule == "" || d.Rule == q.rule) &&
		(q.clients == nil || slices.Contains(q.clients, d.Client)) &&
		(q.reason == "" || d.Reason == q.reason) &&
		(q.text == "" || strings.Contains(d.Rule, q.text) || strings.Contains(d.RequestID, q.text) ||
			!q.masked && strings.Contains(d.Client, q.text))
}

// find returns up to n denials and up to n of rules in shadow, the newest first, and whether there
// are more of either.
func (d *denials) find(q denialQuery, n int) (found []Denial, more bool) {
	found, more = d.real.find(nil, q, n, false)
	found, moreInShadow := d.shadow.find(found, q, n, true)
	slices.SortFunc(found, func(a, b Denial) int { return cmp.Compare(b.Seq, a.Seq) })
	return found, more || moreInShadow
}

// find appends up to n.
func (r *denialRing) find(found []Denial, q denialQuery, n int, shadow bool) (_ []Denial, more bool) {
	size, most := uint64(len(r.slots)), len(found)+n
	for back := range min(r.made, size) {
		s := &r.slots[(r.made-1-back)%size]
		if s.number <= q.after {
			break
		}
		if q.before > 0 && s.number >= q.before {
			continue
		}
		shown := s.show()
		if shown.Shadow = shadow; !q.matches(&shown) {
			continue
		}
		if len(found) == most {
			return found, true
		}
		found = append(found, shown)
	}
	return found, false
}

// changes are the last ones, and what they led to.
type changes struct {
	slots       []Change
	made        uint64
	unreachable map[int]bool // shards of the store
	// since is when the store as a whole last became unreachable, or could be reached again.
	since    stint.Instant
	revision string // of the rules
}

// add keeps a change and what it led to. Shards that are already known to be unreachable change
// nothing.
func (c *changes) add(change Change) {
	c.made++
	change.Seq = c.made
	if len(c.slots) == maxChanges {
		c.slots = slices.Delete(c.slots, 0, 1)
	}
	c.slots = append(c.slots, change)
	if change.Kind == "rules" {
		c.revision = change.State
		return
	}
	if c.unreachable == nil {
		c.unreachable = map[int]bool{}
	}
	was := len(c.unreachable) > 0
	delete(c.unreachable, change.Shard)
	if change.State != "up" {
		c.unreachable[change.Shard] = true
	}
	if was != (len(c.unreachable) > 0) {
		c.since = change.At
	}
}

// list is the changes after a number, the newest first.
func (c *changes) list(after uint64) []Change {
	list := []Change{}
	for _, change := range slices.Backward(c.slots) {
		if change.Seq > after {
			list = append(list, change)
		}
	}
	return list
}

// store is the state of the store by its last changes.
func (c *changes) store() Store {
	s := Store{State: "up", Since: c.since, UnreachableShards: len(c.unreachable)}
	if s.UnreachableShards > 0 {
		s.State = "unreachable"
	}
	return s
}
