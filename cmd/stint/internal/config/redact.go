package config

import "github.com/stint-go/stint/document"

// Redact hides what may be secret in a text with URLs: all between a scheme and
// the last @ of the line.
func Redact(text string) string { return document.Redact(text) }

// RedactURL hides the user and the password of one URL, also when it is
// malformed.
func RedactURL(url string) string { return document.RedactURL(url) }
