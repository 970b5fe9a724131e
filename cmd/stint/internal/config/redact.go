package config

import (
	"strings"

	"github.com/stint-go/stint/rules/notation"
)

// Redact hides what may be secret in a text with URLs: all between a scheme and
// the last @ of the line.
func Redact(text string) string { return notation.Redact(text) }

// RedactURL hides the user and the password of one URL, also when it is
// malformed.
func RedactURL(url string) string {
	at := strings.LastIndexByte(url, '@')
	if at < 0 {
		return url
	}
	scheme, _, found := strings.Cut(url[:at], "://")
	if !found {
		return "redacted" + url[at:]
	}
	return scheme + "://redacted" + url[at:]
}
