package adapt

import (
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
)

// Seconds is a wait in whole seconds, rounded up; -1 for [stint.Never]. Waits are rounded up: a
// client that comes when it was told to must not be early.
func Seconds(d time.Duration) int64 {
	if d == stint.Never {
		return -1
	}
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// Micros is a wait in microseconds; -1 for [stint.Never].
func Micros(wait time.Duration) int64 {
	if wait == stint.Never {
		return -1
	}
	return wait.Microseconds()
}

// WriteExceeded sets X-RateLimit-Exceeded to the IDs of the rules that mark a request, each once and in their order; it
// writes nothing if none does.
func WriteExceeded(header http.Header, marks []enforce.Exceeded) {
	var value []byte
	for i := range marks {
		if i > 0 && marks[i].Rule == marks[i-1].Rule {
			continue
		}
		if len(value) > 0 {
			value = append(value, ", "...)
		}
		value = append(value, marks[i].Rule...)
	}
	if len(value) > 0 {
		header["X-Ratelimit-Exceeded"] = []string{string(value)}
	}
}
