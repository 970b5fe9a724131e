package listen

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// A connection of HTTP/2 pays for its frames. A call brings frames, and so do answers, since their reader acknowledges
// them; the rest comes with time.
const (
	// frameBurst is how many frames a new connection may send, and the most that time brings.
	frameBurst = 128
	// frameEvery is the time that brings one frame.
	frameEvery = time.Second
	// framesPerCall is how many frames a call brings, its own included: its message, a PING, and updates of windows.
	framesPerCall = 16
	// framesPerLoss is how many frames a call takes that was refused, or whose message did not come.
	framesPerLoss = 2 * framesPerCall
	// bytesPerFrame is how many bytes of answers bring a frame.
	bytesPerFrame = 1 << 10
	// mostFrames is how many frames a connection may have left.
	mostFrames = 4096
	// frameDebt is how many frames a connection may send beyond what it has, before it is closed. Until then each Read
	// waits for framePause, once more for each framesPerPause, and returns frameSlice bytes at most.
	frameDebt      = 2048
	framePause     = 100 * time.Millisecond
	framesPerPause = 256
	frameSlice     = 256
	// firstSlice is what a Read returns at most until there is a call.
	firstSlice = 1 << 10
	// wholeFrame is how many bytes a frame has that costs nothing: bytes are bounded elsewhere.
	wholeFrame = 256
)

// errNoCalls is the error of a connection whose frames are no calls.
var errNoCalls = errors.New("stint: the connection sends frames that are no calls")

// A frame is the head of a frame of HTTP/2.
type frame struct {
	kind   http2.FrameType
	flags  http2.Flags
	length int
	stream uint32
}

// A frameScanner finds the frames in a stream of bytes. The zero value begins with one.
type frameScanner struct {
	head [9]byte
	have int // of head
	skip int // what is left of the last frame's payload
}

// next finds the next frame in p, and what follows its head. ok is false when p has no whole head any more.
func (s *frameScanner) next(p []byte) (f frame, rest []byte, ok bool) {
	n := min(s.skip, len(p))
	s.skip -= n
	p = p[n:]
	n = copy(s.head[s.have:], p)
	s.have += n
	if s.have < len(s.head) {
		return frame{}, nil, false
	}
	s.have = 0
	f = frame{
		kind: http2.FrameType(s.head[3]), flags: http2.Flags(s.head[4]),
		length: int(binary.BigEndian.Uint32(s.head[:4]) >> 8),
		stream: binary.BigEndian.Uint32(s.head[5:]) & (1<<31 - 1),
	}
	s.skip = f.length
	return f, p[n:], true
}

// A framedConn is a connection of HTTP/2, below which TLS may be. A connection whose frames are no calls is slowed, and
// then closed: PING, SETTINGS, WINDOW_UPDATE, PRIORITY and DATA without bytes get no turn, and cost processor time.
type framedConn struct {
	net.Conn
	// left is how many frames may come:
	//
	//	left = frameBurst + calls x framesPerCall + answers / bytesPerFrame + time / frameEvery
	//	       - losses x framesPerLoss - frames
	//
	// with time only up to frameBurst, and the rest up to mostFrames.
	left    atomic.Int64
	in, out frameScanner
	heads   int64     // what a frame of header fields brings
	called  bool      // whether there was a call; for the goroutine that reads
	filled  time.Time // until when left has the frames that time brings; for the goroutine that reads
	close   func()    // closes the connection for its frames
	streams *rpcStreams
	closed  chan struct{}
	once    sync.Once
}

// newFramedConn makes a connection on which nothing has come. Where streams is nil, each frame of header fields is a
// call; else [framedConn.call] says which are.
func newFramedConn(conn net.Conn, streams *rpcStreams, closeIt func()) *framedConn {
	c := &framedConn{Conn: conn, streams: streams, close: closeIt, filled: time.Now(), closed: make(chan struct{})}
	c.in.skip = len(http2.ClientPreface)
	c.left.Store(frameBurst)
	if streams == nil {
		c.heads = framesPerCall
	}
	return c
}

// call notes a call. It is for the goroutine that reads.
func (c *framedConn) call() {
	c.called = true
	c.earn(framesPerCall)
}

// lose notes a call that was none.
func (c *framedConn) lose() { c.left.Add(-framesPerLoss) }

// earn adds frames to those that may come.
func (c *framedConn) earn(n int64) {
	if c.left.Load() < mostFrames {
		c.left.Add(n)
	}
}

// Read implements [net.Conn].
func (c *framedConn) Read(to []byte) (int, error) {
	if c.left.Load() < 0 {
		slice, err := c.slow(to)
		if err != nil {
			return 0, err
		}
		to = slice
	} else if !c.called {
		to = to[:min(len(to), firstSlice)]
	}
	n, err := c.Conn.Read(to)
	c.read(to[:n])
	return n, err
}

// slow waits while a connection has sent more frames than it may, or closes it. It returns how much may be read.
func (c *framedConn) slow(to []byte) ([]byte, error) {
	now := time.Now()
	came := int64(now.Sub(c.filled) / frameEvery)
	c.filled = c.filled.Add(time.Duration(came) * frameEvery)
	left := c.left.Add(min(came, frameBurst))
	switch {
	case left >= 0:
		return to, nil
	case left < -frameDebt:
		c.close()
		return nil, errNoCalls
	}
	timer := time.NewTimer(framePause * time.Duration(1-left/framesPerPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
		return nil, net.ErrClosed
	}
	return to[:min(len(to), frameSlice)], nil
}

// read counts the frames that have come.
func (c *framedConn) read(p []byte) {
	var cost int64
	for f, rest, ok := c.in.next(p); ok; f, rest, ok = c.in.next(rest) {
		if f.kind == http2.FrameHeaders {
			c.called = c.called || c.heads > 0
			cost -= c.heads
		}
		if f.length < wholeFrame || f.kind > http2.FrameHeaders && f.kind != http2.FrameContinuation {
			cost++
		}
		if c.streams != nil {
			c.streams.came(f)
		}
	}
	if cost < 0 {
		c.earn(-cost)
	} else if cost > 0 {
		c.left.Add(-cost)
	}
}

// Write implements [net.Conn].
func (c *framedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n >= bytesPerFrame {
		c.earn(int64(n / bytesPerFrame))
	}
	if c.streams != nil {
		for f, rest, ok := c.out.next(p[:n]); ok; f, rest, ok = c.out.next(rest) {
			c.streams.went(f)
		}
	}
	return n, err
}

// Close implements [net.Conn].
func (c *framedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
