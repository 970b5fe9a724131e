package server

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/decisionlog"
)

const requestIDField = "X-Request-Id"

// requestIDs gives requests their IDs. It is safe for concurrent use; make it with newRequestIDs.
type requestIDs struct {
	process string // begins those that are made here
	last    atomic.Uint64
	made    sync.Pool // of *[]string: IDs that nobody has yet
}

// idsAtOnce is how many IDs are made at once, so that a request allocates next to nothing for its own.
const idsAtOnce = 64

func newRequestIDs() *requestIDs {
	ids := &requestIDs{process: rand.Text()[:13] + "-"} // 65 bits
	ids.made.New = func() any { return new([]string) }
	return ids
}

// of is the ID that a request came with, in X-Request-ID or as the trace of traceparent, else one of its own, as a header's lines.
func (ids *requestIDs) of(header http.Header) []string {
	lines := header[requestIDField]
	if len(lines) > 0 || len(header["Traceparent"]) > 0 {
		switch id := decisionlog.RequestID(header); {
		case id == "":
		case len(lines) > 0 && id == lines[0]:
			return lines[:1:1]
		default:
			return []string{id}
		}
	}
	left, _ := ids.made.Get().(*[]string)
	if len(*left) == 0 {
		*left = ids.make()
	}
	id := (*left)[:1:1]
	*left = (*left)[1:]
	ids.made.Put(left)
	return id
}

func (ids *requestIDs) make() []string {
	var text []byte
	var ends [idsAtOnce]int
	first := ids.last.Add(idsAtOnce) - idsAtOnce
	for i := range ends {
		text = strconv.AppendUint(append(text, ids.process...), first+uint64(i), 36)
		ends[i] = len(text)
	}
	all, begin, list := string(text), 0, make([]string, idsAtOnce)
	for i, end := range ends {
		list[i], begin = all[begin:end], end
	}
	return list
}

// requestID is the ID of the request that is answered.
func requestID(w http.ResponseWriter) string {
	if lines := w.Header()[requestIDField]; len(lines) > 0 {
		return lines[0]
	}
	return ""
}
