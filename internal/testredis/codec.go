package testredis

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Command is a command as all clients write it: an array of bulk strings. A server may reply with the same bytes.
func Command(args ...string) string { return string(appendCommand(nil, args)) }

// appendCommand appends a command to what is to be sent.
func appendCommand(text []byte, args []string) []byte {
	text = append(strconv.AppendInt(append(text, '*'), int64(len(args)), 10), "\r\n"...)
	for _, arg := range args {
		text = append(strconv.AppendInt(append(text, '$'), int64(len(arg)), 10), "\r\n"...)
		text = append(append(text, arg...), "\r\n"...)
	}
	return text
}

// A Reply is one value of RESP 2 or RESP 3
// (https://redis.io/docs/latest/develop/reference/protocol-spec/). A command is one, too.
type Reply struct {
	// Kind is the value's first byte. Every null is '_'.
	Kind byte
	// Text is what a string, an error, a number or a boolean says.
	Text string
	// Items are the elements of an array, or the keys and values of a map by turns.
	Items []Reply
}

// ReadReply reads the next value. It is an error if that is not exactly as the protocol has it.
func ReadReply(in *bufio.Reader) (r Reply, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return r, err
	}
	text, whole := strings.CutSuffix(line, "\r\n")
	if !whole || text == "" {
		return r, fmt.Errorf("testredis: the line %q is no reply", line)
	}
	r.Kind, r.Text = text[0], text[1:]
	switch r.Kind {
	case '+', '-', '_', '#':
		return r, nil
	case ':':
		_, err = strconv.ParseInt(r.Text, 10, 64)
		return r, err
	}
	n, err := strconv.Atoi(r.Text)
	if err != nil || !strings.ContainsRune("$*%", rune(r.Kind)) {
		return r, fmt.Errorf("testredis: the line %q is no reply", line)
	}
	r.Text = ""
	switch {
	case n < 0:
		r.Kind = '_'
		return r, nil
	case r.Kind == '$':
		text := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(in, text)
		r.Text = string(text[:n])
		if err == nil && string(text[n:]) != "\r\n" {
			err = fmt.Errorf("testredis: the text %q has no end", text)
		}
		return r, err
	case r.Kind == '%':
		n *= 2
	}
	for range n {
		item, err := ReadReply(in)
		if err != nil {
			return r, err
		}
		r.Items = append(r.Items, item)
	}
	return r, nil
}

// Words are the texts of the elements of an array, such as a command.
func (r Reply) Words() []string {
	words := make([]string, len(r.Items))
	for i, item := range r.Items {
		words[i] = item.Text
	}
	return words
}

// value is the reply to a client: a string, an int64, nil, a [ReplyError], or a []any of these.
func (r Reply) value() any {
	switch r.Kind {
	case '_':
		return nil
	case '-':
		return ReplyError(r.Text)
	case ':':
		n, _ := strconv.ParseInt(r.Text, 10, 64) // it was read as one
		return n
	case '*', '%':
		items := make([]any, len(r.Items))
		for i, item := range r.Items {
			items[i] = item.value()
		}
		return items
	default:
		return r.Text
	}
}
