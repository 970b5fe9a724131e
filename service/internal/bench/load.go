// Package bench is a load test that verifies. It asks a target for decisions, in an open or a
// closed loop, and holds every decision against the limit: exactly by the time of the decision,
// where the target tells it, or else by the times of sending and receiving.
//
// A [Load] says what is asked: how many callers, at which rate, for how long, which keys. A
// [Target] asks it of something: a store in this process, REST, Envoy's protocol, or Redis'.
// [Load.Run] gathers all answers in a [Run], and a [Report] is made of one Run for each target:
// latencies, rates, and the findings of verifying. Targets are asked by many goroutines at once.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/load"
)

// A Target makes one decision for a key. It is safe for concurrent use.
type Target func(ctx context.Context, key string) (Answer, error)

// An Answer is what a target decided.
type Answer struct {
	// At is the store's time of the decision. 0: the target doesn't tell it.
	At stint.Instant
	// Allowed says that the request was admitted.
	Allowed bool
	// Degraded says that a failure policy decided in the store's place.
	Degraded bool
}

// MaxRequests is how many requests a run may have. Each is kept, in about 100 bytes.
const MaxRequests = 5_000_000

// A Load is how a target is asked.
type Load struct {
	// Rate is how many requests are due in an open loop, whatever is answered and when. The zero Rate is a closed loop:
	// each caller asks again when it is answered.
	Rate stint.Rate
	// Callers is how many requests are in flight at most. A request of an open loop that finds no free caller is sent
	// late; its latency counts from when it was due.
	Callers int
	// The load ends after Length, more than 0, or after so many Requests, whichever is first.
	Length   time.Duration
	Requests int
	// Keys is the number of keys, and Distribution how often each is asked for: hot, all requests are for one; uniform;
	// or zipf, the k-th has k^-1.1 times the first one's.
	Keys         int
	Distribution string
	// Prefix begins all keys, so that they have no state from before.
	Prefix string

	sleep func(time.Duration) // of tests; nil: in a thread
}

// Validate reports the first fault of the load.
func (l *Load) Validate() *stint.InvalidError {
	switch {
	case l.Callers < 1 || l.Callers > 10_000:
		return stint.Invalid("callers", l.Callers, "1 to 10000")
	case l.Requests < 1 || l.Requests > MaxRequests:
		return stint.Invalid("requests", l.Requests, fmt.Sprintf("1 to %d", MaxRequests))
	case l.Keys < 1 || l.Keys > MaxRequests:
		return stint.Invalid("keys", l.Keys, fmt.Sprintf("1 to %d", MaxRequests))
	case !slices.Contains([]string{"hot", "uniform", "zipf"}, l.Distribution):
		return stint.Invalid("distribution", l.Distribution, "hot, uniform or zipf")
	}
	return nil
}

// A record is one request and its answer. Durations count from the start of the run.
type record struct {
	Answer

	err                 error // no answer came; the target may have decided all the same
	key                 int32
	due, sent, received time.Duration
}

// A Run is what a target answered.
type Run struct {
	names   []string // of keys
	start   time.Time
	elapsed time.Duration // until the last answer
	ended   string        // early, by: requests, or interrupted
	records []record
}

// Run asks the target until the load is over, or the context ends; requests in flight are then still answered.
func (l *Load) Run(ctx context.Context, ask Target) *Run {
	r := &Run{names: make([]string, l.Keys), start: time.Now()}
	for i := range r.names {
		r.names[i] = fmt.Sprintf("%s-%d", l.Prefix, i)
	}
	records, picks := make([][]record, l.Callers), make([]func() int32, l.Callers)
	for caller := range picks {
		picks[caller] = l.picker(uint64(caller))
	}
	plan := load.Plan{Callers: l.Callers, Rate: l.Rate, Length: l.Length, Questions: l.Requests, Sleep: l.sleep}
	plan.Ask = func(caller, _ int, due time.Time) {
		did := record{key: picks[caller](), sent: time.Since(r.start)}
		did.due = did.sent
		if !due.IsZero() {
			did.due = due.Sub(r.start)
		}
		did.Answer, did.err = ask(context.WithoutCancel(ctx), r.names[did.key])
		did.received = time.Since(r.start)
		if did.err != nil {
			did.Answer = Answer{}
		}
		records[caller] = append(records[caller], did)
	}
	plan.Run(ctx)
	r.records = slices.Concat(records...)
	for i := range r.records {
		r.elapsed = max(r.elapsed, r.records[i].received)
	}
	switch {
	case ctx.Err() != nil:
		r.ended = "interrupted"
	case len(r.records) == l.Requests:
		r.ended = "requests"
	}
	return r
}

// picker makes what chooses a caller's keys.
func (l *Load) picker(caller uint64) func() int32 {
	random := rand.New(rand.NewPCG(caller, uint64(l.Keys))) //nolint:gosec // keys needn't be secret
	switch l.Distribution {
	case "hot":
		return func() int32 { return 0 }
	case "zipf":
		zipf := rand.NewZipf(random, 1.1, 1, uint64(l.Keys-1))
		return func() int32 { return int32(zipf.Uint64()) }
	default:
		return func() int32 { return random.Int32N(int32(l.Keys)) }
	}
}
