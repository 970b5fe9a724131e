package resp

import (
	"bytes"
	"errors"
	"fmt"
)

// The bounds of one command. Its arguments are keys, names and numbers, so that most are short; a DEL
// may name many keys.
const (
	maxArguments   = 1 << 14
	longCommand    = 1 << 20 // of those who may name keys, if there is memory
	commonCommand  = 16 << 10
	maxInlineBytes = 1 << 10
)

// errProtocol is a connection's last answer: what follows can't be told apart any more.
var errProtocol = errors.New("Protocol error") //nolint:staticcheck // the text is Redis's

// malformed is the protocol's error with its cause.
func malformed(format string, values ...any) error {
	return fmt.Errorf("%w: %s", errProtocol, fmt.Sprintf(format, values...))
}

// parse reads the command at the beginning of text: an array of bulk strings, or a line of words, which
// people type and load balancers send. It returns the arguments, in the place of those given, which are
// parts of text, and how long the command is: 0 when more of it has to come, of which there is none
// beyond most bytes. A command without arguments is none, and is skipped.
func parse(text []byte, args [][]byte, most int) (_ [][]byte, length int, err error) {
	args = args[:0]
	switch {
	case len(text) == 0:
		return args, 0, nil
	case text[0] != '*':
		args, length, err = parseInline(text, args)
	default:
		args, length, err = parseArray(text, args, most)
	}
	if err == nil && length == 0 && len(text) >= most {
		err = malformed("a command of more than %d bytes", most)
	}
	return args, length, err
}

// parseArray reads *COUNT and then COUNT times $LENGTH and the bytes. Numbers are bounded before
// anything is reserved for them.
func parseArray(text []byte, args [][]byte, most int) (_ [][]byte, length int, err error) {
	count, at, err := header(text, 0, '*')
	if at == 0 || err != nil {
		return args, 0, err
	}
	if count > maxArguments {
		return args, 0, malformed("a command of %d arguments; allowed: %d", count, maxArguments)
	}
	for range count {
		n, begin, err := header(text, at, '$')
		if begin == 0 || err != nil {
			return args, 0, err
		}
		end := begin + int(n)
		if n > int64(most) || end+2 > most {
			return args, 0, malformed("an argument of %d bytes; allowed: %d for the whole command", n, most)
		}
		if end+2 > len(text) {
			return args, 0, nil
		}
		if text[end] != '\r' || text[end+1] != '\n' {
			return args, 0, malformed("an argument of %d bytes is not followed by the end of the line", n)
		}
		args = append(args, text[begin:end])
		at = end + 2
	}
	return args, at, nil
}

// maxHeader bounds the text of a number.
const maxHeader = 20

// header reads a number behind a type at a place. It returns what is behind its line: 0 when more
// of it has to come.
func header(text []byte, at int, kind byte) (n int64, next int, err error) {
	if at >= len(text) {
		return 0, 0, nil
	}
	if text[at] != kind {
		return 0, 0, malformed("expected %q, got %q", kind, text[at])
	}
	for i := at + 1; i < len(text); i++ {
		c := text[i]
		switch {
		case '0' <= c && c <= '9' && i <= at+maxHeader-2:
			n = n*10 + int64(c-'0')
			continue
		case c == '-' && i == at+1 && kind == '*': // an array that is null
			continue
		case c != '\r' || i == at+1:
			return 0, 0, malformed("%q in the length of an argument", c)
		case i+1 == len(text):
			return 0, 0, nil
		case text[i+1] != '\n':
			return 0, 0, malformed("a line that ends in %q", text[i+1])
		case text[at+1] == '-':
			n = 0
		}
		return n, i + 2, nil
	}
	return 0, 0, nil
}

// parseInline reads a line of words.
func parseInline(text []byte, args [][]byte) ([][]byte, int, error) {
	end := bytes.IndexByte(text[:min(len(text), maxInlineBytes)], '\n')
	switch {
	case end >= 0:
		for word := range bytes.FieldsSeq(text[:end]) {
			args = append(args, word)
		}
		return args, end + 1, nil
	case len(text) >= maxInlineBytes:
		return args, 0, malformed("a line of more than %d bytes that is no array", maxInlineBytes)
	}
	return args, 0, nil
}
