package resp

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // G505: the protocol names scripts by it
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-go/stint"
)

// Scripts that send CL.THROTTLE, as of clients that have no free command. Nothing is interpreted: a
// script is recognised by a grammar, and is kept as a list of arguments.
//
//	script   = "return" ( call | "{" call "}" ) [ ";" ]
//	call     = ( "redis.call" | "redis.pcall" ) "(" 'CL.THROTTLE' 4 to 5 of { "," argument } ")" [ "[" 1 to 5 "]" ]
//	argument = string | digits | "KEYS[" n "]" | "ARGV[" n "]" | "tonumber(" argument ")"
const (
	maxScripts     = 100
	maxScriptBytes = 1 << 10
	scriptForm     = "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]), the last " +
		"of which may be missing, with strings, numbers or tonumber(ARGV[1]) in place of these, one of [1] to [5] " +
		"behind it, or {} around it"
)

// A script is the arguments of CL.THROTTLE, and which of the five integers are answered.
type script struct {
	words []scriptWord
	// element is the number of the only one that is answered, 0 for all; wrapped is a list around the answer.
	element int64
	wrapped bool
}

// A scriptWord is a literal, or the n-th of KEYS or ARGV, counted from 1.
type scriptWord struct {
	of      byte // 'K', 'A', or 0 for a literal
	n       int64
	literal []byte
}

// A scriptText is what is left to read of a script.
type scriptText string

// next takes a token: a word of letters, digits and dots, a string with its quotes, or another byte; "" at the end.
func (t *scriptText) next() string {
	text := strings.TrimLeft(string(*t), " \t\r\n")
	n := strings.IndexFunc(text, func(r rune) bool {
		return r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	switch {
	case n < 0:
		n = len(text)
	case n == 0 && (text[0] == '\'' || text[0] == '"'):
		n = max(2+strings.IndexByte(text[1:], text[0]), 1)
	case n == 0:
		n = 1
	}
	*t = scriptText(text[n:])
	return text[:n]
}

// argument takes an argument, and reports whether it is one.
func (t *scriptText) argument() (w scriptWord, ok bool) {
	switch token := t.next(); {
	case token == "KEYS" || token == "ARGV":
		begin, n, end := t.next(), digits([]byte(t.next())), t.next()
		return scriptWord{of: token[0], n: n}, begin == "[" && n > 0 && end == "]"
	case token == "tonumber":
		begin := t.next()
		w, ok = t.argument()
		return w, ok && begin == "(" && t.next() == ")"
	case len(token) > 1 && (token[0] == '\'' || token[0] == '"'):
		return scriptWord{literal: []byte(token[1 : len(token)-1])}, !strings.ContainsAny(token, "\\\n")
	default:
		n := digits([]byte(token))
		return scriptWord{literal: strconv.AppendInt(nil, n, 10)}, n >= 0
	}
}

// parseScript recognises a script of up to maxScriptBytes. It returns nil for any other.
func parseScript(text string) *script {
	s, t := &script{words: make([]scriptWord, 0, 6)}, scriptText(text)
	ok, token := t.next() == "return", t.next()
	if s.wrapped = token == "{"; s.wrapped {
		token = t.next()
	}
	ok = ok && (token == "redis.call" || token == "redis.pcall") && t.next() == "("
	for token = ","; ok && token == ","; token = t.next() {
		var w scriptWord
		w, ok = t.argument()
		s.words = append(s.words, w)
	}
	ok = ok && token == ")"
	if token = t.next(); token == "[" {
		s.element = digits([]byte(t.next()))
		ok = ok && 1 <= s.element && s.element <= 5 && t.next() == "]"
		token = t.next()
	}
	if s.wrapped {
		ok = ok && token == "}"
		token = t.next()
	}
	if token == ";" {
		token = t.next()
	}
	if !ok || token != "" || len(s.words) < 5 || len(s.words) > 6 || !is(s.words[0].literal, "CL.THROTTLE") {
		return nil
	}
	return s
}

// scripts remembers scripts by their digests: those of SCRIPT LOAD until SCRIPT FLUSH, and those of EVAL, which
// Redis remembers, too, until there are too many.
type scripts struct {
	mu           sync.RWMutex
	loaded, sent map[[sha1.Size]byte]*script
}

// find finds a script by its digest, in hexadecimal digits.
func (s *scripts) find(digest []byte) *script {
	var sum [sha1.Size]byte
	if len(digest) != hex.EncodedLen(len(sum)) {
		return nil
	}
	if _, err := hex.Decode(sum[:], digest); err != nil {
		return nil
	}
	return s.get(sum)
}

// get finds a script by its digest.
func (s *scripts) get(sum [sha1.Size]byte) *script {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return cmp.Or(s.loaded[sum], s.sent[sum])
}

// add remembers a script.
func (s *scripts) add(text []byte, load bool) (added *script, sum [sha1.Size]byte, err error) {
	if len(text) <= maxScriptBytes {
		sum = sha1.Sum(text) //nolint:gosec // G401: the protocol names scripts by it
		if added = s.get(sum); added == nil {
			added = parseScript(string(text))
		} else if !load {
			return added, sum, nil
		}
	}
	if added == nil {
		return nil, sum, stint.Invalid("script", fmt.Sprintf("%.64s", text), scriptForm)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !load && len(s.sent)%maxScripts == 0:
		s.sent = map[[sha1.Size]byte]*script{sum: added}
	case !load:
		s.sent[sum] = added
	case s.loaded == nil:
		s.loaded = map[[sha1.Size]byte]*script{sum: added}
	case len(s.loaded) < maxScripts || s.loaded[sum] != nil:
		s.loaded[sum] = added
	default:
		return nil, sum, stint.Invalid("SCRIPT LOAD", "one more", fmt.Sprintf("%d scripts, until SCRIPT FLUSH", maxScripts))
	}
	return added, sum, nil
}

// eval is EVAL script numkeys [key ...] [argument ...]. The script is remembered for EVALSHA, as Redis does it.
func (c *conn) eval(args [][]byte) {
	s, _, err := c.server.scripts.add(args[1], false)
	if err != nil {
		c.wrong(err)
		return
	}
	c.evaluateScript(s, args)
}

// evalSHA is EVALSHA digest numkeys [key ...] [argument ...].
func (c *conn) evalSHA(args [][]byte) {
	s := c.server.scripts.find(args[1])
	if s == nil { // clients know the words, and send EVAL
		c.refuse("NOSCRIPT", "No matching script. Please use EVAL.")
		return
	}
	c.evaluateScript(s, args)
}

// evaluateScript is CL.THROTTLE with the arguments of a script.
func (c *conn) evaluateScript(s *script, args [][]byte) {
	keys := digits(args[2])
	if keys < 0 || keys > int64(len(args)-3) {
		c.wrong(stint.Invalid("numkeys", fmt.Sprintf("%.32s", args[2]), "the number of keys, which follow it"))
		return
	}
	var words [6][]byte
	for i, w := range s.words {
		name, given := "KEYS", args[3:3+keys]
		if w.of == 'A' {
			name, given = "ARGV", args[3+keys:]
		}
		switch {
		case w.of == 0:
			words[i] = w.literal
		case w.n <= int64(len(given)):
			words[i] = given[w.n-1]
		default:
			c.wrong(stint.Invalid(name, fmt.Sprintf("%d values", len(given)), fmt.Sprintf("at least %d, by the script", w.n)))
			return
		}
	}
	c.throttled(words[:len(s.words)])
	if s.element == 0 && !s.wrapped || c.batch == nil || len(c.batch.pending) == 0 { // as it is, or an error
		return
	}
	p := &c.batch.pending[len(c.batch.pending)-1]
	answer := p.answer
	p.answer = func(c *conn, p *pending, d *stint.Decision) {
		begin := len(c.out)
		answer(c, p, d)
		reply := string(c.out[begin:])
		c.out = c.out[:begin]
		if s.wrapped {
			c.array(1)
		}
		if s.element > 0 {
			reply = strings.SplitAfter(reply, "\n")[s.element]
		}
		c.out = append(c.out, reply...)
	}
}

// script is SCRIPT LOAD script, EXISTS digest ..., and FLUSH [ASYNC|SYNC].
func (c *conn) script(args [][]byte) {
	s := &c.server.scripts
	switch {
	case is(args[1], "LOAD") && len(args) == 3:
		_, sum, err := s.add(args[2], true)
		if err != nil {
			c.explain(err)
			return
		}
		c.bulk(hex.EncodeToString(sum[:]))
	case is(args[1], "EXISTS") && len(args) > 2:
		c.array(len(args) - 2)
		for _, digest := range args[2:] {
			n := int64(0)
			if s.find(digest) != nil {
				n = 1
			}
			c.integer(n)
		}
	case is(args[1], "FLUSH") && (len(args) == 2 || len(args) == 3 && (is(args[2], "ASYNC") || is(args[2], "SYNC"))):
		s.mu.Lock()
		s.loaded, s.sent = nil, nil
		s.mu.Unlock()
		c.ok()
	default:
		c.noSub(args[1], "EXISTS, FLUSH, LOAD")
	}
}
