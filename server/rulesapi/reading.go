package rulesapi

import (
	"context"
	"net/http"
)

// largeBody is from how many bytes on documents are read one at a time: reading one takes some
// hundred times its size of memory, and does not end when its client leaves.
const largeBody = 64 << 10

// A reading lets one large document be read at a time.
type reading chan struct{}

func newReading() reading { return make(reading, 1) }

// enter waits until a document of so many bytes may be read, or ctx ends. What is returned is called
// when it was read.
func (r reading) enter(ctx context.Context, size int) (leave func(), err error) {
	if size < largeBody {
		return func() {}, nil
	}
	select {
	case r <- struct{}{}:
		return func() { <-r }, nil
	case <-ctx.Done():
		return nil, &Refusal{Status: http.StatusServiceUnavailable, Detail: "other large documents were being read for as long as this request was waited for"}
	}
}
