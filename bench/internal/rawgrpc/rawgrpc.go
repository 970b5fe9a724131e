// Package rawgrpc calls a unary method of gRPC with as little work as that takes: what a general client does for each call
// costs more than most servers, and hides what those differ in. Calls of a connection share one block of header fields
// and one system call, and nothing of an answer is read but its message. It speaks HTTP/2 (RFC 9113) without TLS.
package rawgrpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// MaxMessage is how long a message may be, with its head of 5 bytes: what a frame may hold without being asked.
const MaxMessage = 16 << 10

// messageHead is the length of what is before a message: whether it is compressed, and its length.
const messageHead = 5

// renewAfter is how many bytes of answers are read before the server may send as many more.
const renewAfter = 1 << 20

// A Conn is a connection on which one method is called. It is safe for concurrent use; make it with [Dial].
type Conn struct {
	conn   net.Conn
	fields []byte // the header fields of each call
	ended  sync.WaitGroup

	mu      sync.Mutex
	work    sync.Cond // something is pending, or err is set
	room    sync.Cond // another call may begin, or err is set
	pending []byte    // frames that are not written yet
	calls   map[uint32]*Call
	next    uint32 // the next call's stream
	most    int    // calls at once
	window  int    // bytes of messages that may be sent
	err     error
}

// A Call is what one call at a time needs. One that is used again saves its allocations. Make it with [NewCall].
type Call struct {
	answer []byte
	err    error
	done   chan struct{}
}

// NewCall makes a call.
func NewCall() *Call { return &Call{done: make(chan struct{}, 1)} }

// Dial connects to HOST:PORT, for calls of the method /SERVICE/METHOD.
func Dial(ctx context.Context, target, method string) (*Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	c := &Conn{conn: conn, calls: map[uint32]*Call{}, next: 1, most: 1 << 30, window: 1<<16 - 1}
	c.work.L, c.room.L = &c.mu, &c.mu
	var fields bytes.Buffer
	encoder := hpack.NewEncoder(&fields)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", target},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		// Sensitive fields are not remembered by the server, so that they are the same bytes each time.
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	c.fields = fields.Bytes()
	c.pending = append(c.pending, http2.ClientPreface...)
	c.pending = appendFrame(c.pending, http2.FrameSettings, 0, 0, 0)
	c.pending = appendWindowUpdate(c.pending, 1<<30)
	settled := make(chan struct{})
	c.ended.Go(c.write)
	c.ended.Go(func() { c.fail(c.read(settled)) })
	select {
	case <-settled:
		return c, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), c.Close())
	}
}

// Close ends the connection, and all calls on it.
func (c *Conn) Close() error {
	c.fail(net.ErrClosed)
	c.ended.Wait()
	return nil
}

// fail ends the connection for a reason, the first of several.
func (c *Conn) fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = why
	for stream, call := range c.calls {
		delete(c.calls, stream)
		call.end(why)
	}
	c.work.Broadcast()
	c.room.Broadcast()
	_ = c.conn.Close() // it is given up
}

// end ends a call.
func (call *Call) end(err error) {
	call.err = err
	call.done <- struct{}{}
}

// Invoke sends a message, and returns the one that answers it, which holds until the call is used again. An answer
// without a message is an error.
func (c *Conn) Invoke(ctx context.Context, call *Call, message []byte) ([]byte, error) {
	size := messageHead + len(message)
	if size > MaxMessage {
		return nil, fmt.Errorf("a message of %d bytes; allowed: %d", len(message), MaxMessage-messageHead)
	}
	call.answer = call.answer[:0]
	c.mu.Lock()
	for c.err == nil && (len(c.calls) >= c.most || c.window < size) {
		c.room.Wait()
	}
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	stream := c.next
	c.next += 2
	c.window -= size
	c.calls[stream] = call
	p := appendFrame(c.pending, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, len(c.fields))
	p = append(p, c.fields...)
	p = appendFrame(p, http2.FrameData, http2.FlagDataEndStream, stream, size)
	p = binary.BigEndian.AppendUint32(append(p, 0), uint32(len(message)))
	c.pending = append(p, message...)
	c.work.Signal()
	c.mu.Unlock()
	select {
	case <-call.done:
	case <-ctx.Done():
		c.forget(stream, call)
		return nil, ctx.Err()
	}
	switch {
	case call.err != nil:
		return nil, call.err
	case len(call.answer) < messageHead:
		return nil, errors.New("the answer has no message")
	}
	return call.answer[messageHead:], nil
}

// forget no longer waits for a call.
func (c *Conn) forget(stream uint32, call *Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[stream] != call {
		<-call.done
		return
	}
	delete(c.calls, stream)
	c.room.Broadcast()
}

// write writes what is pending, all at once.
func (c *Conn) write() {
	var frames []byte
	for {
		c.mu.Lock()
		for len(c.pending) == 0 && c.err == nil {
			c.work.Wait()
		}
		if c.err != nil {
			c.mu.Unlock()
			return
		}
		frames, c.pending = c.pending, frames[:0]
		c.mu.Unlock()
		if _, err := c.conn.Write(frames); err != nil {
			c.fail(err)
			return
		}
	}
}

// read reads frames until one is not as it has to be. It closes settled when the server has said what it takes.
func (c *Conn) read(settled chan struct{}) error {
	const headBytes = 9
	from := bufio.NewReaderSize(c.conn, 64<<10)
	heard, unrenewed := false, 0
	for {
		head, err := from.Peek(headBytes)
		if err != nil {
			return err
		}
		length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		kind, flags := http2.FrameType(head[3]), http2.Flags(head[4])
		stream := binary.BigEndian.Uint32(head[5:]) & (1<<31 - 1)
		frame, err := from.Peek(headBytes + length)
		if err != nil {
			return err
		}
		payload := frame[headBytes:]
		if kind == http2.FrameData {
			if unrenewed += length; unrenewed >= renewAfter {
				c.send(func(p []byte) []byte { return appendWindowUpdate(p, unrenewed) })
				unrenewed = 0
			}
		}
		if err := c.take(kind, flags, stream, payload); err != nil {
			return err
		}
		if kind == http2.FrameSettings && !heard {
			heard = true
			close(settled)
		}
		if _, err := from.Discard(headBytes + length); err != nil {
			return err
		}
	}
}

// take takes a frame. Frames are not padded by servers of gRPC, and the fields of answers say nothing here.
func (c *Conn) take(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) error {
	switch kind {
	case http2.FrameData, http2.FrameHeaders:
		if flags.Has(http2.FlagDataPadded) {
			return errors.New("a padded frame")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		call := c.calls[stream]
		if call == nil {
			return nil // given up
		}
		if kind == http2.FrameData {
			call.answer = append(call.answer, payload...)
		}
		if flags.Has(http2.FlagDataEndStream) {
			c.finish(stream, call, nil)
		}
	case http2.FrameRSTStream:
		c.mu.Lock()
		defer c.mu.Unlock()
		if call := c.calls[stream]; call != nil {
			c.finish(stream, call, errors.New("the server ended the call"))
		}
	case http2.FrameSettings:
		c.settings(flags, payload)
	case http2.FramePing:
		if !flags.Has(http2.FlagPingAck) {
			c.send(func(p []byte) []byte {
				return append(appendFrame(p, http2.FramePing, http2.FlagPingAck, 0, len(payload)), payload...)
			})
		}
	case http2.FrameWindowUpdate:
		if stream == 0 && len(payload) == 4 {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.window += int(binary.BigEndian.Uint32(payload))
			c.room.Broadcast()
		}
	case http2.FrameGoAway:
		return errors.New("the server ends the connection")
	default: // of no meaning here
	}
	return nil
}

// finish ends a call that the server has answered; mu is held.
func (c *Conn) finish(stream uint32, call *Call, err error) {
	delete(c.calls, stream)
	if len(c.calls) == c.most-1 {
		c.room.Broadcast()
	}
	call.end(err)
}

// settings takes what the server allows.
func (c *Conn) settings(flags http2.Flags, payload []byte) {
	if flags.Has(http2.FlagSettingsAck) {
		return
	}
	c.send(func(p []byte) []byte {
		for ; len(payload) >= 6; payload = payload[6:] {
			if http2.SettingID(binary.BigEndian.Uint16(payload)) == http2.SettingMaxConcurrentStreams {
				c.most = int(binary.BigEndian.Uint32(payload[2:]))
			}
		}
		return appendFrame(p, http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	})
}

// send adds frames to what is pending.
func (c *Conn) send(add func(pending []byte) []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = add(c.pending)
	c.work.Signal()
}

// appendFrame adds the head of a frame.
func appendFrame(to []byte, kind http2.FrameType, flags http2.Flags, stream uint32, length int) []byte {
	to = append(to, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(to, stream)
}

func appendWindowUpdate(to []byte, bytes int) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(to, http2.FrameWindowUpdate, 0, 0, 4), uint32(bytes))
}
