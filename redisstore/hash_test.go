package redisstore_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stint-go/stint"
)

// hash is a generation as generations.lua says that it is stored. This reading of it
// shares nothing with the store's.
type hash struct {
	start, life, turn, dead stint.Instant
	versions                []string // parameters
	states                  map[string]stored
}

// stored is a state as it is stored: where its writer's parameters are, whether its
// numbers are wide, the parameters and the numbers, of which the first has the
// generation's start added.
type stored struct {
	tag     byte
	wide    bool
	writer  string
	numbers [3]int64
}

const (
	headBytes   = 32
	inlineTag   = 63
	wideTag     = 128
	widthsBytes = 3
)

func isLog(key string) bool { return strings.Contains(key, "}:sliding_window_log") }

// parameterBytes is how long a writer's parameters are in a hash, by its key.
func parameterBytes(key string) int {
	if strings.Contains(key, "_bucket:") {
		return widthsBytes + 4 + 4 + 6
	}
	return widthsBytes + 6
}

// readHash reads a hash, or returns nil where there is none.
func readHash(t testing.TB, key string) *hash {
	t.Helper()
	return hashOf(t, key, redis(t, "HGETALL", key).([]any))
}

// failer is a test of the standard library's or of package rapid's.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func hashOf(t failer, key string, fields []any) *hash {
	t.Helper()
	values := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		values[fields[i].(string)] = fields[i+1].(string)
	}
	if len(values) == 0 {
		return nil
	}
	head, length := values[""], parameterBytes(key)
	if len(head) < headBytes || (len(head)-headBytes)%length != 0 {
		t.Fatalf("%s has a head of %d bytes: %q", key, len(head), head)
	}
	h := &hash{states: map[string]stored{}}
	for i, number := range []*stint.Instant{&h.start, &h.life, &h.turn, &h.dead} {
		*number = stint.Instant(binary.BigEndian.Uint64([]byte(head[8*i:])))
	}
	for rest := head[headBytes:]; rest != ""; rest = rest[length:] {
		h.versions = append(h.versions, rest[:length])
	}
	delete(values, "")
	for client, value := range values {
		h.states[client] = h.state(t, key, value)
	}
	return h
}

func (h *hash) state(t failer, key, value string) stored {
	t.Helper()
	s := stored{tag: value[0] &^ wideTag, wide: value[0] >= wideTag}
	rest := value[1:]
	switch {
	case s.tag == inlineTag:
		s.writer, rest = rest[:parameterBytes(key)], rest[parameterBytes(key):]
	case int(s.tag) < len(h.versions):
		s.writer = h.versions[s.tag]
	default:
		t.Fatalf("%s has a state of writer %d, and %d writers", key, s.tag, len(h.versions))
	}
	for i := range s.numbers {
		width := int(s.writer[i])
		if s.wide {
			width = 8
		}
		n := int64(0)
		for _, b := range []byte(rest[:width]) {
			n = n<<8 | int64(b)
		}
		if rest = rest[width:]; i == 0 {
			unused := 64 - 8*width
			n = n<<unused>>unused + int64(h.start)
		}
		s.numbers[i] = n
	}
	if rest != "" {
		t.Fatalf("%s has a state with %d bytes too many: %q", key, len(rest), value)
	}
	return s
}

// matters is the time from which a state is worthless, by the limit that wrote it.
func (s stored) matters(key string) stint.Instant {
	at := s.numbers[0]
	length := int64(0)
	for _, b := range []byte(s.writer[len(s.writer)-6:]) {
		length = length<<8 | int64(b)
	}
	switch {
	case strings.Contains(key, "_bucket:"):
		due := at + s.numbers[1]
		if s.numbers[2] > 0 {
			due++
		}
		return stint.Instant(due)
	case strings.Contains(key, "fixed_window"):
		if s.numbers[1] > 0 { // not the writer's own window
			length = s.numbers[1]
		}
		return stint.Instant(at + length)
	default:
		if s.numbers[2] > 0 {
			length *= 2
		}
		return stint.Instant(at + length)
	}
}
