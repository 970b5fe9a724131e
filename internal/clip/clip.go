// Package clip shortens texts that others wrote before they are repeated, in an answer or in the
// log.
//
// What is repeated may come from anyone: a key, a path, the text of an error. [To] bounds it, so
// that no answer and no line of the log is as long as somebody likes.
package clip

import "unicode/utf8"

// To returns a text as it is if it has at most most bytes, else its beginning, cut between two characters,
// and an ellipsis. Text that is not UTF-8 is cut anywhere.
func To(most int, text string) string {
	if len(text) <= most {
		return text
	}
	cut := most
	for cut > most-utf8.UTFMax && cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
