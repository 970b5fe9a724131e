package activity

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/service/internal/server/problem"
)

const (
	// maxStreams bounds the streams of events.
	maxStreams = 128
	// streamQueue is how many events a slow reader may be behind; then its stream ends.
	streamQueue = 16
	// streamWrite bounds the writing of one event.
	streamWrite = 10 * time.Second
	// keptBytes bounds the events that are kept for readers who come back.
	keptBytes = 1 << 20
	// usedFor is how long events are made after the last reader has left. A reader may reconnect.
	usedFor = 30 * time.Second

	tickSeconds   = 60 // that one event has at most
	tickDenials   = 50
	snapshotRules = 50
)

// A message is an event. It is encoded twice at most, whatever the number of readers: without and
// with clients' names.
type message struct {
	number uint64
	text   [2][]byte
}

// A stream is one reader's.
type stream chan *message

// A hub hands events to the streams.
type hub struct {
	mu sync.Mutex
	// boot begins the events' IDs, so that those of another process are told apart.
	boot     string
	streams  map[stream]bool
	ended    bool
	lastUsed time.Time
	made     uint64
	// kept are the newest messages, for readers who come back, up to keptBytes.
	kept []*message
	size int // of what is kept
	// snapshot is as of the event made last, and shared by all who subscribe until the next; nil is
	// not made.
	snapshot *message

	// second is up to which events tell; denial and change are the numbers of the last that were told.
	second         uint32
	denial, change uint64
}

// init makes a hub without readers.
func (h *hub) init() { h.boot, h.streams = rand.Text()[:10], map[stream]bool{} }

// used reports whether anybody reads events, or may soon again. While nobody does, no event is
// made.
func (h *hub) used(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isUsed(now)
}

// isUsed reports whether somebody follows events, or did a moment ago: a page that is loaded again
// finds what it left.
func (h *hub) isUsed(now time.Time) bool {
	if len(h.streams) > 0 {
		h.lastUsed = now
	}
	return now.Sub(h.lastUsed) < usedFor
}

// encode makes a message. mu is held.
func (h *hub) encode(kind string, of func(names bool) any) *message {
	m := &message{number: h.made}
	for i := range m.text {
		var text bytes.Buffer
		_, _ = fmt.Fprintf(&text, "id: %s-%d\nevent: %s\ndata: ", h.boot, h.made, kind)
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(of(i == 1)) // which has nothing that can't be, and ends with a line feed
		text.WriteByte('\n')
		m.text[i] = text.Bytes()
	}
	return m
}

// send hands an event to all streams, and ends those that are too slow. mu is held.
func (h *hub) send(kind string, of func(names bool) any) {
	h.made++
	h.snapshot = nil
	m := h.encode(kind, of)
	h.kept = append(h.kept, m)
	h.size += len(m.text[0]) + len(m.text[1])
	for len(h.kept) > 1 && h.size > keptBytes {
		h.size -= len(h.kept[0].text[0]) + len(h.kept[0].text[1])
		h.kept[0] = nil
		h.kept = h.kept[1:]
	}
	for s := range h.streams {
		select {
		case s <- m:
		default:
			h.drop(s)
		}
	}
}

// drop ends a stream. Its reader reconnects, and gets what it missed or a snapshot.
func (h *hub) drop(s stream) {
	if h.streams[s] {
		delete(h.streams, s)
		close(s)
	}
}

// end ends all streams.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for s := range h.streams {
		h.drop(s)
	}
}

// resume is what follows an event, if all of it is kept. The ID is BOOT-NUMBER, so that one of
// another process or of an earlier start is not taken for one of these.
func (h *hub) resume(last string) (missed []*message, ok bool) {
	text, ok := strings.CutPrefix(last, h.boot+"-")
	number, err := strconv.ParseUint(text, 10, 64)
	if !ok || err != nil || number > h.made || uint64(len(h.kept)) < h.made-number {
		return nil, false
	}
	return h.kept[uint64(len(h.kept))-(h.made-number):], true
}

// subscribe returns a stream, and what comes before its events.
func (r *Recorder) subscribe(last string) (stream, []*message, error) {
	h := &r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || len(h.streams) >= maxStreams {
		return nil, nil, problem.ReducedCapacity(fmt.Sprintf("%d streams of events are open; allowed: %d, "+
			"and none while the service stops", len(h.streams), maxStreams))
	}
	now := r.config.Now()
	if !h.isUsed(now) { // events begin here
		h.second, h.kept, h.size = uint32(now.Unix())-1, nil, 0
		r.mu.Lock()
		h.denial, h.change = r.denials.made, r.changes.made
		r.mu.Unlock()
	}
	s := make(stream, streamQueue)
	h.streams[s] = true
	h.lastUsed = now
	if missed, ok := h.resume(last); ok {
		return s, missed, nil
	}
	if h.snapshot == nil {
		h.snapshot = h.encode("snapshot", r.takeSnapshot())
	}
	return s, []*message{h.snapshot}, nil
}

// takeSnapshot makes a snapshot of this process, with what all processes said last.
func (r *Recorder) takeSnapshot() func(names bool) any {
	v := r.lastView(2 * shareGap)
	if v == nil {
		v = r.ownView()
	}
	stats := r.stats(ruleSeconds, snapshotRules, "")
	stats.All = v.rates()
	return func(names bool) any {
		denials, _ := r.lastDenials(names, 0, topItems)
		return Snapshot{Stats: stats, Denials: denials, Shared: r.sharedOf(v, names)}
	}
}

// sharedOf is what all processes say together, for readers with or without names.
func (r *Recorder) sharedOf(v *view, names bool) Shared {
	const few = 20
	shared := Shared{Processes: v.processes(), Top: v.top(few, r.mask(names)), Denials: v.denials(few)}
	r.maskDenials(shared.Denials.Denials, names)
	return shared
}

// lastDenials are up to n after a number, and up to n of rules in shadow, and whether there are
// more.
func (r *Recorder) lastDenials(names bool, after uint64, n int) ([]Denial, bool) {
	found, more := r.denialsOf(&denialQuery{after: after}, n)
	r.maskDenials(found, names)
	return found, more
}

// publish counts what was observed, and tells the streams of the seconds that have ended. One event
// is made for all readers, and covers the seconds since the last one, a minute at most.
func (r *Recorder) publish() {
	h := &r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	now := r.now()
	second := uint32(now/1e6) - 1
	if !h.isUsed(now.Time()) || second == h.second {
		return
	}
	if second < h.second || second-h.second > tickSeconds { // the clock was set, or nobody was told for long
		h.second = second - 1
	}
	figures := r.storeFigures()
	r.mu.Lock()
	tick := Tick{Scope: ScopeProcess, At: now, Store: r.changes.store(), Changes: r.changes.list(h.change)}
	tick.Store.Figures = figures
	tick.Totals = r.totals.series(h.second+1, int(second-h.second))
	tick.Rules = r.active(h.second+1, int(second-h.second))
	made := r.denials.made
	r.mu.Unlock()
	h.send("second", func(names bool) any {
		tick.Denials, tick.MoreDenials = r.lastDenials(names, h.denial, tickDenials)
		return &tick
	})
	if len(tick.Changes) > 0 {
		h.change = tick.Changes[0].Seq
	}
	h.second, h.denial = second, made
}

// active are the rules that decided something in so many seconds, the busiest first, maxRules at
// most; mu is held.
func (r *Recorder) active(from uint32, seconds int) []RuleSeries {
	list := []RuleSeries{}
	for _, rule := range r.rules.busiest(from / 60) {
		if rule.busySince(from) {
			list = append(list, rule.show(from, seconds))
		}
	}
	return list
}

// publishShared tells the streams what all processes say together.
func (r *Recorder) publishShared(v *view) {
	r.shared.last.Store(v)
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.hub.send("shared", func(names bool) any { return r.sharedOf(v, names) })
}

// serveEvents sends events until the reader goes, or is too slow.
func (r *Recorder) serveEvents(w http.ResponseWriter, q *http.Request, names bool) error {
	if err := problem.CheckMethod(q, http.MethodGet); err != nil {
		return err
	}
	if _, err := problem.ParseQuery(q.URL.RawQuery, nil); err != nil {
		return err
	}
	s, first, err := r.subscribe(q.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	defer func() {
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		r.hub.drop(s)
	}()
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would hold the events back
	audience := map[bool]int{true: 1}[names]
	controller := http.NewResponseController(w)
	write := func(messages ...*message) bool {
		// A connection that knows no deadlines, as in a test of the handler alone, has none.
		_ = controller.SetWriteDeadline(time.Now().Add(streamWrite))
		for _, m := range messages {
			if _, err := w.Write(m.text[audience]); err != nil { //nolint:gosec // JSON in an event, said to be one
				return false
			}
		}
		return controller.Flush() == nil
	}
	for open := write(first...); open; {
		select {
		case <-q.Context().Done():
			return nil
		case m, more := <-s:
			open = more && write(m)
		}
	}
	return nil
}
