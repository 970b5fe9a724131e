package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxValues bounds the values of a JSON text, of so many bytes: each takes some 100 bytes. Rules have one in
// 10 bytes.
func maxValues(bytes int) int { return 1<<17 + bytes/8 }

// JSON reads one JSON text (RFC 8259) with the places of its values. A name that is
// given twice in an object is a fault. What is no JSON is one fault, and nothing; so is a text
// that is nested deeper than 64, or has more than 131,072 values and one for each 8 bytes.
func JSON(source string, data []byte, faults *Faults) Value {
	empty := Value{At: Position{Source: source, Line: 1, Column: 1}}
	if !utf8.Valid(data) {
		faults.Add(empty.At, "not JSON: the text is not UTF-8")
		return empty
	}
	r := jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), faults: faults, at: empty.At, left: maxValues(len(data))}
	r.decoder.UseNumber()
	v, err := r.value(0)
	if err == nil {
		r.place()
		if _, extra := r.decoder.Token(); !errors.Is(extra, io.EOF) {
			err = errors.New("something behind the value")
		}
	}
	if err != nil {
		faults.Add(r.at, "not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
		return empty
	}
	return v
}

// jsonReader makes values of tokens.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	faults  *Faults
	at      Position // of offset
	offset  int
	left    int // how many values there may still be
}

// place moves to the next token, past what stands between tokens.
func (r *jsonReader) place() Position {
	next := int(r.decoder.InputOffset())
	for next < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[next]) >= 0 {
		next++
	}
	for _, c := range string(r.data[r.offset:max(r.offset, next)]) {
		r.at.Column++
		if c == '\n' {
			r.at.Line, r.at.Column = r.at.Line+1, 1
		}
	}
	r.offset = max(r.offset, next)
	return r.at
}

// token returns the next token and its place.
func (r *jsonReader) token() (json.Token, Position, error) {
	at := r.place()
	token, err := r.decoder.Token()
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the text ends too soon")
	case errors.As(err, &syntax):
		err = errors.New(syntax.Error())
	}
	return token, at, err
}

func (r *jsonReader) value(depth int) (Value, error) {
	token, at, err := r.token()
	if err != nil {
		return Value{}, err
	}
	if r.left--; r.left < 0 {
		return Value{}, fmt.Errorf("too many values; allowed: %d in a text of %d bytes", maxValues(len(r.data)), len(r.data))
	}
	v := Value{At: at}
	switch t := token.(type) {
	case string:
		v.Kind, v.Text = KindText, t
	case bool:
		v.Kind, v.Text = KindBoolean, "false"
		if t {
			v.Text = "true"
		}
	case json.Number:
		v.Kind, v.Text = KindInteger, t.String()
		if strings.ContainsAny(v.Text, ".eE") {
			v.Kind = KindFloat
		}
	case json.Delim:
		if depth == maxDepth {
			return Value{}, errors.New(tooDeep)
		}
		if t == '[' {
			return r.list(v, depth+1)
		}
		return r.mapping(v, depth+1)
	}
	return v, nil
}

func (r *jsonReader) list(v Value, depth int) (Value, error) {
	v.Kind = KindList
	for r.decoder.More() {
		item, err := r.value(depth)
		if err != nil {
			return Value{}, err
		}
		v.Items = append(v.Items, item)
	}
	_, _, err := r.token() // the bracket
	return v, err
}

func (r *jsonReader) mapping(v Value, depth int) (Value, error) {
	v.Kind = KindMapping
	lines := map[string]int{}
	for r.decoder.More() {
		token, at, err := r.token()
		if err != nil {
			return Value{}, err
		}
		name, _ := token.(string) // the decoder allows no other
		item, err := r.value(depth)
		if err != nil {
			return Value{}, err
		}
		if once(lines, name, at, r.faults) {
			v.Fields = append(v.Fields, Field{At: at, Name: name, Value: item})
		}
	}
	_, _, err := r.token() // the brace
	return v, err
}
