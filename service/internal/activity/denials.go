package activity

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// How many of each are kept: a pair takes some 850 bytes, so both tables take 10 MB.
const (
	maxDenials = 10_000
	// maxShadowDenials bounds those of rules in shadow, which have places of their own and push out no
	// other.
	maxShadowDenials = 1_000
	maxChanges       = 1_000
	// maxDeniedPath is what is kept of a path, without its query.
	maxDeniedPath = 128
	// maxAttributes and maxAttribute are what is kept of attributes, in bytes: of all of a request, with two more for
	// each, and of each name or value, which else is left out.
	maxAttributes = 256
	maxAttribute  = 128
	// searchChunk is how many pairs are looked at before decisions may go on.
	searchChunk = 128
)

// A pair is what is counted of a rule and a client that it denied, since they have a place. It takes one line of a
// processor's cache, apart from the last request, which is only written.
type pair struct {
	key                uint64 // of the rule and the client
	seq                uint64 // of the last denial
	first, last, count int64
	// Numbers of other pairs: the neighbours in the order of last denials, of which number 0 is the beginning and the
	// end, and the next of those whose keys are alike.
	older, newer, chained int32
	// ends are where the texts of the request end.
	ends      [5]uint16
	algorithm stint.Algorithm
}

// A denial is the last request of a pair.
type denial struct {
	rule, class, reason, limitName string
	// limit is how many permits the limit has that denied; 0 if it was none.
	limit int64
	// The texts of strangers stand one after the other: client, method, path, request ID, attributes.
	text [maxClient + maxMethod + maxDeniedPath + maxRequestID + maxAttributes]byte
}

// appendAttributes appends the attributes of a request that have these names, as many as fit: of each the name and the
// value behind their lengths.
func appendAttributes(text []byte, names []string, of map[string]string) []byte {
	for _, name := range names {
		value := of[name]
		fits := len(text)+2+len(name)+len(value) <= maxAttributes
		if value == "" || max(len(name), len(value)) > maxAttribute || !fits {
			continue
		}
		text = append(append(text, byte(len(name))), name...)
		text = append(append(text, byte(len(value))), value...)
	}
	return text
}

// attributesIn reads what [appendAttributes] wrote.
func attributesIn(text []byte) (attributes map[string]string) {
	next := func() (part string) {
		part, text = textOf(text[1:1+text[0]]), text[1+text[0]:]
		return part
	}
	for len(text) > 0 {
		if attributes == nil {
			attributes = map[string]string{}
		}
		name := next()
		attributes[name] = next()
	}
	return attributes
}

// A denialTable has the pairs of rule and client that were denied last, each once, however often it was. The one whose
// last denial is the oldest makes room for another.
type denialTable struct {
	pairs   []pair
	denials []denial // of the pairs
	// chains are the first pairs of the keys with the same lowest bits; 0 is none.
	chains []int32
	used   int32
	// forgotten is when a pair that made room was denied last: what was denied later is known.
	forgotten int64
}

// init makes room for so many.
func (t *denialTable) init(most int) {
	t.pairs, t.denials = make([]pair, most+1), make([]denial, most+1)
	t.chains = make([]int32, 2<<bits.Len(uint(most)))
}

// chain is where the chain of a key begins.
func (t *denialTable) chain(key uint64) *int32 { return &t.chains[key&uint64(len(t.chains)-1)] }

// place finds the place of a pair, or makes one whose count is 0, and puts it before all others.
func (t *denialTable) place(key uint64) (at int32) {
	first := t.chain(key)
	at = *first
	for at != 0 && t.pairs[at].key != key {
		at = t.pairs[at].chained
	}
	if at != 0 {
		t.unlink(at)
	} else {
		at = t.room()
		t.pairs[at] = pair{key: key, chained: *first}
		*first = at
	}
	p, ends := &t.pairs[at], &t.pairs[0]
	p.newer, p.older = 0, ends.older
	t.pairs[ends.older].newer, ends.older = at, at
	return at
}

// unlink takes a pair out of the order.
func (t *denialTable) unlink(at int32) {
	p := &t.pairs[at]
	t.pairs[p.older].newer, t.pairs[p.newer].older = p.newer, p.older
}

// room is a place that is free, or that of the oldest.
func (t *denialTable) room() int32 {
	if int(t.used) < len(t.pairs)-1 {
		t.used++
		return t.used
	}
	at := t.pairs[0].newer
	p := &t.pairs[at]
	t.unlink(at)
	t.forgotten = max(t.forgotten, p.last)
	link := t.chain(p.key)
	for *link != at {
		link = &t.pairs[*link].chained
	}
	*link = p.chained
	return at
}

// denials are the pairs, and those of rules in shadow; their last denials are numbered together.
type denials struct {
	real, shadow denialTable
	made         uint64
}

// init makes the places.
func (d *denials) init() {
	d.real.init(maxDenials)
	d.shadow.init(maxShadowDenials)
}

// add counts a denial, and keeps the request in place of the one before, with its attributes as [appendAttributes]
// writes them.
func (d *denials) add(e *stint.Event, key uint64, client string, attributes []byte) {
	table := &d.real
	if e.Shadow {
		table = &d.shadow
	}
	at := table.place(key)
	p, s := &table.pairs[at], &table.denials[at]
	if p.count == 0 {
		p.first, p.ends[0] = int64(e.At), uint16(copy(s.text[:], client))
		s.rule = e.Rule
	}
	d.made++
	p.seq, p.last, p.count = d.made, max(p.last, int64(e.At)), p.count+1
	s.class, s.reason = e.Class, string(e.Reason)
	p.algorithm, s.limit, s.limitName = 0, 0, ""
	if e.Claim.Policy != nil {
		limit := e.Limit()
		p.algorithm, s.limit, s.limitName = limit.Algorithm, e.Decision.Limit, limit.Name
	}
	path := e.Path[:min(len(e.Path), maxDeniedPath)]
	if query := strings.IndexByte(path, '?'); query >= 0 {
		path = path[:query]
	}
	end := p.ends[0]
	end += uint16(copy(s.text[end:], e.Method[:min(len(e.Method), maxMethod)]))
	p.ends[1] = end
	end += uint16(copy(s.text[end:], path))
	p.ends[2] = end
	end += uint16(copy(s.text[end:], e.RequestID[:min(len(e.RequestID), maxRequestID)]))
	p.ends[3] = end
	p.ends[4] = end + uint16(copy(s.text[end:], attributes))
}

// A found is a pair with its last request.
type found struct {
	*pair
	*denial
}

// textAt is one of the texts of strangers: the client, the method, the path, the request ID or the attributes.
func (f found) textAt(i int) []byte {
	begin := uint16(0)
	if i > 0 {
		begin = f.ends[i-1]
	}
	return f.text[begin:f.ends[i]]
}

// show is the denial as the API has it; its texts are copies.
func (f found) show() Denial {
	shown := Denial{
		Seq: f.seq, First: stint.Instant(f.first), At: stint.Instant(f.last), Count: f.count,
		Rule: f.rule, Class: f.class, Reason: f.reason, Limit: f.limit, LimitName: f.limitName,
		Client: textOf(f.textAt(0)), Method: textOf(f.textAt(1)), Path: textOf(f.textAt(2)), RequestID: textOf(f.textAt(3)),
		Attributes: attributesIn(f.textAt(4)),
	}
	if f.algorithm != 0 {
		shown.Algorithm = f.algorithm.String()
	}
	return shown
}

// A denialQuery says which denials are wanted; the zero value of a field is any. It is what processes ask each other.
type denialQuery struct {
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Clients are keys of which one is the client's, each as [hashClient] has it, so that no API key goes from process to
	// process; nil is any.
	Clients []string `json:"clients,omitempty"`
	Salt    string   `json:"salt,omitempty"`
	// "true" for those of rules in shadow only, "false" for the others
	Shadow string `json:"shadow,omitempty"`
	// that the rule, the client, the reason, the path or the request ID contains
	Text string `json:"text,omitempty"`
	// the time at or after which the last denial has to be
	Since stint.Instant `json:"since,omitempty"`
	// Masked says that the text is not looked for in clients.
	Masked bool `json:"masked,omitempty"`

	before uint64 // the number below which the last denial has to be
	after  uint64 // and above
}

// of sets the keys of which one is the client's.
func (q *denialQuery) of(keys []string) {
	q.Salt, q.Clients = rand.Text(), []string{}
	for _, key := range keys {
		q.Clients = append(q.Clients, hashClient(q.Salt, []byte(key)))
	}
}

// hashClient is the SHA-256 of a salt and a key, as far as keys are kept, as base64.
func hashClient(salt string, key []byte) string {
	var text [64 + maxClient]byte
	sum := sha256.Sum256(append(append(text[:0], salt...), key[:min(len(key), maxClient)]...))
	return base64.RawStdEncoding.EncodeToString(sum[:])
}

// matches reports whether a denial is wanted.
func (q *denialQuery) matches(f found) bool {
	return (q.Rule == "" || f.rule == q.Rule) && (q.Reason == "" || f.reason == q.Reason) && f.last >= int64(q.Since) &&
		(q.Text == "" || q.contained(f)) &&
		(q.Clients == nil || slices.Contains(q.Clients, hashClient(q.Salt, f.textAt(0))))
}

// contained reports whether the denial contains the text.
func (q *denialQuery) contained(f found) bool {
	text := []byte(q.Text)
	return strings.Contains(f.rule, q.Text) || strings.Contains(f.reason, q.Text) ||
		!q.Masked && bytes.Contains(f.textAt(0), text) ||
		bytes.Contains(f.textAt(2), text) || bytes.Contains(f.textAt(3), text)
}

// all reports whether the query has no condition but a number.
func (q *denialQuery) all() bool {
	return q.Rule == "" && q.Reason == "" && q.Clients == nil && q.Text == "" && q.Since == 0
}

// A place of a pair is its number, with the key that it had.
type place struct {
	at  int32
	key uint64
}

// places are those of the pairs whose numbers are wanted, the newest first; up to most.
func (t *denialTable) places(q *denialQuery, most int) (list []place) {
	for at := t.pairs[0].older; at != 0 && len(list) < most; at = t.pairs[at].older {
		p := &t.pairs[at]
		if p.seq <= q.after {
			break
		}
		if q.before == 0 || p.seq < q.before {
			list = append(list, place{at, p.key})
		}
	}
	return list
}

// findIn finds up to n denials of a table, the newest first, and whether there are more. It lets decisions go on in
// between: a pair that is denied meanwhile is found as it is then, and one that has lost its place is not.
func (r *Recorder) findIn(t *denialTable, q *denialQuery, n int) (list []Denial, more bool) {
	most := len(t.pairs)
	if q.all() {
		most = n + 1
	}
	r.mu.Lock()
	places := t.places(q, most)
	r.mu.Unlock()
	for chunk := range slices.Chunk(places, searchChunk) {
		r.mu.Lock()
		for _, p := range chunk {
			f := found{&t.pairs[p.at], &t.denials[p.at]}
			if f.key == p.key && len(list) <= n && q.matches(f) {
				list = append(list, f.show())
			}
		}
		r.mu.Unlock()
	}
	if len(list) > n {
		return list[:n], true
	}
	return list, false
}

// tables are those of the pairs that a query looks at, each with whether it has those of rules in shadow.
func (d *denials) tables(q *denialQuery) iter.Seq2[*denialTable, bool] {
	return func(yield func(*denialTable, bool) bool) {
		if q.Shadow == "true" || yield(&d.real, false) && q.Shadow != "false" {
			yield(&d.shadow, true)
		}
	}
}

// denialsOf finds up to n denials of this process, and up to n of rules in shadow, the newest first, and whether there
// are more of either.
func (r *Recorder) denialsOf(q *denialQuery, n int) (found []Denial, more bool) {
	found = []Denial{}
	for table, shadow := range r.denials.tables(q) {
		some, further := r.findIn(table, q, n)
		for i := range some {
			some[i].Shadow, some[i].Process = shadow, r.config.Process.Name
		}
		found, more = append(found, some...), more || further
	}
	slices.SortStableFunc(found, func(a, b Denial) int { return cmp.Compare(b.Seq, a.Seq) })
	return found, more
}

// known says how many pairs a query looks at, and since when none is missing.
func (r *Recorder) known(q *denialQuery) (kept int64, from stint.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from = r.config.Process.StartedAt
	for table := range r.denials.tables(q) {
		kept, from = kept+int64(table.used), max(from, stint.Instant(table.forgotten))
	}
	return kept, from
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
