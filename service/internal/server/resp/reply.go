package resp

import (
	"strconv"
	"strings"
)

// A reply is what is to be sent, in RESP 2 or, after HELLO 3, in RESP 3.
type reply struct {
	out   []byte
	three bool
}

// line adds a type, a text and the end of the line.
func (r *reply) line(kind byte, text string) {
	r.out = append(r.out, kind)
	r.out = append(r.out, text...)
	r.out = append(r.out, '\r', '\n')
}

// number adds a type and a number; most numbers have one digit.
func (r *reply) number(kind byte, n int64) {
	if 0 <= n && n < 10 {
		r.out = append(r.out, kind, byte('0'+n), '\r', '\n')
		return
	}
	r.out = append(r.out, kind)
	r.out = strconv.AppendInt(r.out, n, 10)
	r.out = append(r.out, '\r', '\n')
}

// simple and ok answer with a word.
func (r *reply) simple(text string) { r.line('+', text) }
func (r *reply) ok()                { r.simple("OK") }

// integer answers with a number.
func (r *reply) integer(n int64) { r.number(':', n) }

// array begins an array of n elements.
func (r *reply) array(n int) { r.number('*', int64(n)) }

// mapping begins n pairs: a map, or in RESP 2 an array of names and values.
func (r *reply) mapping(n int) {
	if r.three {
		r.number('%', int64(n))
		return
	}
	r.array(2 * n)
}

// bulk answers with a text of any bytes.
func (r *reply) bulk(text string) {
	r.number('$', int64(len(text)))
	r.out = append(r.out, text...)
	r.out = append(r.out, '\r', '\n')
}

// null answers that there is nothing: in RESP 2 a bulk string of length -1.
func (r *reply) null() {
	if r.three {
		r.out = append(r.out, "_\r\n"...)
		return
	}
	r.out = append(r.out, "$-1\r\n"...)
}

// boolean answers with true or false, in RESP 2 as 1 or 0.
func (r *reply) boolean(b bool) {
	switch {
	case r.three && b:
		r.out = append(r.out, "#t\r\n"...)
	case r.three:
		r.out = append(r.out, "#f\r\n"...)
	case b:
		r.integer(1)
	default:
		r.integer(0)
	}
}

// An error is a code, by which clients know what to do, and a text, of one line.
var oneLine = strings.NewReplacer("\r", " ", "\n", "; ")

func (r *reply) fail(code, text string) { r.line('-', code+" "+oneLine.Replace(text)) }

// The members of a mapping: a name and its value.

func (r *reply) textOf(name, value string)          { r.bulk(name); r.bulk(value) }
func (r *reply) integerOf(name string, value int64) { r.bulk(name); r.integer(value) }
func (r *reply) booleanOf(name string, value bool)  { r.bulk(name); r.boolean(value) }

func (r *reply) listOf(name string, values []string) {
	r.bulk(name)
	r.array(len(values))
	for _, value := range values {
		r.bulk(value)
	}
}
