package api

import (
	"strconv"
	"unicode/utf8"
)

// appendStrings appends an array; of nil an empty one, as readers expect an array.
func appendStrings(text []byte, list []string) []byte {
	text = append(text, '[')
	for i, s := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendString(text, s)
	}
	return append(text, ']')
}

func appendInt(text []byte, n int64) []byte { return strconv.AppendInt(text, n, 10) }

// appendString appends a JSON string (RFC 8259, section 7). Bytes that are not UTF-8 become U+FFFD;
// U+2028 and U+2029 are escaped for the sake of JavaScript. What has to be escaped is copied in
// runs: a text without such characters, as nearly all are, is copied at once.
func appendString(text []byte, s string) []byte {
	text = append(text, '"')
	start := 0 // of what is copied as it is
	for i := 0; i < len(s); {
		if plain(s[i]) {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r >= utf8.RuneSelf && r != '\u2028' && r != '\u2029' && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		text = append(text, s[start:i]...)
		text = appendEscape(text, r)
		i += size
		start = i
	}
	text = append(text, s[start:]...)
	return append(text, '"')
}

// plain reports whether the byte is a character that stands for itself.
func plain(c byte) bool { return c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' }

// appendEscape writes the short escapes that JSON has, and \u with four hexadecimal digits for the
// rest. All that come here are below U+10000, so that none needs a surrogate pair.
func appendEscape(text []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(text, '\\', byte(r))
	case '\b':
		return append(text, `\b`...)
	case '\f':
		return append(text, `\f`...)
	case '\n':
		return append(text, `\n`...)
	case '\r':
		return append(text, `\r`...)
	case '\t':
		return append(text, `\t`...)
	}
	const digits = "0123456789abcdef"
	return append(text, '\\', 'u', digits[r>>12&0xf], digits[r>>8&0xf], digits[r>>4&0xf], digits[r&0xf])
}
