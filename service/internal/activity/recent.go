package activity

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/keyhash"
)

// The ring has 128 segments of 256 KiB, of which each is overwritten as a whole.
const (
	segmentBytes = 256 << 10
	segments     = 128 // 32 MiB together
	// fewSegments tell how fast the ring fills.
	fewSegments = 16
	// recentSpan is what the ring is to cover.
	recentSpan = 10 * time.Minute
	// maxRecord bounds one record: texts with their lengths, a hash, numbers.
	maxRecord = maxClient + maxPath + maxMethod + 4*maxClient + 64
	// maxShare is the least share of clients, as the power of two that it is divided by.
	maxShare = 32
)

// A recent is a ring of decisions, in segments that are overwritten as a whole. When all of them would not cover
// recentSpan, clients are left out, never a part of what a client did: those whose hash is not divisible by 2^share. A
// segment has one share.
type recent struct {
	segments [segments]segment
	// made is how many segments were begun; the current one is (made - 1) mod segments.
	made int
}

type segment struct {
	// share is the power of two that clients are divided by; only a segment's own records are of it.
	share       uint8
	first, last int64 // times
	text        []byte
}

// init begins with all clients.
func (r *recent) init() { r.begin(0, 0) }

// begin begins the next segment.
func (r *recent) begin(at int64, share uint8) {
	r.segments[r.made%segments] = segment{share: share, first: at, last: at, text: make([]byte, 0, segmentBytes)}
	r.made++
}

// current is the segment that is written to.
func (r *recent) current() *segment { return &r.segments[(r.made-1)%segments] }

// nextShare is the least share with which all segments together cover the span, if they fill as
// fast as the last few did. It falls only when there is room to spare. With f segments filled in
// time t, each by a share 2^-s of the clients, all clients would fill sum(2^s) in t; the least s
// for which 2^s >= sum(2^s) x recentSpan / (t x segments) is taken. It falls again only with half
// as much room to spare, so that it does not go to and fro.
func (r *recent) nextShare() uint8 {
	share := r.current().share
	if r.made < fewSegments {
		return share
	}
	first, whole := r.current().last, 0.0 // whole: segments that would have been filled without leaving anybody out
	for i := r.made - fewSegments; i < r.made; i++ {
		s := &r.segments[i%segments]
		first, whole = min(first, s.first), whole+float64(uint64(1)<<s.share)
	}
	took := max(1, r.current().last-first)
	needed := whole * float64(recentSpan.Microseconds()) / float64(took) / segments
	for ; share < maxShare && float64(uint64(1)<<share) < needed; share++ {
	}
	for ; share > 0 && float64(uint64(1)<<(share-1)) > 1.5*needed; share-- {
	}
	return share
}

// sampled reports whether a client is in a share, by the low bits of its hash.
func sampled(hash uint64, share uint8) bool { return hash&(1<<share-1) == 0 }

// add writes a record, if the client is sampled: hash; time since the first, zigzag; outcome and degraded; permits,
// zigzag; and the texts, each behind its length.
func (r *recent) add(e *stint.Event, hash uint64, client string) {
	at := int64(e.At)
	s := r.current()
	if !sampled(hash, s.share) {
		return
	}
	if len(s.text) == 0 {
		s.first, s.last = at, at
	}
	if len(s.text) > segmentBytes-maxRecord {
		share := r.nextShare()
		r.begin(at, share)
		if s = r.current(); !sampled(hash, share) {
			return
		}
	}
	s.last = max(s.last, at)
	flags := byte(outcomeOf(e))
	if e.Decision.Degraded {
		flags |= 1 << 2
	}
	t := binary.LittleEndian.AppendUint64(s.text, hash)
	t = binary.AppendVarint(t, at-s.first)
	t = append(t, flags)
	t = binary.AppendVarint(t, e.Claim.Permits)
	texts := [...]string{e.Rule, string(e.Reason), client, e.Method, e.Path, e.Class, e.Via}
	for i, most := range [...]int{maxClient, maxClient, maxClient, maxMethod, maxPath, maxClient, maxClient} {
		text := texts[i][:min(len(texts[i]), most)]
		t = binary.AppendUvarint(t, uint64(len(text)))
		t = append(t, text...)
	}
	s.text = t
}

// A Decision is a recent one.
type Decision struct {
	At   stint.Instant `json:"at"`
	Rule string        `json:"rule,omitempty"`
	// of the request, if the rule has classes
	Class string `json:"class,omitempty"`
	// by what the rule charged it, if there are several ways
	Via      string `json:"via,omitempty"`
	Client   string `json:"client,omitempty"`
	Outcome  string `json:"outcome"`
	Degraded bool   `json:"degraded,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Permits  int64  `json:"permits"`
	Method   string `json:"method,omitempty"`
	Path     string `json:"path,omitempty"`
}

// A Sample says what recent decisions are of.
type Sample struct {
	// From is when they begin; 0 when there are none.
	From stint.Instant `json:"from"`
	// OneIn says that one client in so many is among them, with all that it did since From.
	OneIn uint64 `json:"oneIn"`
}

// A Held is the recent decisions of one moment, which can be read again and again. It is safe for
// concurrent use.
type Held struct {
	// Sample says what the decisions are of.
	Sample Sample

	seed     keyhash.Seed
	segments []segment // to which is added behind what is held here
}

// Hold holds this process's recent decisions, up to 32 MiB, while others are made.
func (r *Recorder) Hold() *Held {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, share := &Held{seed: r.seed}, uint8(0)
	for number := max(0, r.recent.made-segments); number < r.recent.made; number++ {
		s := r.recent.segments[number%segments]
		h.segments, share = append(h.segments, s), max(share, s.share)
		if len(s.text) > 0 && (h.Sample.From == 0 || s.first < int64(h.Sample.From)) {
			h.Sample.From = stint.Instant(s.first)
		}
	}
	h.Sample.OneIn = 1 << share
	return h
}

// sampled reports whether a client is in the share of all segments that are held.
func (h *Held) sampled(hash uint64) bool { return hash&(h.Sample.OneIn-1) == 0 }

// Each yields the decisions until yield returns false. Their order is that of time, give or take a
// second.
func (h *Held) Each(yield func(Decision) bool) { h.each(h.sampled, yield) }

// of yields the decisions of a client with these keys, as Each does, and reports whether it is sampled: if it has
// decisions, or else if all of its keys are.
func (h *Held) of(keys []string, yield func(Decision) bool) (sampled bool) {
	var hashes []uint64
	for _, key := range keys {
		if hash := keyhash.String(h.seed, key); h.sampled(hash) {
			hashes = append(hashes, hash)
		}
	}
	sampled = len(hashes) == len(keys)
	h.each(func(hash uint64) bool { return slices.Contains(hashes, hash) }, func(d Decision) bool {
		if !slices.Contains(keys, d.Client) {
			return true
		}
		sampled = true
		return yield(d)
	})
	return sampled
}

// each yields the decisions whose hash is wanted.
func (h *Held) each(wanted func(hash uint64) bool, yield func(Decision) bool) {
	for i := range h.segments {
		s := &h.segments[i]
		for rest := s.text; len(rest) > 0; {
			var is bool
			var d Decision
			if rest = d.read(rest, s.first, func(hash uint64) bool { is = wanted(hash); return is }); is && !yield(d) {
				return
			}
		}
	}
}

// read reads a record, its texts only if its hash is wanted, and returns what follows.
func (d *Decision) read(text []byte, first int64, wanted func(hash uint64) bool) (rest []byte) {
	wants := wanted(binary.LittleEndian.Uint64(text))
	text = text[8:]
	number := func() int64 {
		n, size := binary.Varint(text)
		text = text[size:]
		return n
	}
	next := func() (part string) {
		n, size := binary.Uvarint(text)
		if wants {
			part = textOf(text[size : size+int(n)])
		}
		text = text[size+int(n):]
		return part
	}
	d.At = stint.Instant(first + number())
	d.Outcome, d.Degraded = Outcome(text[0]&3).String(), text[0]&(1<<2) != 0
	text = text[1:]
	d.Permits = number()
	d.Rule, d.Reason, d.Client, d.Method, d.Path, d.Class, d.Via = next(), next(), next(), next(), next(), next(), next()
	return text
}
