// Package activity is what a service knows of its recent traffic, in bounded memory: totals and
// rules over time, the heaviest and the most denied clients, who was denied by which rule, a sample of
// recent decisions, and changes of the store and of rules; and the admin API that shows it. Processes
// share summaries of it through Redis, and ask each other there for denials.
//
//	recorder := activity.New(activity.Config{})
//	go recorder.Run(ctx)
//	...
//	recorder.Observe(ctx, event)
//
// Its Handlers answer [PathStats], [PathTop], [PathDenials], [PathTimeline], [PathProcesses] and
// [PathEvents].
//
// What a [Recorder] keeps, each part with its own bound:
//
//   - totals and rules by the second and minute (series.go), maxRules rules at most
//   - the heaviest and the most denied clients of the last minutes (top.go, by package topk)
//   - the last pairs of rule and client that were denied, each with its last request, and the last
//     changes (denials.go)
//   - recent decisions in a ring of segments, of a sample of clients if there are too many
//     (recent.go)
//
// Observe is on the way of every decision, so it takes one lock for a moment, allocates next to
// nothing, and formats nothing. Everything that is shown is made by those who ask: the admin API
// (handler.go), streams of events (events.go), the summary that processes share (share.go) and what
// they ask each other (questions.go).
package activity

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/keyhash"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/promlimit"
)

// A Config says how a [Recorder] is made. The zero value is that of a process that shares nothing.
type Config struct {
	// Process describes this process to the others. An empty Name becomes one by chance.
	Process Process
	// Eval runs a script in the Redis that the processes share. Default: nil, nothing is shared.
	Eval Eval
	// KeyPrefix begins the name of the one key in that Redis. Default: "", which is rate_limiter.
	KeyPrefix string
	// StoreFigures are the store's. It is called each second while somebody looks, and must be safe for concurrent use.
	// Default: nil, they are not known.
	StoreFigures func() StoreFigures
	// Now is the time. Default: nil, time.Now.
	Now func() time.Time
}

// A Process is a service, as others see it.
type Process struct {
	Name    string `json:"name"`
	Host    string `json:"host"`
	Version string `json:"version"`
	// default: when the recorder is made
	StartedAt stint.Instant `json:"startedAt"`
	// API is where its REST API listens, such as http://0.0.0.0:8080, as configured. Default: "", not
	// known.
	API string `json:"api,omitempty"`
}

// An Outcome is what came of a request. The zero value is Admitted.
type Outcome uint8

// The outcomes. What a rule in shadow says is counted for that rule and not in totals.
const (
	Admitted Outcome = iota
	Denied
	ShadowAdmitted
	ShadowDenied
)

// String is the outcome's name in answers.
func (o Outcome) String() string {
	names := [...]string{"admitted", "denied", "shadow_admitted", "shadow_denied"}
	return names[o&3]
}

// outcomeOf is what came of an event.
//
// ShadowAdmitted and ShadowDenied follow Admitted and Denied, so that adding suffices.
func outcomeOf(e *stint.Event) Outcome {
	outcome := Admitted
	if !e.Decision.Allowed {
		outcome = Denied
	}
	if e.Shadow {
		outcome += ShadowAdmitted
	}
	return outcome
}

// What is kept of texts, in bytes.
const (
	maxClient    = 256
	maxPath      = 256
	maxMethod    = 16
	maxRequestID = 48
)

// A Recorder counts what a service decides. It is safe for concurrent use; make it with [New]. It
// uses at most 22 MiB, and 32 MiB more for recent decisions. The lock order is hub.mu, then mu.
type Recorder struct {
	config Config
	seed   keyhash.Seed
	// secret is what clients are masked by, for those who may not see names.
	secret [32]byte
	hub    hub
	shared shared
	// named are the attributes of denied requests that are kept; nil are none.
	named atomic.Pointer[[]string]

	mu           sync.Mutex // guards what follows
	totals       totals
	rules        ruleTable
	heaviest     sliding
	denied       sliding
	shadowDenied sliding
	denials      denials
	recent       recent
	changes      changes
}

// New makes a recorder.
func New(config Config) *Recorder {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.KeyPrefix == "" {
		config.KeyPrefix = "rate_limiter"
	}
	r := &Recorder{config: config, seed: keyhash.MakeSeed()}
	r.identify()
	r.rules.init()
	r.heaviest.init()
	r.denied.init()
	r.shadowDenied.init()
	r.recent.init()
	r.denials.init()
	r.hub.init()
	return r
}

// Observe counts a decision, as a [stint.Observer]. It allocates once in some thousand calls. Of the event it keeps the
// texts of Rule, Class, Reason and the limit's name, and copies of the others.
func (r *Recorder) Observe(_ context.Context, e *stint.Event) {
	if e.Marked && e.Decision.Allowed { // by how much is used: the request is counted already
		return
	}
	client := e.Claim.Key[:min(len(e.Claim.Key), maxClient)]
	hash := keyhash.String(r.seed, client)
	key := bits.RotateLeft64(hash, 32) ^ keyhash.String(r.seed, e.Rule) // turned, so that a rule may be named as a client
	second, outcome := uint32(e.At/1e6), outcomeOf(e)
	var buffer [maxAttributes]byte
	attributes := buffer[:0]
	if names := r.named.Load(); names != nil && !e.Decision.Allowed && len(e.Attributes) > 0 {
		attributes = appendAttributes(attributes, *names, e.Attributes)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.count(second, e)
	if e.Rule != "" {
		r.rules.find(e.Rule, second).count(second, outcome, !e.Shadow && promlimit.Near(&e.Decision))
	}
	if outcome == Denied || outcome == ShadowDenied {
		r.denials.add(e, key, client, attributes)
	}
	if outcome == ShadowDenied && client != "" {
		r.shadowDenied.count(second/60, key, e.Rule, client)
	}
	if e.Shadow { // which is no request of its own
		return
	}
	if client != "" {
		r.heaviest.count(second/60, key, e.Rule, client)
		if outcome == Denied {
			r.denied.count(second/60, key, e.Rule, client)
		}
	}
	r.recent.add(e, hash, client)
}

// StoreChanged notes that the store, or a shard of it, became unreachable for a cause, or with "" that it can be
// reached again.
func (r *Recorder) StoreChanged(shard int, cause string) {
	state := "up"
	if cause != "" {
		state = "unreachable"
	}
	r.changed(Change{Kind: "store", State: state, Shard: shard, Detail: cause})
}

// RulesChanged notes that rules of another revision are in force, with what changed in words, and the names of the
// attributes that are kept of requests that are denied from then on.
func (r *Recorder) RulesChanged(revision, detail string, attributes []string) {
	r.named.Store(&attributes)
	r.changed(Change{Kind: "rules", State: revision, Detail: detail})
}

// changed keeps a change, with its texts shortened.
func (r *Recorder) changed(c Change) {
	const most = 512
	c.At, c.Detail, c.State = r.now(), clip.To(most, c.Detail), clip.To(maxClient, c.State)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes.add(c)
}

// now is the time by the recorder's clock.
func (r *Recorder) now() stint.Instant { return stint.Instant(r.config.Now().UnixMicro()) }

// Run counts and publishes what was observed, each second, until ctx is done; then it ends all
// streams. Without it only those who ask have it counted, there are no events, and other processes
// are told nothing.
func (r *Recorder) Run(ctx context.Context) {
	var sharing sync.WaitGroup
	sharing.Go(func() { r.share(ctx) })
	defer sharing.Wait()
	defer r.hub.end()
	sleep.Every(ctx, time.Second, r.publish)
}
