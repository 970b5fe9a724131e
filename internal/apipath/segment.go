package apipath

import (
	"net/url"
	"strings"
)

// Segment is a text as one segment of a path. One of dots would lead to another path, as that of a rule in the place of
// an override of the client ".." does.
func Segment(text string) string {
	if text == "." || text == ".." {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return url.PathEscape(text)
}
