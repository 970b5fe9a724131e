// Package requestid gives requests their IDs.
package requestid

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/stint-go/stint/service/internal/decisionlog"
)

// Field is the header field, canonical, as http.Header keeps it.
const Field = "X-Request-Id"

// IDs gives requests their IDs. It is safe for concurrent use; make it with New.
// An ID is made of the process's part and a number in base 36, so that IDs of two processes never
// meet but by a chance of 2^-65.
type IDs struct {
	process string // begins those that are made here
	last    atomic.Uint64
	made    atomic.Pointer[madeIDs]
}

// idsAtOnce is how many IDs are made at once, so that a request allocates next to nothing for its
// own.
const idsAtOnce = 64

// madeIDs are IDs, of which the first ones are given.
type madeIDs struct {
	given atomic.Int64
	ids   [idsAtOnce]string
}

// New makes IDs that no other process makes: they begin with a random text.
func New() *IDs {
	ids := &IDs{process: rand.Text()[:13] + "-"} // 65 bits
	ids.made.Store(ids.make())
	return ids
}

// Of is the ID that a request came with, in X-Request-ID or as the trace of traceparent, else one
// of its own, as a header's lines. An ID of the client's is kept if it is printable and not too
// long, as it goes into logs.
func (ids *IDs) Of(header http.Header) []string {
	lines := header[Field]
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

// make makes the next idsAtOnce IDs as parts of one text: one allocation for all.
func (ids *IDs) make() *madeIDs {
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
