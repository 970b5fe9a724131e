package activity

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint/service/internal/topk"
)

const (
	// topMinutes is how many minutes the top covers, the one that has begun among them.
	topMinutes = 5
	// topCounters is how many (rule, client) are counted in each minute.
	topCounters = 500
)

// A sliding counts (rule, client) over the last minutes, each in a sketch of its own. Keys are
// 64-bit hashes by a secret seed; of 100 million clients one takes another one's place in the top
// with a probability below 10^-8.
type sliding [topMinutes]minute

type minute struct {
	number uint32
	sketch *topk.Sketch
	names  []name // of the sketch's counters
}

type name struct {
	key    uint64
	rule   string
	size   uint16
	client [maxClient]byte
}

func (s *sliding) init() {
	for i := range s {
		s[i].sketch, s[i].names = topk.New(topCounters), make([]name, topCounters)
	}
}

// count adds a request to its minute's sketch. The names of clients stand beside the counters, and
// are written when a counter changes hands.
func (s *sliding) count(number uint32, key uint64, rule, client string) {
	m := &s[number%topMinutes]
	if m.number != number {
		m.sketch.Reset()
		m.number = number
	}
	if i, fresh := m.sketch.Add(key, 1); fresh {
		n := &m.names[i]
		n.key, n.rule, n.size = key, rule, uint16(copy(n.client[:], client))
	}
}

// top are the n heaviest of the minutes until one; a client that is not among them has at most
// least requests.
func (s *sliding) top(until uint32, n int) (items []TopItem, least int64) {
	merged := topk.New(topMinutes * topCounters) // so that no minute's flood drops what another one counted
	live := make([]*minute, 0, topMinutes)
	for i := range s {
		if m := &s[i]; m.number <= until && m.number+topMinutes > until {
			merged.Merge(m.sketch)
			live = append(live, m)
		}
	}
	found := merged.Top(len(s) * topCounters)
	for len(found) > n {
		last := len(found) - 1
		least, found = max(least, found[last].Count), found[:last]
	}
	places := make(map[uint64]int, len(found))
	items = make([]TopItem, len(found))
	for i, item := range found {
		places[item.Key] = i
		items[i].Count, items[i].Error = item.Count, item.Error
	}
	for _, m := range live {
		for i := range m.names {
			named := &m.names[i]
			if at, wanted := places[named.key]; wanted && items[at].Client == "" {
				items[at].Rule, items[at].Client = named.rule, textOf(named.client[:named.size])
			}
		}
	}
	return items, least
}

// textOf copies a text of somebody else's, which may be no UTF-8, or have been cut within a character. Each byte that
// is no part of a character is written as \xFF is, so that two texts that differ stay two in JSON.
func textOf(text []byte) string {
	if utf8.Valid(text) {
		return string(text)
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, text[0])
		} else {
			b.Write(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}
