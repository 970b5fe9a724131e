package problem

import (
	"net/http"
	"strconv"
	"strings"
)

// AcceptsGzip reports whether an answer to the request may be compressed by gzip: if
// Accept-Encoding names it, or all codings by a star, with a weight above 0 (RFC 9110, section
// 12.5.3). Its own weight counts before the star's.
func AcceptsGzip(r *http.Request) bool {
	named, star := -1.0, -1.0
	for _, list := range r.Header["Accept-Encoding"] {
		for item := range strings.SplitSeq(list, ",") {
			coding, parameters, _ := strings.Cut(item, ";")
			weight := 1.0
			if name, value, found := strings.Cut(parameters, "="); found && strings.EqualFold(strings.TrimSpace(name), "q") {
				var err error
				if weight, err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
					weight = 0
				}
			}
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "gzip", "x-gzip":
				named = max(named, weight)
			case "*":
				star = weight
			}
		}
	}
	if named >= 0 {
		return named > 0
	}
	return star > 0
}
