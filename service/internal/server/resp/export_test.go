package resp

import (
	"fmt"
	"strconv"
)

// Parse is parse, of commands that are not long.
func Parse(text []byte, args [][]byte) ([][]byte, int, error) {
	return parse(text, args, commonCommand)
}

// MaxCommandBytes is how long these may be.
const MaxCommandBytes = commonCommand

// ParseScript is parseScript. Each argument is a literal, or KEYS[n] or ARGV[n].
func ParseScript(text string) (words []string, element int64, wrapped, ok bool) {
	s := parseScript(text)
	if s == nil {
		return nil, 0, false, false
	}
	for _, w := range s.words {
		switch w.of {
		case 'K':
			words = append(words, fmt.Sprintf("KEYS[%d]", w.n))
		case 'A':
			words = append(words, fmt.Sprintf("ARGV[%d]", w.n))
		default:
			words = append(words, strconv.Quote(string(w.literal)))
		}
	}
	return words, s.element, s.wrapped, true
}
