package resp

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
)

// What is silent takes smallBuffer bytes and a goroutine.
const (
	smallBuffer = 1 << 10 // of a connection that is silent
	fullReply   = 16 << 10
	keptReply   = 64 << 10 // beyond which the memory of a reply is not kept
	fewArgs     = 64       // beyond which that of arguments is not
	manyScant   = 64       // reads after which there is less room
	// batchSize is how many operations are decided at once, while a client sends without waiting.
	batchSize = 128
	// lingering is how long a connection that ends here is read, so that its client has the answers: what is unread
	// when a connection is closed makes the kernel drop them.
	lingering = 500 * time.Millisecond
)

// A conn is a connection: what has come of it, what is to be decided, and what is to be sent. Its
// fields are of the connection's own goroutine, but for box and idle.
type conn struct {
	net.Conn
	reply
	server  *Server
	ctx     context.Context //nolint:containedctx // of the connection
	cancel  context.CancelFunc
	address string
	number  int64
	name    string
	db      int64 // of SELECT

	token           string
	refused, unable error // why it may not name keys, and not ask at all
	// guesses counts tokens that were not known.
	guesses int

	// raw lets the goroutine that decides write what the kernel takes at once; nil: another goroutine
	// writes everything.
	raw syscall.RawConn
	box outbox
	// idle is whether nothing of a command has come, which net/http's states call so, too.
	idle atomic.Bool

	in []byte
	// in[begin:end] has not been carried out yet.
	begin, end int
	// scant counts reads in a row that needed little of the buffer.
	scant int
	args  [][]byte
	batch *batch
	// command and throttle are the last ones: a client mostly repeats itself.
	command  *command
	throttle *throttle // the last one
	// done counts commands that the server has not counted yet.
	done int64
	// ending ends the connection with the answers so far.
	ending bool
	// queue is what came since MULTI, nil without it.
	queue *queue
}

// A batch is what is to be decided.
type batch struct {
	pending  []pending
	ops      []stint.Op
	results  []stint.Result
	event    stint.Event
	response api.CheckResponse
}

// A pending operation is answered by a function. answer is called with the decision, in the order
// of the commands.
type pending struct {
	claim  stint.Claim
	target *Target
	// throttle is that of CL.THROTTLE; nil of other commands.
	throttle *throttle
	answer   func(c *conn, p *pending, d *stint.Decision)
	hold     *stint.HoldOp
	// policy is the name of the target, where it is remembered (holds).
	policy string
	verb   stint.Verb
}

// takes reports whether it is a take of one policy, with nothing else.
func (p *pending) takes() bool { return p.verb == stint.VerbTake && p.hold == nil && p.claim.Keep == 0 }

// op is the operation for the store.
func (p *pending) op() stint.Op {
	op := stint.Op{Verb: p.verb, Claim: p.claim}
	if p.hold != nil {
		op.Extra = &stint.Extra{Hold: p.hold}
	}
	return op
}

// newConn makes a connection that has shown no token.
func (s *Server) newConn(nc net.Conn) *conn {
	c := &conn{
		Conn: nc, server: s, address: nc.RemoteAddr().String(), number: s.last.Add(1), in: make([]byte, smallBuffer),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.box.emptied.L = &c.box.mu
	if s.config.Raw != nil {
		c.raw = s.config.Raw(nc)
	}
	c.authorise("")
	return c
}

// authorise notes what a client may do that has shown a token, or none.
func (c *conn) authorise(token string) {
	c.token, c.refused, c.unable = token, c.server.config.MayName(token), c.server.config.MayAsk(token)
}

// close ends the connection. Its client has the answers, if it takes them.
func (c *conn) close() {
	c.cancel()
	c.discard()
	c.resize(0)
	sent := c.box.flush()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && sent && half.CloseWrite() == nil &&
		c.SetReadDeadline(time.Now().Add(lingering)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, longCommand) // until the client has closed, or time is up
	}
	c.server.config.State(c.Conn, http.StateClosed)
	_ = c.Close() // nobody is left to hear of it
}

// serve answers until the client or the server ends the connection. The order of its steps per
// read: take over what came, answer all of it, make room, yield if the buffer was full.
func (c *conn) serve() {
	if secure, ok := c.Conn.(interface {
		HandshakeContext(ctx context.Context) error
	}); ok {
		if err := secure.HandshakeContext(c.ctx); err != nil {
			c.server.config.Handshake(c.address, err)
			return
		}
	}
	c.rest()
	for {
		n, err := c.Read(c.in[c.end:])
		if c.end += n; n > 0 && !c.answerAll() {
			return
		}
		if err != nil || c.server.closing.Load() {
			return
		}
		flood := c.end == len(c.in)
		if !c.makeRoom(n) {
			return
		}
		if flood {
			runtime.Gosched() // more has come already: others go first
		}
	}
}

// rest notes that nothing is under way.
func (c *conn) rest() {
	c.idle.Store(true)
	if c.box.empty() {
		c.server.config.State(c.Conn, http.StateIdle)
	}
}

// makeRoom moves what is left to the front, after n bytes have come. There is more room for a
// command that does not fit, and for a client that sends much at once, and little for one that does
// no more. It reports false if there is no memory. The buffer's sizes, of a client that needs them:
//
//	smallBuffer -> 4x ... -> commonCommand -> 4x ... -> most()
//	back to smallBuffer after manyScant reads that needed little
func (c *conn) makeRoom(n int) bool {
	left, size := c.in[c.begin:c.end], len(c.in)
	c.scant++
	switch {
	case n >= size/8:
		c.scant = 0
	case len(left) == 0 && size > smallBuffer && (size > commonCommand || c.scant > manyScant):
		size = smallBuffer
	}
	if c.end == size && (c.begin == 0 || size < commonCommand) {
		size = min(4*size, c.most())
	}
	if size != len(c.in) {
		if !c.resize(size) {
			c.out = nil
			c.fail("ERR", "a long command, and no memory for it now")
			c.send()
			return false
		}
	}
	c.begin, c.end = 0, copy(c.in, left)
	return true
}

// most is how long a command of the client may be.
func (c *conn) most() int {
	if c.refused != nil {
		return commonCommand
	}
	return longCommand
}

// resize gets a buffer of a size. What is beyond the usual is of all connections' memory.
// Invariant: budget.used >= sum over connections of max(0, len(in) - commonCommand).
func (c *conn) resize(size int) bool {
	if more := max(size-commonCommand, 0) - max(len(c.in)-commonCommand, 0); more > 0 && !c.server.budget.take(more) {
		return false
	} else if more < 0 {
		c.server.budget.give(-more)
	}
	c.in = make([]byte, size)
	return true
}

// answerAll carries out the commands that have come, and sends the answers. It reports whether the
// connection goes on. The batch and the reply's memory come from pools and go back here, so a
// connection that waits has neither.
func (c *conn) answerAll() (goOn bool) {
	if _, n, err := parse(c.in[c.begin:c.end], c.args, c.most()); n == 0 && err == nil {
		c.begun()
		return true
	}
	c.idle.Store(false)
	c.server.config.State(c.Conn, http.StateActive)
	out, _ := c.server.replies.Get().(*[]byte)
	c.out = (*out)[:0]
	err := c.overdue()
	if err == nil {
		err = c.carryOut()
	}
	c.decide()
	c.server.done.Add(c.done)
	c.done = 0
	c.release()
	if err != nil {
		c.fail("ERR", err.Error())
		c.ending = true
	}
	c.ending = c.ending || c.server.config.Draining()
	sent := c.send()
	if *out = c.out; cap(*out) <= keptReply {
		c.server.replies.Put(out)
	}
	if c.out = nil; cap(c.args) > fewArgs {
		c.args = nil
	}
	switch {
	case !sent || c.ending:
		return false
	case c.begin == c.end && c.queue == nil:
		c.rest()
	default:
		c.idle.Store(true)
		c.begun()
	}
	return true
}

// begun notes that a command has begun to come, or, behind MULTI, some that are to follow. From then on there is
// http.body_timeout for it, and it may have to make room for other clients.
func (c *conn) begun() {
	if c.idle.Swap(false) {
		c.server.config.State(c.Conn, http.StateNew)
	}
}

// carryOut carries out the commands that have come whole. Its error is why the rest is none.
func (c *conn) carryOut() error {
	for c.goOn() {
		args, n, err := parse(c.in[c.begin:c.end], c.args, c.most())
		c.args = args
		if err != nil || n == 0 {
			return err
		}
		text := c.in[c.begin : c.begin+n]
		c.begin += n
		if len(args) > 0 {
			c.do(args, text)
		}
	}
	return nil
}

// goOn makes room for the next command, and reports whether it is to be carried out. A pipeline of
// any length takes no more memory than one batch and one reply.
func (c *conn) goOn() bool {
	if c.batch != nil && len(c.batch.pending) >= batchSize {
		c.decide()
	}
	if len(c.out) >= fullReply {
		c.release()
		c.ending = !c.send() || c.ending
		runtime.Gosched() // others go first
	}
	return !c.ending
}

// text is an argument as a string. It changes with the connection's memory, so whoever keeps it has
// to copy it. The string shares the argument's bytes, which the next read overwrites.
func text(argument []byte) string {
	return unsafe.String(unsafe.SliceData(argument), len(argument)) //nolint:gosec // G103: it saves a copy of each key
}

// key is an argument as a key, which may be kept if the store, or who observes, does so.
func (c *conn) key(argument []byte) string {
	if c.server.config.Take != nil && !c.server.config.KeepKeys {
		return text(argument)
	}
	return string(argument)
}

// later is an operation that is decided with those that follow it.
func (c *conn) later() *pending {
	if c.batch == nil {
		c.batch, _ = c.server.batches.Get().(*batch)
	}
	b := c.batch
	b.pending = append(b.pending, pending{})
	return &b.pending[len(b.pending)-1]
}

// wrong takes back the last operation, whose arguments are not right, and answers the command.
func (c *conn) wrong(err error) {
	if b := c.batch; b != nil && len(b.pending) > 0 && b.pending[len(b.pending)-1].answer == nil {
		b.pending = b.pending[:len(b.pending)-1]
	}
	c.decide()
	c.explain(err)
}

// release lets go of an empty batch, before what may take long.
func (c *conn) release() {
	if c.batch != nil && len(c.batch.pending) == 0 {
		c.server.batches.Put(c.batch)
		c.batch = nil
	}
}

// anotherPolicy is what it costs more to decide by another policy than the operation before. A
// batch of one policy is one lookup of everything that a store prepared for it.
const anotherPolicy = 3

// decide decides what is pending, and answers it. The whole batch waits for one turn, with the cost
// of all of its limits; the time that it waited is not counted as the decision's.
func (c *conn) decide() {
	b := c.batch
	if b == nil || len(b.pending) == 0 {
		return
	}
	cost := int64(0)
	for i := range b.pending {
		policy := b.pending[i].claim.Policy
		if cost += int64(policy.Len()); i > 0 && policy != b.pending[i-1].claim.Policy {
			cost += anotherPolicy
		}
	}
	b.results = append(b.results[:0], make([]stint.Result, len(b.pending))...)
	start := time.Now()
	ctx, leave, err := c.server.config.Enter(c.ctx, c.address, cost)
	if err == nil {
		start = time.Now()
		c.server.decideAll(ctx, b, leave)
	}
	elapsed := time.Since(start)
	for i := range b.pending {
		p, result := &b.pending[i], &b.results[i]
		if err != nil {
			result.Err = err
		}
		if result.Err != nil {
			c.undecided(p, result.Err)
			continue
		}
		p.answer(c, p, &result.Decision)
		c.observe(ctx, p, &result.Decision, start, elapsed)
	}
	clear(b.pending)
	b.pending = b.pending[:0]
}

// decideAll decides what is pending: by the store, or, where the store is in the process, the short
// way. A failure of the short way is repeated by the store, whose error has its words.
func (s *Server) decideAll(ctx context.Context, b *batch, leave func()) {
	defer leave()
	short := s.config.Take != nil
	for i := range b.pending {
		short = short && b.pending[i].takes()
	}
	if short {
		for i := range b.pending {
			p, result := &b.pending[i], &b.results[i]
			result.Decision, result.Err = s.config.Take(ctx, p.claim.Policy, p.claim.Key, p.claim.Permits)
			if result.Err != nil {
				s.config.DecideAll(ctx, []stint.Op{p.op()}, b.results[i:i+1]) // which says why
			}
		}
		return
	}
	b.ops = b.ops[:0]
	for i := range b.pending {
		b.ops = append(b.ops, b.pending[i].op())
	}
	s.config.DecideAll(ctx, b.ops, b.results)
	clear(b.ops)
}

// undecided answers an operation that came to nothing, and counts it if it was to take.
func (c *conn) undecided(p *pending, err error) {
	if p.verb == stint.VerbTake || p.verb == stint.VerbReserve {
		c.server.config.Undecided(p.target.Least, err)
	}
	c.explain(err)
}

// observe tells of a check.
func (c *conn) observe(ctx context.Context, p *pending, d *stint.Decision, start time.Time, elapsed time.Duration) {
	if p.verb != stint.VerbTake && p.verb != stint.VerbReserve {
		return
	}
	e := &c.batch.event // nothing else of it is ever set
	e.At, e.Elapsed, e.Verb = stint.Instant(start.UnixMicro()), elapsed, p.verb
	e.Claim, e.Rule, e.Decision, e.Reason, e.Replayed = p.claim, p.target.Rule, *d, "", p.hold != nil && p.hold.Replayed
	if !d.Allowed {
		e.Reason = stint.ReasonOf(e.Limit(), d, p.claim.Permits)
	}
	c.server.config.Observe(ctx, e)
}

// explain answers with an error. The codes are words that clients of Redis know (NOAUTH, NOPERM) or
// may tell apart.
func (c *conn) explain(err error) {
	status, detail := c.server.config.Refused(c.address, err)
	code := "ERR"
	switch status {
	case http.StatusUnauthorized:
		code = "NOAUTH"
	case http.StatusForbidden:
		code = "NOPERM"
	case http.StatusNotFound:
		code = "UNKNOWN"
	case http.StatusConflict:
		code = "CONFLICT"
	case http.StatusServiceUnavailable:
		code = "UNAVAILABLE"
	}
	c.fail(code, detail)
}
