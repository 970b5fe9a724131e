package redisstore

import (
	"context"
	"errors"
	"fmt"
	"unique"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/watchdog"
)

// A batch is one script call: the operations it carries, the states they use, and what is sent.
// Batches are used again.
//
// Its life: add (operations, as long as it may), encode, one script call, decode (which replays the
// operations on the states that came back), complete. If the script answers that it needs another
// form, encode and the call come again.
//
// One sender at a time has a batch, so it has no lock; what its callers may touch meanwhile is the
// call's.
type batch struct {
	store    *Store
	batcher  *batcher
	layout   *layout
	watched  watchdog.Call
	entries  []entry
	common   rare // of all plain takes; nobody writes into it
	opLimits []opLimit
	states   []stateRef
	outcomes []stint.Outcome // by opLimit
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
	asked  map[int32]stint.Instant
	sentAt sendMark

	encoding
}

// entry is one operation under way, copied, since its caller may leave. An entry has limitCount
// limits from firstLimit on in the batch's opLimits, and as many outcomes.
type entry struct {
	call *call
	// rare is never nil. Plain takes share the batch's common one.
	*rare
	index      int32 // in the call
	firstLimit int32
	limitCount int32
	verb       stint.Verb
	// growth says that the caller wants to know when more permits come.
	growth bool
	// logs says that one of its limits is a log, whose outcomes the script answers.
	logs bool
	// cached says that a denial may be remembered.
	cached   bool
	answered bool // by an earlier script, which met states with holds
	decision stint.Decision
}

// rare is what few entries have. Most are takes. A batch has an entry for each, so that their size
// counts.
type rare struct {
	// takenAt is when what is returned was taken.
	takenAt stint.Instant
	hold    *holdEntry   // of a Reserve, Commit or Cancel
	live    []stint.Hold // that are listed
	// ways are those of its limits; nil: it has none.
	ways []uint16
	// bound are the same of a Reserve, bound to those that its hold is on.
	bound []uint16
	via   uint8 // the way that a hold is on
	// bulk is how many permits to take after a take of one, one after another: a lease chunk.
	bulk         int64
	bulkAdmitted int64
}

// rareOf is the rare part of an operation's entry.
func (b *batch) rareOf(c *call, op *stint.Op) *rare {
	if op.Verb <= stint.VerbPeek && c.bulk == 0 && op.Extra == nil {
		return &b.common
	}
	return &rare{takenAt: c.takenAt, ways: decide.Ways(op, nil), bulk: c.bulk}
}

// refund is a verb that no caller has: it returns permits taken at an instant,
// each limit's own and nobody else's, where that is still possible. It is for token
// buckets, fixed windows and sliding window counters.
const refund = stint.VerbList + 1

// returnLease is refund for permits that were leased and not spent: of a token bucket less
// what it has refilled since.
const returnLease = refund + 1

// bulkTake is how an entry's bulk is sent in the script's first part.
const bulkTake = returnLease + 1

// opLimit is one limit of an operation. asked is what the claim asks for, permits what the limit
// takes of that: they differ for a limit with a cost of its own.
type opLimit struct {
	limit   *limit // of the operation; a reset's may differ from the state's
	state   int32
	keep    int32 // how many are left to others
	permits int64 // that the limit is asked for, of those of the claim
	asked   int64
}

// stateRef is a state that operations of the batch use.
type stateRef struct {
	limit  *limit
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

// newBatch makes a batch, most often of one that has been answered.
func newBatch(br *batcher) *batch {
	s := br.store
	b, used := s.batchPool.Get().(*batch)
	if !used {
		b = &batch{
			stateIndex: map[stateKey]int32{},
			encoding:   encoding{descriptions: map[*limit]int{}, groups: map[groupKey]*group{}, epochs: map[string]int64{}},
		}
	}
	b.store, b.batcher, b.layout, b.maxLimits = s, br, br.layout.Load(), s.options.MaxBatch
	return b
}

// recycle keeps the batch for later, without what it pointed to.
func (b *batch) recycle() {
	clear(b.entries)
	for i := range b.states {
		b.states[i] = stateRef{runs: b.states[i].runs[:0]}
	}
	b.entries, b.opLimits, b.states, b.limitCount, b.mixed = b.entries[:0], b.opLimits[:0], b.states[:0], 0, false
	clear(b.stateIndex)
	b.lastKey = stateKey{}
	b.clearEncoding()
	s := b.store
	b.asked, b.store, b.batcher, b.layout, b.fullScript, b.holds, b.usualLeft = nil, nil, nil, nil, false, false, false
	s.batchPool.Put(b)
}

// add adds an operation. It reports false when it has to be sent later: the batch is full, or it
// uses a state of the operation under other parameters, or for the last time. So states of one
// limit under two versions never meet in a batch: the script takes over a state once.
func (b *batch) add(c *call, index int, op *stint.Op) bool {
	limits := op.Limits()
	if len(b.entries) > 0 && b.limitCount+limits > b.maxLimits {
		return false
	}
	e := entry{
		call: c, rare: b.rareOf(c, op), index: int32(index), verb: op.Verb, growth: op.Each != nil,
		firstLimit: int32(len(b.opLimits)), limitCount: int32(limits),
		cached: b.store.denials != nil && op.Verb <= stint.VerbTry,
	}
	states, claimed := len(b.states), true
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		if claimed = b.addClaim(&e, claim); !claimed {
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
	all := b.limitsOf(&e)
	if e.logs || op.Verb >= stint.VerbReset || limits > 1 || len(e.ways) > 0 {
		for i := range all {
			ref := &b.states[all[i].state]
			ref.runsOnly = false
			ref.sealed = op.Verb == stint.VerbReset && ref.limit.calendar()
		}
	} else if op.Verb != stint.VerbPeek {
		ref := &b.states[all[0].state]
		ref.addRun(run{all[0].permits, int64(all[0].keep), 1})
		if e.bulk > 0 {
			ref.addRun(run{1, 0, e.bulk})
		}
	}
	b.entries = append(b.entries, e)
	return true
}

// limitsOf are the limits of an operation.
func (b *batch) limitsOf(e *entry) []opLimit {
	return b.opLimits[e.firstLimit : e.firstLimit+e.limitCount]
}

// outcomesOf are the outcomes of an operation's limits.
func (b *batch) outcomesOf(e *entry) []stint.Outcome {
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

// same reports whether two limits of one identity have the same parameters.
func (l *limit) same(o *limit) bool { return l == o || l.limit == o.limit }

// find finds a state that the batch uses. Most often it is the one that was asked
// for last, when one client is what most ask for.
func (b *batch) find(l *limit, client string) (at int32, known bool) {
	key := stateKey{l.identity, client}
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
func (b *batch) addState(l *limit, client string) (at int32) {
	n := len(b.states)
	if n < cap(b.states) {
		b.states = b.states[:n+1]
	} else {
		b.states = append(b.states, stateRef{})
	}
	ref := &b.states[n]
	*ref = stateRef{
		limit: l, client: client, partition: int32(b.layout.partition(client)),
		runsOnly: !l.HasLog() && !l.calendar(), runs: ref.runs[:0],
	}
	b.lastKey, b.lastIndex = stateKey{l.identity, client}, int32(n)
	b.stateIndex[b.lastKey] = b.lastIndex
	return b.lastIndex
}

// addClaim adds the limits of a claim. It reports false when the batch may not use one
// of its states.
func (b *batch) addClaim(e *entry, claim *stint.Claim) bool {
	plan := b.layout.plan(claim.Policy)
	client, lasts := claim.Key, e.call.ctx.Done() == nil && e.call.timeout == 0
	for i := range plan {
		l := &plan[i]
		at, known := b.find(l, client)
		switch {
		case !known:
			if !lasts {
				client, lasts = b.keyCopies.keep(client), true
			}
			at = b.addState(l, client)
		case len(b.entries) > 0 && (b.states[at].sealed || !l.same(b.states[at].limit)):
			return false
		}
		e.logs = e.logs || l.HasLog()
		e.cached = e.cached && !l.limit.CountDenied
		b.mixed = b.mixed || l.HasLog() || l.calendar()
		b.holds = b.holds || l.limit.Algorithm == stint.AlgorithmConcurrency
		b.opLimits = append(b.opLimits, opLimit{
			limit: l, state: at, keep: int32(claim.Keep), permits: l.permits(e.verb, claim.Permits), asked: claim.Permits,
		})
	}
	return true
}

// removeClaims takes back what was added for an operation that has to be sent later: its limits,
// and the states that were not there before.
func (b *batch) removeClaims(e *entry, states int) {
	b.opLimits = b.opLimits[:e.firstLimit]
	for i := range b.states[states:] {
		ref := &b.states[states+i]
		delete(b.stateIndex, stateKey{ref.limit.identity, ref.client})
		*ref = stateRef{runs: ref.runs[:0]}
	}
	b.states, b.lastKey = b.states[:states], stateKey{}
}

// maxAsks bounds how often a batch is sent again with other windows of calendars:
// the first answer names every state that needs them.
const maxAsks = 8

// errAsks says that the calendars did not come to rest.
var errAsks = fmt.Errorf("%w: the calendar was asked for too often", errReply)

// errReply says that the script's reply can't be right.
var errReply = errors.New("unexpected reply of the script")

// execute sends the batch and works out its answers. The script may ask for another form of the
// batch before it decides: whole, with holds, or with windows of calendars. It has done nothing then,
// and the batch is sent again.
func (b *batch) execute(ctx context.Context) error {
	b.sentAt = b.store.denials.mark()
	for range maxAsks {
		b.encode()
		reply, err := b.store.conn.Eval(ctx, b.store.script(b.mix), b.keys, b.args)
		if err != nil {
			return unavailable(err)
		}
		again, err := b.decode(reply)
		switch {
		case errors.Is(err, errLayout), errors.Is(err, stint.ErrInvalid):
			return unavailable(err)
		case err != nil:
			return unavailable(fmt.Errorf("%w: %w", errReply, err))
		}
		if !again {
			b.store.batches.Add(1)
			b.store.operations.Add(uint64(len(b.entries)))
			b.updateDenials()
			return nil
		}
	}
	return unavailable(errAsks)
}

// updateDenials keeps the denials that the batch brought, and forgets those that it made
// wrong.
func (b *batch) updateDenials() {
	for i := range b.entries {
		e := &b.entries[i]
		if e.verb == stint.VerbReset {
			b.store.leases.forgetClients(b, e)
		}
		switch {
		case e.verb == stint.VerbReset || e.verb > stint.VerbReserve && e.verb != stint.VerbList ||
			e.verb == stint.VerbSettle && e.decision.Applied < 0:
			if b.store.denials != nil {
				for _, p := range b.limitsOf(e) {
					b.store.denials.announce(b.states[p.state].client)
				}
			}
		case b.store.denials == nil || e.verb == stint.VerbPeek:
		case e.decision.Allowed || e.bulkAdmitted > 0:
			b.forgetDenials(e)
		case e.cached:
			b.keepDenial(e)
		}
	}
}
