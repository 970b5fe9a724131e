// Package wire is what is sent to a server and what comes back: the operations of one script call (Batch), how they are
// written, how the reply is read, and the scripts. It knows no connection and nobody who waits.
//
// Begin with protocol.go, and with batch.lua for what the server does.
package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unique"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/redisstore/internal/layout"
)

// A Batch is one script call: the operations it carries, the states they use, and what is sent.
// Batches are used again; the zero value is one to begin with.
//
// Its life: Begin, Add (operations, as long as it may), Execute (which writes it, makes the call, and replays the
// operations on the states that came back), Answer for each operation, End. If the script answers that it needs another
// form, it is written and sent again.
//
// One sender at a time has a batch, so it has no lock.
type Batch struct {
	target   *Target
	layout   *layout.Layout
	entries  []Entry
	common   rare // of all plain takes; nobody writes into it
	opLimits []OpLimit
	states   []stateRef
	outcomes []stint.Outcome // by OpLimit
	loaded   []decide.State  // as they were found, by the state's number
	// stateIndex finds a state by its key; lastKey and lastIndex are the last that was found.
	stateIndex map[stateKey]int32
	lastKey    stateKey
	lastIndex  int32
	// keyCopies has copies of keys whose callers may leave.
	keyCopies keyCopies
	// limitCount is how many limits all entries have, of maxLimits.
	limitCount int
	maxLimits  int // that there may be of them
	// mixed says that there is more than takes of states other than logs and calendars,
	// or states of one hash under limits with different parameters.
	mixed bool
	// fullScript says that the script for one take has left it to the whole one.
	fullScript bool
	// holds says that permits of a state are held, or may be.
	holds bool
	// usualLeft says that the script for the usual operations on holds has left some.
	usualLeft bool
	// asked has, by state, times of calendars that the script asked for.
	asked map[int32]stint.Instant

	encoding
}

// A Sending is what is sent of an operation beside the operation.
type Sending struct {
	// Lasts says that the memory of its keys is nobody's to use again before it has been answered.
	Lasts bool
	// TakenAt is, of a Refund and a ReturnLease, when the permits were taken.
	TakenAt stint.Instant
	// Bulk is how many permits to take after a take of one, one after another: a lease chunk.
	Bulk int64
}

// An Entry is one operation under way, copied, since its caller may leave. An entry has limitCount
// limits from firstLimit on in the batch's opLimits, and as many outcomes.
type Entry struct {
	// rare is never nil. Plain takes share the batch's common one.
	*rare
	firstLimit int32
	limitCount int32
	Verb       stint.Verb
	// Growth says that the caller wants to know when more permits come.
	Growth bool
	// logs says that one of its limits is a log, whose outcomes the script answers.
	logs     bool
	answered bool // by an earlier script, which met states with holds
	Decision stint.Decision
}

// rare is what few entries have. Most are takes. A batch has an entry for each, so that their size
// counts.
type rare struct {
	// takenAt is when what is returned was taken.
	takenAt stint.Instant
	hold    *holdEntry   // of a Reserve, Commit or Cancel
	Live    []stint.Hold // that are listed
	// Ways are those of its limits; nil: it has none.
	Ways []uint16
	// bound are the same of a Reserve, bound to those that its hold is on.
	bound []uint16
	via   uint8 // the way that a hold is on
	// bulk is how many permits to take after a take of one, one after another: a lease chunk.
	bulk         int64
	BulkAdmitted int64 // of a bulk
}

// rareOf is the rare part of an operation's entry.
func (b *Batch) rareOf(op *stint.Op, s Sending) *rare {
	if op.Verb <= stint.VerbPeek && s.Bulk == 0 && op.Extra == nil {
		return &b.common
	}
	return &rare{takenAt: s.TakenAt, Ways: decide.Ways(op, nil), bulk: s.Bulk}
}

// Refund is a verb that no caller has: it returns permits taken at an instant,
// each limit's own and nobody else's, where that is still possible. It is for token
// buckets, fixed windows and sliding window counters.
const Refund = stint.VerbList + 1

// ReturnLease is Refund for permits that were leased and not spent: of a token bucket less
// what it has refilled since.
const ReturnLease = Refund + 1

// bulkTake is how an entry's bulk is sent in the script's first part.
const bulkTake = ReturnLease + 1

// An OpLimit is one limit of an operation. Asked is what the claim asks for, permits what the limit
// takes of that: they differ for a limit with a cost of its own.
type OpLimit struct {
	Limit   *layout.Limit // of the operation; a reset's may differ from the state's
	state   int32
	Keep    int32 // how many are left to others
	permits int64 // that the limit is asked for, of those of the claim
	Asked   int64
}

// stateRef is a state that operations of the batch use.
type stateRef struct {
	limit  *layout.Limit
	client string
	// runsOnly says that nothing but takes, tries and peeks of this limit alone, without ways, use it,
	// so what is sent is how often how much is taken. A peek of several limits sees all of
	// them at one time, also where the script for holds has to be asked again.
	runsOnly bool
	// sealed says that no further operation may use it: it follows a calendar, whose
	// edges may be around a time that a reset has undone.
	sealed      bool
	resetMarked bool          // whether the key with the time of its last reset is named
	resetAt     stint.Instant // that time, if so
	partition   int32
	// number is that of its limit's description, then its place in the script's first part.
	number int32
	runs   []run
	held   bool // whether permits of it are held, so that only the script with holds can decide
}

// run is k takes of n permits each, one after another, so that keep more are left. Runs keep the
// order of operations: only neighbours are joined.
type run struct{ n, keep, k int64 }

// A stateKey is a client under a limit's identity.
type stateKey struct {
	identity unique.Handle[string]
	client   string
}

// Begin makes the batch ready for operations of so many limits at most; for one operation that has more.
func (b *Batch) Begin(t *Target, maxLimits int) {
	if b.stateIndex == nil {
		b.stateIndex = map[stateKey]int32{}
		b.descriptions, b.groups, b.epochs = map[*layout.Limit]int{}, map[groupKey]*group{}, map[string]int64{}
		b.bucketNumbers = map[string]int{}
	}
	b.target, b.layout, b.maxLimits = t, t.Layout.Load(), maxLimits
}

// End makes the batch ready to be used again, without what it pointed to.
func (b *Batch) End() {
	clear(b.entries)
	for i := range b.states {
		b.states[i] = stateRef{runs: b.states[i].runs[:0]}
	}
	b.entries, b.opLimits, b.states, b.limitCount, b.mixed = b.entries[:0], b.opLimits[:0], b.states[:0], 0, false
	clear(b.stateIndex)
	b.lastKey = stateKey{}
	b.clearEncoding()
	b.asked, b.target, b.layout, b.fullScript, b.holds, b.usualLeft = nil, nil, nil, false, false, false
}

// SettingsKey is where the batch's target remembers the layout.
func (b *Batch) SettingsKey() string { return b.target.SettingsKey() }

// Entries are the operations that were added, in order.
func (b *Batch) Entries() []Entry { return b.entries }

// Coalesced is how many limits share a state with another one.
func (b *Batch) Coalesced() int { return max(0, len(b.opLimits)-len(b.states)) }

// Add adds an operation. It reports false when it has to be sent later: the batch is full, or it
// uses a state of the operation under other parameters, or for the last time. So states of one
// limit under two versions never meet in a batch: the script takes over a state once.
func (b *Batch) Add(op *stint.Op, s Sending) bool {
	limits := op.Limits()
	if len(b.entries) > 0 && b.limitCount+limits > b.maxLimits {
		return false
	}
	e := Entry{
		rare: b.rareOf(op, s), Verb: op.Verb, Growth: op.Each != nil,
		firstLimit: int32(len(b.opLimits)), limitCount: int32(limits),
	}
	states, claimed := len(b.states), true
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		if claimed = b.addClaim(&e, claim, s.Lasts); !claimed {
			break
		}
	}
	if !claimed {
		b.removeClaims(&e, states)
		return false
	}
	b.limitCount += limits
	b.mixed = b.mixed || op.Verb >= stint.VerbReset
	b.holds = b.holds || op.Verb == stint.VerbList
	if op.Hold() != nil {
		e.hold, b.holds = b.newHoldEntry(&e, op), true
	}
	all := b.Limits(&e)
	if e.logs || op.Verb >= stint.VerbReset || limits > 1 || len(e.Ways) > 0 {
		for i := range all {
			ref := &b.states[all[i].state]
			ref.runsOnly = false
			ref.sealed = op.Verb == stint.VerbReset && ref.limit.Calendar()
		}
	} else if op.Verb != stint.VerbPeek {
		ref := &b.states[all[0].state]
		ref.addRun(run{all[0].permits, int64(all[0].Keep), 1})
		if e.bulk > 0 {
			ref.addRun(run{1, 0, e.bulk})
		}
	}
	b.entries = append(b.entries, e)
	return true
}

// Limits are the limits of an operation.
func (b *Batch) Limits(e *Entry) []OpLimit {
	return b.opLimits[e.firstLimit : e.firstLimit+e.limitCount]
}

// Outcomes are the outcomes of an operation's limits.
func (b *Batch) Outcomes(e *Entry) []stint.Outcome {
	return b.outcomes[e.firstLimit : e.firstLimit+e.limitCount]
}

// addRun notes takes of this state alone.
func (ref *stateRef) addRun(r run) {
	if last := len(ref.runs) - 1; last >= 0 && ref.runs[last].n == r.n && ref.runs[last].keep == r.keep {
		ref.runs[last].k += r.k
		return
	}
	ref.runs = append(ref.runs, r)
}

// find finds a state that the batch uses. Most often it is the one that was asked
// for last, when one client is what most ask for.
func (b *Batch) find(l *layout.Limit, client string) (at int32, known bool) {
	key := stateKey{l.Identity, client}
	if key == b.lastKey {
		return b.lastIndex, true
	}
	if at, known = b.stateIndex[key]; known {
		key.client = b.states[at].client // whose memory lasts
		b.lastKey, b.lastIndex = key, at
	}
	return at, known
}

// addState adds a state. What stood in its place in an earlier batch left its list.
func (b *Batch) addState(l *layout.Limit, client string) (at int32) {
	n := len(b.states)
	if n < cap(b.states) {
		b.states = b.states[:n+1]
	} else {
		b.states = append(b.states, stateRef{})
	}
	ref := &b.states[n]
	*ref = stateRef{
		limit: l, client: client, partition: int32(b.layout.Partition(client)),
		runsOnly: !l.General, runs: ref.runs[:0],
	}
	b.lastKey, b.lastIndex = stateKey{l.Identity, client}, int32(n)
	b.stateIndex[b.lastKey] = b.lastIndex
	return b.lastIndex
}

// addClaim adds the limits of a claim. It reports false when the batch may not use one
// of its states.
func (b *Batch) addClaim(e *Entry, claim *stint.Claim, lasts bool) bool {
	plan := b.layout.Plan(claim.Policy)
	client := claim.Key
	for i := range plan {
		l := &plan[i]
		at, known := b.find(l, client)
		switch {
		case !known:
			if !lasts {
				client, lasts = b.keyCopies.keep(client), true
			}
			at = b.addState(l, client)
		case len(b.entries) > 0 && (b.states[at].sealed || !l.Same(b.states[at].limit)):
			return false
		}
		e.logs = e.logs || l.HasLog()
		b.mixed = b.mixed || l.General
		b.holds = b.holds || l.Spec.Algorithm == stint.AlgorithmConcurrency
		b.opLimits = append(b.opLimits, OpLimit{
			Limit: l, state: at, Keep: int32(claim.Keep), permits: permitsOf(l, e.Verb, claim.Permits), Asked: claim.Permits,
		})
	}
	return true
}

// removeClaims takes back what was added for an operation that has to be sent later: its limits,
// and the states that were not there before.
func (b *Batch) removeClaims(e *Entry, states int) {
	b.opLimits = b.opLimits[:e.firstLimit]
	for i := range b.states[states:] {
		ref := &b.states[states+i]
		delete(b.stateIndex, stateKey{ref.limit.Identity, ref.client})
		*ref = stateRef{runs: ref.runs[:0]}
	}
	b.states, b.lastKey = b.states[:states], stateKey{}
}

// maxAsks bounds how often a batch is sent again with other windows of calendars:
// the first answer names every state that needs them.
const maxAsks = 8

// errAsks says that the calendars did not come to rest.
var errAsks = fmt.Errorf("%w: the calendar was asked for too often", ErrReply)

// ErrReply says that the script's reply can't be right.
var ErrReply = errors.New("unexpected reply of the script")

// Execute sends the batch and works out its answers. The script may ask for another form of the
// batch before it decides: whole, with holds, or with windows of calendars. It has done nothing then,
// and the batch is sent again. The error is the connection's, ErrLayout or ErrReply.
func (b *Batch) Execute(ctx context.Context) error {
	for range maxAsks {
		b.encode()
		reply, err := b.target.Config.Eval(ctx, b.mix, b.keys, b.args)
		if err != nil {
			return err
		}
		again, err := b.decode(reply)
		switch {
		case errors.Is(err, ErrLayout):
			return err
		case err != nil:
			return fmt.Errorf("%w: %w", ErrReply, err)
		case !again:
			return nil
		}
	}
	return errAsks
}

// Client is whose state a limit of an operation is.
func (b *Batch) Client(p *OpLimit) string { return b.states[p.state].client }

// Answer gives an operation that was carried out its result, and what of it its caller wants to know besides. It
// returns the entry.
func (b *Batch) Answer(i int, op *stint.Op, result *stint.Result) *Entry {
	e := &b.entries[i]
	if e.hold != nil {
		if e.hold.err != nil {
			*result = stint.Result{Err: e.hold.err}
			return e
		}
		e.hold.tell(op.Hold())
	}
	*result = stint.Result{Decision: e.Decision}
	copy(op.Each, b.Outcomes(e))
	return e
}

// keyCopies are copies of the keys of callers that may leave before a batch has been answered, and may then use
// the memory of their keys for others. They are copied one behind another, so that an
// allocation lasts for many batches. Copies are never overwritten: a connection may still have
// to send a command whose batch was given up. The zero value is ready to use.
type keyCopies struct{ room strings.Builder }

// keyCopiesBytes is how much room is made at once.
const keyCopiesBytes = 4096

// keep returns a copy of a name.
func (n *keyCopies) keep(name string) string {
	if n.room.Cap()-n.room.Len() < len(name) {
		n.room.Reset()
		n.room.Grow(max(keyCopiesBytes, len(name)))
	}
	from := n.room.Len()
	n.room.WriteString(name)
	return n.room.String()[from:]
}

// permitsOf is how many permits a limit is asked for by a verb with n of them. Of a limit with a
// cost of its own, which a hold's end does not change, a Reserve has them below 0, and a Commit and
// a Cancel -1, as for every limit that keeps what was taken.
func permitsOf(l *layout.Limit, verb stint.Verb, n int64) int64 {
	cost, settles := l.Spec.Cost, l.Settles()
	switch {
	case verb == stint.VerbReserve && cost > 0:
		return -cost
	case verb == stint.VerbReserve:
		return n
	case verb == stint.VerbSettle && settles:
		return algorithm.Amount(n)
	case verb == stint.VerbSettle:
		return 0
	case verb < stint.VerbReserve || verb > stint.VerbList:
		return l.Spec.Takes(n)
	case !settles || !l.Returns():
		return -1
	case verb == stint.VerbCancel:
		return 0
	}
	return n
}
