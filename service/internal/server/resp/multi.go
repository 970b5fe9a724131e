package resp

import (
	"fmt"
	"time"
)

// maxQueued bounds the bytes between MULTI and EXEC.
const maxQueued = 1 << 20

// A queue is what has come since MULTI. It is carried out at EXEC: each command alone and in order, like any other
// pipeline, since there is nothing to be undone.
type queue struct {
	text  []byte
	count int
	since time.Time // it began
	// broken is set when a command was not taken up, so that EXEC carries out none.
	broken bool
}

// multi answers MULTI.
func (c *conn) multi([][]byte) {
	if c.queue != nil {
		c.refuse("ERR", "MULTI calls can not be nested")
		return
	}
	c.queue = &queue{since: time.Now()}
	c.ok()
}

// overdue is why a transaction that has not ended in time ends the connection. Between its commands the listener
// sees to that; here they come one by one.
func (c *conn) overdue() error {
	most := c.server.config.BodyTimeout
	if c.queue == nil || most == 0 || time.Since(c.queue.since) <= most {
		return nil
	}
	return fmt.Errorf("MULTI without EXEC; allowed: %v from one to the other", most)
}

// enqueue keeps a command's text for EXEC. It was parsed before, so that a fault shows here and not
// there.
func (c *conn) enqueue(came []byte) {
	q := c.queue
	if q.broken {
		c.simple("QUEUED")
		return
	}
	if len(q.text)+len(came) > maxQueued || !c.server.budget.take(len(came)) {
		c.refuse("ERR", "too much between MULTI and EXEC; allowed: 1 MiB, as long as there is memory for all connections")
		return
	}
	q.text = append(q.text, came...)
	q.count++
	c.simple("QUEUED")
}

// discard forgets what was queued, if MULTI was sent.
func (c *conn) discard() bool {
	q := c.queue
	if q == nil {
		return false
	}
	c.server.budget.give(len(q.text))
	c.queue = nil
	return true
}

// exec answers EXEC with an array of all answers. Other connections' commands may be decided
// between them, as there is no transaction to be atomic: each is an operation of its own.
func (c *conn) exec([][]byte) {
	q := c.queue
	if q == nil {
		c.fail("ERR", "EXEC without MULTI")
		return
	}
	c.queue = nil // its commands are carried out, and not queued
	defer c.server.budget.give(len(q.text))
	if q.broken {
		c.fail("EXECABORT", "Transaction discarded because of previous errors.")
		return
	}
	c.array(q.count)
	var args [][]byte
	for at := 0; at < len(q.text) && c.goOn(); {
		var n int
		args, n, _ = parse(q.text[at:], args, longCommand) // it was parsed before
		c.do(args, q.text[at:at+n])
		at += n
	}
	c.decide() // whose keys are in the queue
}
