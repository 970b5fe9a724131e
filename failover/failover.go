// Package failover answers for a store that can't be reached: it wraps a [stint.Store], bounds each call in time, and
// decides by a mode until the store can be reached again.
//
//	store, err := rueidis.Open(rueidis.Config{URL: url, Failover: failover.Config{Mode: failover.Local}})
//
// docs/reference/failures.md says for operators what each fault comes to.
//
// # When the store is unreachable
//
// A store that watches itself ([stint.Store] Watch), as that of package redisstore does, says when it can't be reached.
// Any other is watched here: it is unreachable when it leaves a call unanswered for Config.Timeout while no later one
// is answered, or when it fails three times in a row. Only time in which this process was awake counts. A caller's
// deadline alone makes no store unreachable, so the timeout of one policy concerns no other.
//
// From then on decisions take microseconds and the store is not called, except by one probe at a time: after about 50
// ms, then in growing intervals of up to half a second. A probe takes a permit of a policy of its own, so a replica, a
// full server and a user without permission don't pass. The first probe that succeeds ends the outage. Parts that fail
// apart ([stint.Shards]) are avoided and probed separately. When one becomes unreachable the others are asked at once.
//
// A part of the store that answers nobody for some 5 s is asked by one probe, so that an outage is noticed though
// nobody calls.
//
// A call that the store does not answer in time, or answers with a failure, is decided by the mode, too. But a call
// that this process had no time to send, or whose answer it had no time to read, fails with an error that wraps
// stint.ErrOverloaded in every mode, unless Config.AdmitOnOverload says otherwise: if load opened a limiter, anybody
// could open it by making load.
//
// # What is decided then
//
// A Take, Try or Reserve is answered by the policy's [Mode]; the decision is marked Degraded, its source is
// stint.SourceFailurePolicy. A cost above the limit itself is denied for good in every mode but Closed, as the store
// would. Of an operation over several policies, one that is Closed makes it fail; else the Local ones are decided, all
// together, and the Open ones admit. Peek, Reset, Settle, ResetAll and the ends of holds are never answered by a mode:
// they fail with an error that wraps stint.ErrUnavailable.
//
// Local decides by the limits divided by the largest number of processes (Config.Instances) that was seen within the
// policy's longest life: a window, two of a sliding counter, the time in which a bucket drains. Capacities, limits and
// debts are rounded down, but to at least 1 (a debt: to none). Rates are divided exactly, or to the nearest slower one
// that can be said, at least one permit in 366 days. Intervals, windows and names stay. A cost above the share but not
// above the limit is denied with a RetryAfter of a second, as the store may be back by then.
//
// # When it is back
//
// The store decides by what it knew before. What was admitted locally is not charged to it, so after an outage a client
// may have had its share beside the limit. The share stays spent, in this outage and the next, and comes back only as
// the limit does: a bucket refills at the share's rate, a window ends. A reset of the client, or of the policy, clears
// the share of this process, too.
//
// # The bound
//
// N processes admit a client together, with their shares and with the store, however many outages there are:
//
//	bucket:           C + S + 2 x R x (b - a) / P   in every interval [a, b]
//	window, counter:  L + S                         in each window
//	log:              L + S                         in every (t - W, t]
//
// S is the sum of the shares, max(1, C/N) or max(1, L/N) each, rounded down: at most max(C, N) or max(L, N). Of a
// process that decided locally while it counted fewer, that number counts instead of N. Over outages that last T in
// total the shares of a bucket refill R x T / P of the 2 x R x (b - a) / P.
//
// The bound does not cover a process that starts anew, which has spent nothing; one that starts during an outage and
// counts itself alone; a local store that forgets at its memory cap; and a store that loses its states. What a call
// whose answer was lost has taken counts twice.
package failover

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/watchdog"
)

// DefaultTimeout bounds a call of the store unless a Config says otherwise.
const DefaultTimeout = 100 * time.Millisecond

// Config says how a [Store] decides while the store that it wraps can't. The zero value is a good choice: it bounds a
// call to 100 ms and admits. For Open of packages rueidis and goredis, and for [Protect], every mode works without
// Local and Instances; for [New] the mode local needs both.
type Config struct {
	// Timeout bounds each call of the store, unless the caller's context ends earlier: 0 or more. Default: 0,
	// which is DefaultTimeout. With a short one more decisions are a mode's while the store is slow;
	// with a long one callers wait for it.
	Timeout time.Duration
	// Mode is what is done while the store can't decide, unless ForPolicy says otherwise.
	// Default: Open.
	Mode Mode
	// ForPolicy returns the options of a policy, if it has its own. It is asked once per policy.
	// Options that are not valid make the policy's operations fail with stint.ErrInvalid.
	// Default: nil, no policy has its own.
	ForPolicy func(*stint.Policy) (PolicyOptions, bool)
	// AdmitOnOverload has the mode decide, as if the store were unreachable, what this process is too busy to have the
	// store decide in time. A client that keeps the process busy is then not limited: it gives up the limits exactly when
	// there is most to do. Default: false, an error that wraps stint.ErrOverloaded, whatever the mode.
	AdmitOnOverload bool
	// Local decides for those whose mode is Local: a store in the process, such as
	// memstore.New makes, that nobody else uses and that lives as long as the process. It holds
	// the shares that clients have spent. Default: nil, which Open and Protect replace; New needs it if a mode is Local.
	Local stint.Store
	// Instances returns how many processes share the limits; less than 1 counts as 1. It
	// is asked by every local decision, and every 10 seconds, and must be safe for
	// concurrent use. A number that rises counts at once; one that falls counts for a policy
	// when the policy's longest life is over. Default: nil, which Open and Protect replace; New needs it if a mode is
	// Local, as N processes that each count themselves alone admit N times the limit.
	Instances func() int
	// StateChanged is called once for each change of the state of a shard, in order for
	// each, in the goroutine that noticed the change. It must not block, must not call the
	// store, and must be safe for concurrent use. Default: nil.
	StateChanged func(Change)
	// Answered is called for each Take, Try and Reserve that a mode answers instead of the store, with the key (of several
	// claims the first one's), whether it is admitted, and why the store could not decide. It runs in the caller's
	// goroutine, so it must not block. It must be safe for concurrent use. Default: nil.
	Answered func(key string, allowed bool, cause error)
}

// ensureDefaults fills in what is missing. Faults have been looked for before, since a mode that needs
// Instances must not get one that counts 1 by itself.
func (c *Config) ensureDefaults() {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Instances == nil {
		c.Instances = func() int { return 1 }
	}
}

// Validate reports everything that is wrong with the configuration, joined. That Local or Instances is missing for the
// mode local is no fault yet, but is one for [New].
func (c Config) Validate() error {
	var faults []error
	if c.Timeout < 0 {
		faults = append(faults, stint.Invalid("Timeout", c.Timeout, "0 or more"))
	}
	if c.Mode > Local {
		faults = append(faults, stint.Invalid("Mode", uint8(c.Mode), "open, closed or local"))
	}
	return prefix.Join(faults...)
}

// validate reports everything that is wrong with what New is given.
func (c *Config) validate(store stint.Store) error {
	faults := []error{c.Validate()}
	if store == nil {
		faults = append(faults, stint.Invalid("store", "nil", "a store such as redisstore.New makes"))
	}
	if c.Mode == Local && c.Local == nil {
		faults = append(faults, stint.Invalid("Local", "nil", "a store such as memstore.New makes, for the mode local"))
	}
	if c.Mode == Local && c.Instances == nil {
		faults = append(faults, stint.Invalid("Instances", "nil",
			"a function that counts the processes that share the limits, "+
				"for the mode local: redisstore.Store's Instances, or one that returns 1 if there is one process"))
	}
	return prefix.Join(faults...)
}

// A Store is a stint.Store that answers when the store it wraps can't. It is safe
// for concurrent use; make it with [New].
type Store struct {
	// wrapped decides as long as it can.
	wrapped stint.Store
	config  Config
	// shared is what Protect was given, which Close closes; nil: New made the store.
	shared Shared
	// counted says that Config.Instances is given.
	counted bool
	// shardOf is nil if there is one shard.
	shardOf func(key string) int
	shards  []*shard
	// probing is the policy of which probes take a permit.
	probing *stint.Policy

	// watchdog watches the store's calls; it is nil if the store watches itself.
	watchdog *watchdog.Watchdog
	// calls has *watchdog.Call.
	calls sync.Pool

	owner byte // of the plans that policies carry

	// copies has *[]stint.Op, for DecideAll.
	copies sync.Pool

	life   context.Context
	end    context.CancelFunc
	work   sync.WaitGroup
	mu     sync.Mutex // guards closed, and the adding of work
	closed bool

	instances instances
	counts    counts
}

// New makes a failover store, or reports everything that is wrong with its arguments. The store decides as long as it
// can, and must not be nil. The caller closes it, after the failover store. Once it has returned it must not touch what
// the caller passed: neither results nor Each. It has to heed the Timeout of operations. Nothing is asked of it yet:
// whether it can be reached is found by the first operation, or by the probe of an idle store.
func New(store stint.Store, config Config) (*Store, error) {
	if err := config.validate(store); err != nil {
		return nil, err
	}
	counted := config.Instances != nil
	config.ensureDefaults()
	probing, err := stint.NewPolicy("failover.probe", stint.FixedWindow(bounds.MaxPermits, time.Second))
	if err != nil {
		return nil, err
	}
	s := &Store{wrapped: store, config: config, counted: counted, probing: probing}
	var made sync.WaitGroup // a report waits until there are shards
	made.Add(1)
	defer made.Done()
	shards := store.Watch(config.Timeout, func(shard int, cause error) {
		if made.Wait(); shard < len(s.shards) { // there are none if New fails
			s.shards[shard].unreachable(cause)
		}
	})
	if shards.Count > 1 {
		s.shardOf = shards.Of
	}
	keys, err := s.probeKeys(max(shards.Count, 1))
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		s.shards = append(s.shards, &shard{store: s, index: i, key: key})
	}
	s.life, s.end = context.WithCancel(context.Background())
	if shards.Count == 0 {
		s.watchdog = watchdog.New(watchdog.Config{
			Timeout: config.Timeout, Unreachable: s.shards[0].unreachable, Try: s.shards[0].try,
		})
	}
	s.instances.count = s.config.Instances
	s.start(s.probeIdle)
	if config.Local != nil {
		s.start(s.countInstances)
	}
	return s, nil
}

// probeKeys finds for each shard a key that belongs to it. Keys are tried one after another, so
// that they are the same in all processes.
func (s *Store) probeKeys(shards int) ([]string, error) {
	const triesPerShard = 1000
	keys := make([]string, shards)
	missing := shards
	for i := 0; missing > 0 && i < shards*triesPerShard; i++ {
		key := fmt.Sprintf("failover.probe:%d", i)
		at := 0
		if s.shardOf != nil {
			at = s.shardOf(key)
		}
		if at < 0 || at >= shards {
			return nil, stint.Invalid("store", fmt.Sprintf("shard %d of %d", at, shards), "a store that knows its shards")
		}
		if keys[at] == "" {
			keys[at] = key
			missing--
		}
	}
	if missing > 0 {
		return nil, stint.Invalid("store", fmt.Sprintf("%d shards without a key", missing), "a store whose shards have keys")
	}
	return keys, nil
}

// A waker is a store that tells when permits come back, see [stint.Store].
type waker interface {
	Wake(key string, policy *stint.Policy, wake func()) (stop func())
}

// Wake tells when permits come back, see [stint.Store], as far as the store does.
func (s *Store) Wake(key string, policy *stint.Policy, wake func()) (stop func()) {
	if w, tells := s.wrapped.(waker); tells {
		return w.Wake(key, policy, wake)
	}
	return func() {}
}

// Close ends probing, and waits for a probe that is under way, at most one
// deadline. It closes the store only if [Protect] was given it. Afterwards the state stays as it is.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	if s.watchdog != nil {
		s.watchdog.Close()
	}
	s.work.Wait()
	if s.shared != nil {
		s.shared.Close()
	}
}

// start runs work in the background, unless the store is closed.
func (s *Store) start(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Go(work)
	}
	return !s.closed
}

// Watch implements [stint.Store]. A store that answers when the one below can't is never unreachable.
func (s *Store) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{Count: 1} }
