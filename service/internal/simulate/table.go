package simulate

import (
	"encoding/binary"
	"math/bits"
	"sort"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// pages are values of clients by number. They grow by pages, so that nothing is copied and little
// is kept in reserve. The index of a client in all pages of a table is its number, so that limits
// keep their states beside the clients without pointers.
type pages[T any] struct {
	list []*[page]T
	used int32
}

// A page is small, since each of thousands of rules may have one client.
const page = 1 << 6

func (p *pages[T]) at(client int32) *T {
	n := uint32(client) // which is divided by a shift
	return &p.list[n/page][n%page]
}

func (p *pages[T]) grow() {
	if p.used%page == 0 {
		p.list = append(p.list, new([page]T))
	}
	p.used++
}

// keep makes the values of some clients, in order, those of 0 and on, and forgets the others.
func (p *pages[T]) keep(clients []int32) {
	for i, client := range clients {
		*p.at(int32(i)) = *p.at(client)
	}
	p.used = int32(len(clients))
	pages := (len(clients) + page - 1) / page
	clear(p.list[pages:])
	p.list = p.list[:pages]
	if rest := p.used % page; rest > 0 {
		clear(p.list[p.used/page][rest:])
	}
}

// A key is a client's, ready to be looked up: up to 15 bytes as they are, with their number as the
// last; of longer ones where they are among a table's texts, with part of the hash and 255 as the
// last. So most keys are compared as two numbers, and take no memory of their own.
type key struct {
	first, last uint64
	hash        uint64
	text        string
}

const (
	shortKey = 15
	longMark = 0xff << 56
)

// keyOf prepares a key. The hash is the same in every run, so that the sample is as well. FNV-1a
// goes over each byte of long keys; short ones are mixed as the two numbers that they are.
func keyOf(text string) key {
	if len(text) > shortKey {
		h := uint64(14695981039346656037) // FNV-1a
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
		h = mixed(h)
		return key{last: longMark | h>>8, hash: h, text: text}
	}
	var bytes [16]byte
	copy(bytes[:], text)
	k := key{
		first: binary.LittleEndian.Uint64(bytes[:8]),
		last:  binary.LittleEndian.Uint64(bytes[8:]) | uint64(len(text))<<56,
		text:  text,
	}
	k.hash = mixed(mixed(k.first) ^ k.last)
	return k
}

// mixed has every bit depend on every other. It multiplies to 128 bits and folds both halves, as
// wyhash does.
func mixed(h uint64) uint64 {
	high, low := bits.Mul64(h^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return high ^ low
}

// texts are long keys in large pieces, so that the garbage collector has little to look at. A text of it is where it
// begins and how long it is.
type texts struct{ pieces [][]byte }

const (
	piece     = 1 << 20
	lengthBit = 9 // a key has up to 256 bytes
)

// put appends a key to the last piece, or begins another one, and returns where it is.
func (k *texts) put(key string) uint64 {
	last := len(k.pieces) - 1
	if last < 0 || len(k.pieces[last])+len(key) > piece {
		k.pieces = append(k.pieces, nil)
		last++
	}
	at := uint64(last)*piece + uint64(len(k.pieces[last]))
	k.pieces[last] = append(k.pieces[last], key...)
	return at<<lengthBit | uint64(len(key))
}

// get is the key at a place that put returned.
func (k *texts) get(key uint64) []byte {
	at, n := key>>lengthBit, key&(1<<lengthBit-1)
	return k.pieces[at/piece][at%piece : at%piece+n]
}

// A client is what a table knows of one, beside its states: 40 bytes and its key. With its place in
// the index, 11 bytes at most, and 8 in each limit's window it takes less than 64 beside its states
// and its key. Millions of clients are simulated at once, so that each byte counts.
type client struct {
	// of its key; first of a long one is where its text is
	first, last      uint64
	admitted, denied int64
	// when it was denied first since its last admission; 0: it was not
	deniedSince stint.Instant
	// the longest from a denial to the next admission or its last request, in microseconds
	longestDenied int64
	// the last one in which it asked, of all seconds since 1970, by wrapping
	lastSecond int32
	inSecond   int32 // what it asked for in that second
}

// asked reports whether the client was admitted, or a limit of this table denied it.
func (c *client) asked() bool { return c.admitted+c.denied > 0 }

// A table has the clients of one policy. The index is a hash table of linear probing, at most three
// quarters full. When the clients or the memory are at their bound, every other client, by its
// hash, leaves the sample, again and again: what is simulated is then exact for 1 client of
// 2^level.
type table struct {
	policy  *stint.Policy
	limits  []limit
	leaky   bool // whether one gives out turns
	clients pages[client]
	texts   texts
	// a client's number plus 1, behind 8 bits of its hash, near where its hash points to; 0: none
	index      []uint32
	maxClients int   // clients, at least 1
	level      uint  // 1 client of 2^level is in the sample
	skipped    int64 // claims of clients outside the sample
	memory     *memory
	busiest    int64 // the most that a client asked for within a second
}

// newTable makes a table.
func newTable(policy *stint.Policy, maxClients int, memory *memory) *table {
	t := &table{
		policy:     policy,
		limits:     make([]limit, policy.Len()),
		index:      make([]uint32, 16),
		maxClients: min(maxClients, MaxClients),
		memory:     memory,
	}
	memory.take(int64(unsafe.Sizeof(*t)) + int64(len(t.limits))*limitBytes)
	for i := range t.limits {
		l := policy.Limit(i)
		t.leaky = t.leaky || l.Algorithm == stint.AlgorithmLeakyBucket
		t.limits[i] = limit{
			Limit:   l,
			machine: algorithm.NewMachine(l),
			window:  window{span: stint.Instant(spanOf(l).Microseconds()), memory: memory},
		}
		t.limits[i].state = statesFor(&t.limits[i].machine)
	}
	return t
}

// MaxClients is how many clients of a rule can be simulated.
const MaxClients = 1<<numberBits - 2

const numberBits = 24

// maxLevel is the smallest sample: clients whose hash is 0 or 1.
const maxLevel = 63

// entry is that of a client in the index.
func entry(h uint64, n int32) uint32 { return uint32(h>>32)<<numberBits | uint32(n+1) }

func numberOf(entry uint32) int32 { return int32(entry&(1<<numberBits-1)) - 1 }

// sampled reports whether the client of a hash is in the sample, by the bits that the index uses
// last.
func (t *table) sampled(h uint64) bool { return h>>(64-t.level) == 0 }

// find is the number of a client, made if it is new; -1 if it is outside the sample. Everything
// that a new client takes is counted before it is taken. The index has room for it after at most
// one reindex.
func (t *table) find(k *key) int32 {
	if !t.sampled(k.hash) {
		t.skipped++
		return -1
	}
	i, known := t.look(k)
	if known {
		return numberOf(t.index[i])
	}
	switch n := t.clients.used; {
	case int(n) >= t.maxClients && t.level == maxLevel: // only made-up keys get here
		t.skipped++
		return -1
	case int(n) >= t.maxClients:
		t.halveSample()
		return t.find(k)
	case n%page == 0 && !t.memory.fits(t.pageBytes()):
		if n < leastSample {
			t.memory.exceeded = true
			return -1
		}
		t.halveSample()
		return t.find(k)
	case int(n)*4 >= 3*(len(t.index)-1):
		t.reindex(2 * len(t.index))
		return t.find(k)
	default:
		t.index[i] = entry(k.hash, n)
		if n%page == 0 {
			t.memory.take(t.pageBytes())
		}
		t.clients.grow()
		t.name(t.clients.at(n), k)
		for j := range t.limits {
			t.limits[j].state.grow()
			t.limits[j].window.clients.grow()
		}
		return n
	}
}

// pageBytes are what a page more of clients takes, their part of the index too.
func (t *table) pageBytes() int64 {
	each := int64(unsafe.Sizeof(client{})) + 11
	for i := range t.limits {
		each += t.limits[i].state.size() + int64(unsafe.Sizeof(windowCounts{}))
	}
	return page * each
}

func (t *table) name(c *client, k *key) {
	if c.first, c.last = k.first, k.last; c.last >= longMark {
		t.memory.take(2 * int64(len(k.text))) // with the reserve of a piece that grows
		c.first = t.texts.put(k.text)
	}
}

// look is where in the index a client is, or would be.
func (t *table) look(k *key) (i uint64, known bool) {
	mask := uint64(len(t.index) - 1)
	for i = k.hash & mask; t.index[i] != 0; i = (i + 1) & mask {
		at := t.index[i]
		if at>>numberBits == uint32(k.hash>>32)&0xff && t.is(t.clients.at(numberOf(at)), k) {
			return i, true
		}
	}
	return i, false
}

// is reports whether a client has a key.
func (t *table) is(c *client, k *key) bool {
	return c.last == k.last && (c.first == k.first || k.last >= longMark && string(t.texts.get(c.first)) == k.text)
}

// guess is the client whose place in the index a hash points to, -1 if there is none: mostly it is
// the one that find will find. The processor loads the index for many guesses at once, and for find
// one after another.
func (t *table) guess(hash uint64) int32 { return numberOf(t.index[hash&uint64(len(t.index)-1)]) }

// prefetch loads what a guessed client has. It changes nothing, and what it returns says nothing.
// It exists for its side effect on the processor's caches: reads of many clients are under way at
// once.
func (t *table) prefetch(n int32) (used int64) {
	if n < 0 {
		return 0
	}
	used = t.clients.at(n).admitted
	for j := range t.limits {
		used += int64(t.limits[j].window.clients.at(n).now)
		t.limits[j].state.prefetch(n)
	}
	return used
}

// reindex makes the index anew.
func (t *table) reindex(size int) {
	t.index = make([]uint32, size)
	mask := uint64(size - 1)
	for n := range t.clients.used {
		h := keyOf(t.key(n)).hash
		i := h & mask
		for t.index[i] != 0 {
			i = (i + 1) & mask
		}
		t.index[i] = entry(h, n)
	}
}

// halveSample takes every other client out of the sample. Numbers of clients change: those that
// stay move up, in order, and so do their states and counts.
func (t *table) halveSample() {
	t.level++
	var kept []int32
	for n := range t.clients.used {
		if t.sampled(keyOf(t.key(n)).hash) {
			kept = append(kept, n)
		}
	}
	pages := len(t.clients.list)
	t.clients.keep(kept)
	t.memory.take(int64(len(t.clients.list)-pages) * t.pageBytes())
	old := t.texts
	for _, piece := range old.pieces {
		t.memory.take(-2 * int64(len(piece)))
	}
	t.texts = texts{}
	for n := range t.clients.used {
		if c := t.clients.at(n); c.last >= longMark {
			text := old.get(c.first)
			t.memory.take(2 * int64(len(text)))
			c.first = t.texts.put(string(text))
		}
	}
	for j := range t.limits {
		t.limits[j].state.keep(kept)
		t.limits[j].window.keep(kept)
	}
	t.reindex(len(t.index))
}

// appendKey appends that of a client.
func (t *table) appendKey(text []byte, n int32) []byte {
	c := t.clients.at(n)
	if c.last >= longMark {
		return append(text, t.texts.get(c.first)...)
	}
	var bytes [16]byte
	binary.LittleEndian.PutUint64(bytes[:8], c.first)
	binary.LittleEndian.PutUint64(bytes[8:], c.last)
	return append(text, bytes[:c.last>>56]...)
}

func (t *table) key(n int32) string { return string(t.appendKey(nil, n)) }

// ask counts what a client asks for at an instant. Busiest is counted by seconds of the log's
// clock, as what a log with whole seconds can't tell apart.
func (t *table) ask(n int32, at stint.Instant, permits int64) {
	c := t.clients.at(n)
	if c.deniedSince != 0 {
		c.longestDenied = max(c.longestDenied, int64(at-c.deniedSince))
	}
	if second := int32(at / 1_000_000); c.lastSecond != second {
		c.lastSecond, c.inSecond = second, 0
	}
	c.inSecond = int32(min(int64(c.inSecond)+permits, 1<<31-1))
	t.busiest = max(t.busiest, int64(c.inSecond))
}

// record counts that a client was admitted, or that a limit of this table denied it. The time shut
// out runs from the first denial since the last admission to the next admission.
func (t *table) record(n int32, at stint.Instant, admitted bool, permits int64) {
	c := t.clients.at(n)
	if !admitted {
		c.denied++
		if c.deniedSince == 0 {
			c.deniedSince = at
		}
		return
	}
	c.admitted++
	if c.deniedSince != 0 {
		c.longestDenied, c.deniedSince = max(c.longestDenied, int64(at-c.deniedSince)), 0
	}
	t.admit(n, at, permits)
}

// admit counts what a client was admitted by each limit, which takes its own cost, if it has one.
func (t *table) admit(n int32, at stint.Instant, permits int64) {
	for j := range t.limits {
		t.limits[j].window.add(n, at, t.limits[j].machine.Takes(permits))
	}
}

// A window counts what was admitted within every span (t - window, t], of all clients and of each,
// exactly as long as it has room for what is in it. Without a span it counts what is held. The peak
// is of all instants, and not only at multiples of the span.
type window struct {
	span  stint.Instant
	queue []admission // a ring: what is in the window, the oldest at head
	head  int
	used  int
	now   int64
	peak  int64
	at    stint.Instant // when all clients together had their peak
	// whether there was no room, and peaks are at least as high as they say
	overflowed bool
	memory     *memory
	clients    pages[windowCounts]
}

type admission struct {
	at      stint.Instant
	client  int32
	permits uint32
}

// windowCounts are what a client was admitted in a window: of every algorithm twice its limit at
// most, which fits. Of one client, now never exceeds peak, and peak is what the report calls the
// client's peak.
type windowCounts struct{ now, peak uint32 }

// leastQueue is the room that a window has at first.
const leastQueue = 8

// maxAdmissions bounds what is in a window: 64 MiB.
const maxAdmissions = 4 << 20

func (w *window) add(client int32, at stint.Instant, permits int64) {
	if w.span > 0 {
		w.remember(client, at, permits)
	}
	if w.now += permits; w.now > w.peak {
		w.peak, w.at = w.now, at
	}
	c := w.clients.at(client)
	c.now += uint32(permits)
	c.peak = max(c.peak, c.now)
}

// remember keeps an admission until it leaves the window.
func (w *window) remember(client int32, at stint.Instant, permits int64) {
	for w.used > 0 && w.queue[w.head].at <= at-w.span {
		w.drop()
	}
	if w.used == len(w.queue) {
		switch grown := int64(max(leastQueue, w.used)) * int64(unsafe.Sizeof(admission{})); {
		case w.used == 0 || w.used < maxAdmissions && w.memory.fits(2*grown): // the old queue is there until it was copied
			w.memory.take(grown)
			w.enlarge()
		default:
			w.overflowed = true
			w.drop()
		}
	}
	w.queue[(w.head+w.used)&(len(w.queue)-1)] = admission{at, client, uint32(permits)}
	w.used++
}

// giveBack takes out what a client, or one outside the sample, does not use any more of what it was admitted at an
// instant.
func (w *window) giveBack(client int32, at stint.Instant, permits int64) {
	if w.span > 0 {
		mask, left := len(w.queue)-1, permits
		first := sort.Search(w.used, func(i int) bool { return w.queue[(w.head+i)&mask].at >= at })
		for i := first; i < w.used && left > 0; i++ {
			a := &w.queue[(w.head+i)&mask]
			if a.at > at {
				break
			}
			if a.client == client {
				n := min(left, int64(a.permits))
				a.permits, left = a.permits-uint32(n), left-n
			}
		}
		permits -= left
	}
	w.now -= permits
	if client >= 0 {
		w.clients.at(client).now -= uint32(permits)
	}
}

// peakOf is the most that a client was admitted.
func (w *window) peakOf(client int32) int64 { return int64(w.clients.at(client).peak) }

// drop lets the oldest admission leave.
func (w *window) drop() {
	oldest := w.queue[w.head]
	w.head, w.used = (w.head+1)&(len(w.queue)-1), w.used-1
	w.now -= int64(oldest.permits)
	if oldest.client >= 0 {
		w.clients.at(oldest.client).now -= oldest.permits
	}
}

func (w *window) enlarge() {
	next := make([]admission, max(leastQueue, 2*len(w.queue)))
	n := copy(next, w.queue[w.head:])
	copy(next[n:], w.queue[:w.head])
	w.queue, w.head = next, 0
}

// keep forgets the clients that are not among those named, but not what they were admitted.
func (w *window) keep(clients []int32) {
	number := make([]int32, w.clients.used)
	for i := range number {
		number[i] = -1
	}
	for i, client := range clients {
		number[client] = int32(i)
	}
	for i := range w.used {
		if a := &w.queue[(w.head+i)&(len(w.queue)-1)]; a.client >= 0 {
			a.client = number[a.client]
		}
	}
	w.clients.keep(clients)
}
