package resp

import (
	"net/http"
	"sync"
	"sync/atomic"
)

// memory is what all connections may have beyond what each has for itself: commands that are long,
// commands between MULTI and EXEC, and answers that clients do not take. When it is used up, long
// commands are refused and answers are written before the next command is read.
const memory = 64 << 20

// A budget is memory that is left.
type budget struct{ used atomic.Int64 }

// take takes so many bytes, if they are there.
func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) <= memory {
		return true
	}
	b.give(n)
	return false
}

// give gives back what was taken.
func (b *budget) give(n int) { b.used.Add(-int64(n)) }

// An outbox is what a client has not taken yet. It may send much before it reads anything, as it
// may to a server of Redis: so the connection goes on reading, while another goroutine writes. Only
// text, writing and failed are shared; mu guards them.
type outbox struct {
	mu      sync.Mutex
	emptied sync.Cond
	text    []byte
	// spare is the memory of what was written last, to be used again.
	spare   []byte
	writing bool
	failed  bool
}

// piece is how much of an outbox is written at once. Each has http.write_timeout.
const piece = 64 << 10

// send sends the answers, or what the kernel does not take by and by. It reports false if the
// client is gone.
func (c *conn) send() bool {
	rest := c.out
	if len(rest) == 0 {
		return true
	}
	if c.raw != nil && c.box.empty() {
		n, err := tryWrite(c.raw, rest)
		if err != nil {
			return false
		}
		rest = rest[n:]
	}
	ok := len(rest) == 0 || c.post(rest)
	c.out = c.out[:0]
	return ok
}

// empty reports whether nothing is being written, so that the caller may write itself.
func (b *outbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.writing
}

// post has answers written by and by. When too much is not taken yet, of all clients together, it
// waits for this one.
func (c *conn) post(text []byte) bool {
	b := &c.box
	if !c.server.budget.take(len(text)) {
		return b.flush() && c.writeAll(text)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed {
		c.server.budget.give(len(text))
		return false
	}
	b.text = append(b.text, text...)
	if !b.writing {
		b.writing = true
		go c.write()
	}
	return true
}

// write writes what is in the outbox until it is empty.
func (c *conn) write() {
	b := &c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.text) > 0 && !b.failed {
		text := b.text
		b.text, b.spare = b.spare[:0], nil
		b.mu.Unlock()
		ok := c.writeAll(text)
		b.mu.Lock()
		c.server.budget.give(len(text))
		if b.failed = !ok; cap(text) <= keptReply {
			b.spare = text
		}
	}
	c.server.budget.give(len(b.text))
	b.text, b.writing = b.text[:0], false
	b.emptied.Broadcast()
	if c.idle.Load() {
		c.server.config.State(c.Conn, http.StateIdle)
	}
}

// writeAll writes in pieces, each of which tells that the client still takes something.
func (c *conn) writeAll(text []byte) bool {
	for len(text) > 0 {
		c.server.config.State(c.Conn, http.StateActive)
		n, err := c.Write(text[:min(len(text), piece)])
		if err != nil {
			return false
		}
		text = text[n:]
	}
	return true
}

// flush waits until the outbox is empty, and reports whether all of it was written.
func (b *outbox) flush() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.writing {
		b.emptied.Wait()
	}
	return !b.failed
}
