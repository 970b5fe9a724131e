package server

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/stint-go/stint/internal/decisionlog"
)

const requestIDField = "X-Request-Id"

// requestIDs gives requests their IDs. It is safe for concurrent use; make it with newRequestIDs.
type requestIDs struct {
	process string // begins those that are made here
	last    atomic.Uint64
	made    atomic.Pointer[madeIDs]
}

// idsAtOnce is how many IDs are made at once, so that a request allocates next to nothing for its own.
const idsAtOnce = 64

// madeIDs are IDs, of which the first ones are given.
type madeIDs struct {
	given atomic.Int64
	ids   [idsAtOnce]string
}

func newRequestIDs() *requestIDs {
	ids := &requestIDs{process: rand.Text()[:13] + "-"} // 65 bits
	ids.made.Store(ids.make())
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
	for {
		made := ids.made.Load()
		if i := made.given.Add(1) - 1; i < idsAtOnce {
			return made.ids[i : i+1 : i+1]
		}
		ids.made.CompareAndSwap(made, ids.make())
	}
}

func (ids *requestIDs) make() *madeIDs {
	var text []byte
	var ends [idsAtOnce]int
	first := ids.last.Add(idsAtOnce) - idsAtOnce
	for i := range ends {
		text = strconv.AppendUint(append(text, ids.process...), first+uint64(i), 36)
		ends[i] = len(text)
	}
	all, begin, made := string(text), 0, new(madeIDs)
	for i, end := range ends {
		made.ids[i], begin = all[begin:end], end
	}
	return made
}

// requestID is the ID of the request that is answered.
func requestID(w http.ResponseWriter) string {
	if lines := w.Header()[requestIDField]; len(lines) > 0 {
		return lines[0]
	}
	return ""
}
