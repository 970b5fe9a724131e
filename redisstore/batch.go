package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

const (
	// maxLimits bounds the limits that one script call decides, since the server does
	// nothing else meanwhile.
	maxLimits = 512
	// maxFlights bounds the script calls of one batch that are under way at once.
	maxFlights = 32
	// maxAsks bounds how often operations are sent again with other edges of the
	// calendar: once for each limit would do.
	maxAsks = 2 * maxLimits
)

// DecideAll implements [stint.Store]. On one server a batch is one script call, or
// a few if it is large; on a cluster, one per client, sent side by side.
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	valid := make([]int, 0, len(ops))
	for i := range ops {
		results[i] = stint.Result{Err: s.check(ctx, &ops[i])}
		if results[i].Err == nil {
			valid = append(valid, i)
		}
	}
	if !s.conn.Cluster() {
		s.decideInOrder(ctx, ops, results, valid)
		return
	}
	clients := map[string][]int{}
	for _, i := range valid {
		clients[ops[i].Key] = append(clients[ops[i].Key], i)
	}
	var flights sync.WaitGroup
	gate := make(chan struct{}, maxFlights)
	for _, places := range clients {
		gate <- struct{}{}
		flights.Go(func() {
			s.decideInOrder(ctx, ops, results, places)
			<-gate
		})
	}
	flights.Wait()
}

// check reports what forbids an operation before anything is sent.
func (s *Store) check(ctx context.Context, op *stint.Op) error {
	if err := op.Validate(); err != nil {
		return err
	}
	if s.conn.Cluster() {
		for i := range op.And {
			if op.And[i].Key != op.Key {
				return stint.Invalid("claims", op.And[i].Key, fmt.Sprintf("the key of the first, %q: on a cluster keys are in different slots", op.Key))
			}
		}
	}
	return ctx.Err()
}

// decideInOrder carries out the operations at the given places, one flight after
// another.
func (s *Store) decideInOrder(ctx context.Context, ops []stint.Op, results []stint.Result, places []int) {
	for len(places) > 0 {
		n, limits := 0, 0
		for n < len(places) && (n == 0 || limits+ops[places[n]].Limits() <= maxLimits) {
			limits += ops[places[n]].Limits()
			n++
		}
		s.fly(ctx, ops, results, places[:n])
		places = places[n:]
	}
}

// ask is a limit whose calendar the script wants around another time.
type ask struct {
	op, limit int // places in the batch and in the operation
	around    stint.Instant
}

// fly carries out operations with one script call, and with further ones from the
// first on whose calendar turned out to be elsewhere: when the clocks disagree across
// a boundary, or a state comes from another time.
func (s *Store) fly(ctx context.Context, ops []stint.Op, results []stint.Result, places []int) {
	var asks []ask
	for len(places) > 0 && len(asks) <= maxAsks {
		f := newFlight(s, asks)
		for _, i := range places {
			f.add(i, &ops[i])
		}
		reply, err := s.conn.Eval(ctx, f.keys, f.args())
		var again *ask
		if err == nil {
			places, again, err = read(reply, ops, results, places)
		}
		if err != nil {
			if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
				err = unavailable(err)
			}
			for _, i := range places {
				results[i] = stint.Result{Err: err}
			}
			return
		}
		if again != nil {
			asks = append(asks, *again)
		}
	}
	for _, i := range places {
		results[i] = stint.Result{Err: unavailable(errors.New("the calendar was asked for too often"))}
	}
}

// flight is one script call being put together.
type flight struct {
	store        *Store
	guess        stint.Instant // of the server's time, for calendars
	asks         []ask
	keys         []string
	descriptions []string
	described    map[string]string // a description's number, from 1
	ops          []string
}

func newFlight(s *Store, asks []ask) *flight {
	guess := stint.Instant(time.Now().UnixMicro())
	if s.options.Now != nil {
		guess = s.options.Now()
	}
	return &flight{store: s, guess: guess, asks: asks, described: map[string]string{}}
}

// add adds the operation at a place in the batch.
func (f *flight) add(place int, op *stint.Op) {
	growth := "0"
	if op.Each != nil {
		growth = "1"
	}
	f.ops = append(f.ops, op.Verb.String(), growth, strconv.Itoa(op.Limits()))
	next := f.addClaim(op.Verb, &op.Claim, place, 0)
	for i := range op.And {
		next = f.addClaim(op.Verb, &op.And[i], place, next)
	}
}

// addClaim adds a claim whose first limit is the operation's limit number first, and
// returns the number after its last.
func (f *flight) addClaim(verb stint.Verb, claim *stint.Claim, place, first int) int {
	permits := claim.Permits
	if verb == stint.Settle {
		permits = algorithm.Amount(permits)
	}
	n := strconv.FormatInt(permits, 10)
	start := keyPrefix(f.store.options.KeyPrefix) + tag(claim.Key)
	plan := f.store.plan(claim.Policy)
	for i := range plan {
		f.keys = append(f.keys, start+plan[i].suffix)
		f.ops = append(f.ops, f.describe(plan[i].describeAt(f.around(place, first+i))), n)
	}
	return first + len(plan)
}

// around is the time around which to send a limit's calendar.
func (f *flight) around(place, limit int) stint.Instant {
	for i := len(f.asks) - 1; i >= 0; i-- {
		if f.asks[i].op == place && f.asks[i].limit == limit {
			return f.asks[i].around
		}
	}
	return f.guess
}

// describe returns the number of a description, which is sent once.
func (f *flight) describe(text string) string {
	number, known := f.described[text]
	if !known {
		f.descriptions = append(f.descriptions, text)
		number = strconv.Itoa(len(f.descriptions))
		f.described[text] = number
	}
	return number
}

// args is the script's ARGV.
func (f *flight) args() []string {
	args := make([]string, 0, 2+len(f.descriptions)+len(f.ops))
	now := ""
	if f.store.options.Now != nil {
		now = strconv.FormatInt(int64(f.store.options.Now()), 10)
	}
	args = append(args, now, strconv.Itoa(len(f.descriptions)))
	args = append(args, f.descriptions...)
	return append(args, f.ops...)
}

// outcomeInts is how many integers the script replies for a limit.
const outcomeInts = 7

// errReply says that the reply is not what this version of the script sends.
var errReply = errors.New("unexpected reply of the script")

// read takes the reply apart. It returns the places of the operations that were not
// carried out, and what the script asks about the first of them.
func read(reply []int64, ops []stint.Op, results []stint.Result, places []int) (left []int, again *ask, err error) {
	if len(reply) == 0 {
		return places, nil, errReply
	}
	at := stint.Instant(reply[0])
	reply = reply[1:]
	var buffer [8]stint.Outcome
	for n, i := range places {
		op := &ops[i]
		if len(reply) == 3 && reply[0] == 1 {
			return places[n:], &ask{op: i, limit: int(reply[1]), around: stint.Instant(reply[2])}, nil
		}
		limits := op.Limits()
		if len(reply) < 1+limits*outcomeInts {
			return places[n:], nil, errReply
		}
		reply = reply[1:]
		outcomes := op.Each
		if outcomes == nil {
			outcomes = buffer[:]
			if limits > len(buffer) {
				outcomes = make([]stint.Outcome, limits)
			}
		}
		outcomes = outcomes[:limits]
		for j := range outcomes {
			outcomes[j] = outcome(reply[:outcomeInts], op.LimitAt(j))
			reply = reply[outcomeInts:]
		}
		results[i].Decision = stint.Combine(outcomes, at)
	}
	if len(reply) != 0 {
		return places, nil, errReply
	}
	return nil, nil, nil
}

func outcome(n []int64, limit stint.Limit) stint.Outcome {
	o := stint.Outcome{
		Allowed: n[0] == 1, Limit: limit.Capacity, Remaining: n[1], RetryAfter: stint.Never,
		ResetAfter: micros(n[3]), Delay: micros(n[4]), Applied: n[5], GrowsAfter: micros(n[6]),
	}
	if n[2] >= 0 {
		o.RetryAfter = micros(n[2])
	}
	return o
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
