package resp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
	"github.com/stint-go/stint/internal/testredis"
)

// patienceSeconds are the seconds that may pass between two steps of a test on a busy machine.
const patienceSeconds = 30

// A wire is a connection on which commands are sent as bytes, and each reply is read as a line of text:
//
//	OK        +OK
//	"text"    $4 text
//	7         :7
//	null      $-1, *-1 or _
//	true      #t
//	[7 "a"]   an array
//	{"a": 7}  a map
//	ERR text  -ERR text
type wire struct {
	t    *testing.T
	conn net.Conn
	read *bufio.Reader
}

func dial(t *testing.T, s *service) *wire {
	t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", s.addr))(t)
	must.Do(t, conn.SetDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t, conn, bufio.NewReader(conn)}
}

// send sends commands at once.
func (w *wire) send(commands ...string) {
	w.t.Helper()
	must.Get(io.WriteString(w.conn, strings.Join(commands, "")))(w.t)
}

// reply reads the next reply.
func (w *wire) reply() string {
	w.t.Helper()
	return textOf(must.Get(testredis.ReadReply(w.read))(w.t))
}

// array reads the head of a reply that is an array, whose elements are replies.
func (w *wire) array() (n int) {
	w.t.Helper()
	line := must.Get(w.read.ReadString('\n'))(w.t)
	if _, err := fmt.Sscanf(line, "*%d\r\n", &n); err != nil {
		w.t.Fatalf("%q is no array", line)
	}
	return n
}

// do carries out a command, which is written as words with spaces between them.
func (w *wire) do(words string) string {
	w.t.Helper()
	w.send(command(words))
	return w.reply()
}

// expect carries out a command, whose reply is to match a pattern from its beginning to its end.
func (w *wire) expect(words, pattern string) {
	w.t.Helper()
	w.send(command(words))
	w.compare(said{words, pattern})
}

// follow carries out steps, each after the reply to the one before.
func (w *wire) follow(steps []said) {
	w.t.Helper()
	for _, step := range steps {
		w.expect(step.command, step.reply)
	}
}

var (
	// The parts of a pattern that are not taken literally: an answer of CL.THROTTLE, ~N, and .*
	special  = regexp.MustCompile(`\[[01] \d+ \d+ -?\d+ \d+\]|~\d+|\.\*`)
	throttle = regexp.MustCompile(`^(\[[01] \d+ \d+) (-?\d+) (\d+)\]$`)
)

// matches reports whether a reply is that of a pattern, in which .* stands for anything and ~N for N seconds, of which
// some may have passed. So it is with the seconds of an answer of CL.THROTTLE.
func matches(pattern, reply string) bool {
	var expression strings.Builder
	var seconds []string
	at := 0
	for _, part := range special.FindAllStringIndex(pattern, -1) {
		expression.WriteString(regexp.QuoteMeta(pattern[at:part[0]]))
		text := pattern[part[0]:part[1]]
		at = part[1]
		switch text[0] {
		case '.':
			expression.WriteString(text)
		case '~':
			expression.WriteString(`(-?\d+)`)
			seconds = append(seconds, text[1:])
		default:
			parts := throttle.FindStringSubmatch(text)
			expression.WriteString(regexp.QuoteMeta(parts[1]) + ` (-?\d+) (\d+)\]`)
			seconds = append(seconds, parts[2:]...)
		}
	}
	expression.WriteString(regexp.QuoteMeta(pattern[at:]))
	found := regexp.MustCompile("^(?s:" + expression.String() + ")$").FindStringSubmatch(reply)
	if found == nil {
		return false
	}
	for i, want := range seconds {
		n, err := strconv.ParseInt(want, 10, 64)
		got, err2 := strconv.ParseInt(found[i+1], 10, 64)
		if err != nil || err2 != nil || !isAbout(got, n) {
			return false
		}
	}
	return true
}

// isAbout reports whether so many seconds are those that are wanted, or some less, if these are many.
func isAbout(got, want int64) bool {
	if want < 60 {
		return got == want
	}
	return want-patienceSeconds <= got && got <= want
}

// ended reports whether the service has ended the connection.
func (w *wire) ended() bool {
	_, err := w.read.ReadByte()
	return errors.Is(err, io.EOF)
}

// textOf is a reply as text.
func textOf(r testredis.Reply) string {
	var items []string
	for _, item := range r.Items {
		items = append(items, textOf(item))
	}
	switch r.Kind {
	case '_':
		return "null"
	case '#':
		return map[string]string{"t": "true", "f": "false"}[r.Text]
	case '$':
		return strconv.Quote(r.Text)
	case '*':
		return "[" + strings.Join(items, " ") + "]"
	case '%':
		var pairs []string
		for pair := range slices.Chunk(items, 2) {
			pairs = append(pairs, strings.Join(pair, ": "))
		}
		return "{" + strings.Join(pairs, " ") + "}"
	default:
		return r.Text
	}
}

// until waits for something that will come.
var until = testprogram.Until
