package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends the response as encoding/json would write it without HTML
// escaping. It exists because checks are by far the most frequent requests.
func (c *CheckResponse) AppendJSON(text []byte) []byte {
	return append(c.appendMembers(text), '}')
}

// appendMembers appends the response without the brace at its end.
func (c *CheckResponse) appendMembers(text []byte) []byte {
	text = append(text, `{"allowed":`...)
	text = strconv.AppendBool(text, c.Allowed)
	if c.Degraded {
		text = append(text, `,"degraded":true`...)
	}
	text = appendString(append(text, `,"key":`...), c.Key)
	if c.Policy != "" {
		text = appendString(append(text, `,"policy":`...), c.Policy)
	}
	text = appendString(append(text, `,"algorithm":`...), c.Algorithm)
	text = appendInt(append(text, `,"limit":`...), c.Limit)
	text = appendInt(append(text, `,"remaining":`...), c.Remaining)
	text = appendInt(append(text, `,"resetAfterSeconds":`...), c.ResetAfterSeconds)
	text = appendInt(append(text, `,"retryAfterSeconds":`...), c.RetryAfterSeconds)
	text = appendString(append(text, `,"message":`...), c.Message)
	text = appendInt(append(text, `,"resetAfterMicros":`...), c.ResetAfterMicros)
	text = appendInt(append(text, `,"retryAfterMicros":`...), c.RetryAfterMicros)
	text = appendInt(append(text, `,"delayMicros":`...), c.DelayMicros)
	text = appendInt(append(text, `,"at":`...), c.At)
	return c.appendReason(appendString(append(text, `,"source":`...), c.Source))
}

// appendReason appends the members that are left out if they are empty, in the order of the type's
// fields.
func (c *CheckResponse) appendReason(text []byte) []byte {
	if c.Reason != "" {
		text = appendString(append(text, `,"reason":`...), c.Reason)
	}
	if c.LimitName != "" {
		text = appendString(append(text, `,"limitName":`...), c.LimitName)
	}
	if len(c.Details) > 0 {
		if details, err := json.Marshal(c.Details); err == nil { // it has no type that can fail
			text = append(append(text, `,"details":`...), details...)
		}
	}
	return text
}

// AppendJSON appends the response. Without a limit, that is without an Algorithm, it leaves out the
// limit fields. Matched is always an array. The members are in the order of the fields of the type,
// and vias are sorted, so that equal answers are equal texts.
func (e *EvaluateResponse) AppendJSON(text []byte) []byte {
	if e.Algorithm != "" {
		text = e.appendMembers(text)
	} else {
		text = strconv.AppendBool(append(text, `{"allowed":`...), e.Allowed)
		if e.Degraded {
			text = appendString(append(text, `,"degraded":true,"source":`...), e.Source)
		}
		if !e.Allowed {
			text = appendInt(append(text, `,"retryAfterSeconds":`...), e.RetryAfterSeconds)
		}
		text = appendString(append(text, `,"message":`...), e.Message)
		if !e.Allowed {
			text = e.appendReason(appendInt(append(text, `,"retryAfterMicros":`...), e.RetryAfterMicros))
		}
	}
	if e.Rule != "" {
		text = appendString(append(text, `,"rule":`...), e.Rule)
	}
	if e.Class != "" {
		text = appendString(append(text, `,"class":`...), e.Class)
	}
	if e.Via != "" {
		text = appendString(append(text, `,"via":`...), e.Via)
	}
	if len(e.Vias) > 0 {
		text = append(text, `,"vias":{`...)
		for i, rule := range slices.Sorted(maps.Keys(e.Vias)) {
			if i > 0 {
				text = append(text, ',')
			}
			text = appendString(append(appendString(text, rule), ':'), e.Vias[rule])
		}
		text = append(text, '}')
	}
	text = appendStrings(append(text, `,"matched":`...), e.Matched)
	if len(e.Shadowed) > 0 {
		text = appendStrings(append(text, `,"shadowed":`...), e.Shadowed)
	}
	if len(e.Missing) > 0 {
		text = appendStrings(append(text, `,"missing":`...), e.Missing)
	}
	return append(text, '}')
}

// MarshalJSON is AppendJSON for encoding/json.
func (e EvaluateResponse) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

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

// AppendJSON appends the response: as that of a check if nothing is said of rules.
func (r *ReserveResponse) AppendJSON(text []byte) []byte {
	if r.Matched == nil {
		text = r.CheckResponse.AppendJSON(text)
	} else {
		text = r.EvaluateResponse.AppendJSON(text)
	}
	text = appendString(append(text[:len(text)-1], `,"id":`...), r.ID)
	text = appendInt(append(text, `,"expiresAt":`...), r.ExpiresAt)
	text = strconv.AppendBool(append(text, `,"replayed":`...), r.Replayed)
	text = strconv.AppendBool(append(text, `,"lost":`...), r.Lost)
	return append(text, '}')
}
