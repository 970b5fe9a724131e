// Package redisstore keeps limiter state in Redis (6.2 or later) or Valkey, for several processes
// to share. Every operation is decided inside the server and by its clock. docs/redis.md describes
// the batches, the keys, and what is guaranteed when servers fail.
//
// A [Store] is made by [New] on a connection that packages rueidis and goredis make; this
// package itself requires no client of Redis. It is safe for concurrent use and made to be shared
// by all of a program: operations that come at the same time travel together, in batches of one
// script call each (batcher, batch), which the script decides in order.
//
// Begin with [Options] for what can be chosen, with protocol.go for what is sent and answered, and
// with batch.lua for what the server does.
package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/redisstore/internal/layout"
	"github.com/stint-go/stint/redisstore/internal/queue"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// A Store is a stint.Store in Redis or Valkey. It is safe for concurrent use.
type Store struct {
	conn      redisconn.Conn
	options   Options
	shards    int          // see Shards
	channel   string       // for announcements
	denials   *denialCache // nil for none
	leases    *leases
	instances *instances // nil for not counting

	wire      wire.Config
	queue     queue.Config
	routes    atomic.Pointer[routes]
	adopting  sync.Mutex // of another layout, and of timeout and closed
	closed    bool
	timeout   time.Duration
	takeWaits time.Duration             // how long a Take waits: Watch's timeout; 0: as long as its context allows
	agreement atomic.Pointer[agreement] // nil when the layout is known
	loaded    chan struct{}             // closed when the scripts are loaded, too

	life    context.Context
	end     context.CancelFunc
	work    sync.WaitGroup // that lasts as long as the store
	undoing sync.WaitGroup // of reservations

	batches    atomic.Uint64
	operations atomic.Uint64

	scriptLoads atomic.Uint64 // before the first decisions

	scripts []atomic.Pointer[redisconn.Script] // by mix

	unreachable atomic.Pointer[func(shard int, cause error)] // nil: nobody is told
}

// New makes a store. It prepares for the first decision in the background. Closing the store closes conn; if New
// fails, the caller does.
func New(conn redisconn.Conn, options Options) (*Store, error) {
	if conn == nil {
		return nil, stint.Invalid("conn", "nil", "a connection such as Dial makes")
	}
	options.ensureDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	s := &Store{conn: conn, options: options, shards: 1, timeout: queue.MaxSendTime}
	s.scripts = make([]atomic.Pointer[redisconn.Script], wire.Mixes())
	partitions := cmp.Or(options.Partitions, defaultPartitions)
	if conn.Cluster() {
		partitions = cmp.Or(options.Partitions, defaultClusterPartitions)
		s.shards = partitions
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.channel = options.KeyPrefix + ":announce"
	s.leases = newLeases(s)
	if options.DenialCache > 0 || options.DenialCache == 0 && options.Now == nil {
		s.denials = newDenialCache(cmp.Or(options.DenialCache, defaultDenialCache), s.uptime())
		s.denials.onPolicyReset, s.denials.onMissed = s.leases.forgetPolicy, s.leases.forgetAll
	}
	s.configure()
	s.setLayout(partitions, cmp.Or(options.LogEncoding, LogPacked))
	if options.CountInstances {
		s.instances = newInstances(s)
	}
	s.start()
	return s, nil
}

// configure says how the rooms beneath work.
func (s *Store) configure() {
	o := &s.options
	s.wire = wire.Config{
		Cluster: s.conn.Cluster(), Channel: s.channel, MaxHolds: o.MaxHolds, Now: o.Now,
		Eval: func(ctx context.Context, m wire.Mix, keys, args []string) (string, error) {
			return s.conn.Eval(ctx, s.script(m), keys, args)
		},
		Unlink: s.unlink, Raised: s.raised,
	}
	s.queue.Life, s.queue.MaxBatch, s.queue.InFlight, s.queue.MaxQueue = s.life, o.MaxBatch, o.InFlight, o.MaxQueue
	s.queue.Send, s.queue.OnCall, s.queue.Ready, s.queue.Connection = s.send, o.OnCall, s.conn.Ready, s.conn
}

// send makes the call of a batch, and takes note of what came of it.
func (s *Store) send(ctx context.Context, b *wire.Batch) error {
	mark := s.denials.mark()
	if err := b.Execute(ctx); err != nil {
		if errors.Is(err, wire.ErrLayout) {
			s.lostLayout(b.SettingsKey())
		}
		return queue.Unavailable(err)
	}
	s.batches.Add(1)
	s.operations.Add(uint64(len(b.Entries())))
	s.note(b, mark)
	return nil
}

// uptime is a local clock that does not step, or the clock of the options.
func (s *Store) uptime() func() time.Duration {
	if now := s.options.Now; now != nil {
		return func() time.Duration { return layout.Micros(now().UnixMicro()) }
	}
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Ping reports whether the server answers.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.conn.Do(ctx, "PING")
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return prefix.Errorf("%w: %w", stint.ErrUnavailable, ctx.Err())
	default:
		return queue.Unavailable(err)
	}
}

// Watch implements [stint.Store]. A shard is unreachable if no connection was made or a call was unanswered for the
// timeout, less time in which this process was starved, or three calls in a row were refused (READONLY, OOM, NOAUTH and
// the like). The shards are 1, or a cluster's partitions; keys with one hash tag share one.
func (s *Store) Watch(timeout time.Duration, unreachable func(shard int, cause error)) stint.Shards {
	s.adopting.Lock()
	defer s.adopting.Unlock()
	s.timeout, s.takeWaits = timeout, timeout
	for _, br := range s.routes.Load().batchers {
		br.SetTimeout(timeout)
	}
	s.unreachable.Store(&unreachable)
	return stint.Shards{Count: s.shards, Of: func(key string) int { return int(layout.HashOf(key) % uint64(s.shards)) }}
}

// Close returns leases, within a second, and closes the connection.
func (s *Store) Close() {
	s.leases.close()
	s.adopting.Lock()
	s.closed = true
	s.adopting.Unlock()
	for _, br := range s.routes.Load().batchers {
		br.Close()
	}
	s.end()
	if s.instances != nil {
		s.instances.close()
	}
	s.conn.Close()
	s.work.Wait()
}

// background carries something out in the background, unless the store is closed.
func (s *Store) background(do func()) {
	s.adopting.Lock()
	defer s.adopting.Unlock()
	if !s.closed {
		s.work.Go(do)
	}
}

// unlink frees hashes that nobody reads any more, in the background. If that fails they expire.
func (s *Store) unlink(dead *layout.GenerationKeys) {
	s.background(func() {
		ctx, cancel := context.WithTimeout(s.life, queue.MaxSendTime)
		defer cancel()
		_, _ = s.conn.Do(ctx, "UNLINK", dead.Cur, dead.Prev)
	})
}

// Decide implements [stint.Store]. On a cluster each partition decides atomically.
func (s *Store) Decide(ctx context.Context, op stint.Op) (d stint.Decision, err error) {
	if err := check(ctx, &op); err != nil {
		return d, err
	}
	attempt := s.agreement.Load()
	if attempt != nil || s.spansPartitions(&op) { // which wait for more than one call
		var cancel context.CancelFunc
		ctx, cancel = queue.Within(ctx, op.Timeout)
		defer cancel()
	}
	if err := s.await(ctx, attempt); err != nil {
		return d, err
	}
	switch {
	case op.Verb == stint.VerbList:
		return s.list(ctx, &op)
	case s.spansPartitions(&op): // in the layout that is known now
		d, err = s.decideSpanning(ctx, &op)
	default:
		d, err = s.decide(ctx, &op, s.leasable(&op))
	}
	return marked(&op, d), err
}

// Take implements [stint.Store].
func (s *Store) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (d stint.Decision, err error) {
	op := stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}, Timeout: s.takeWaits}
	if s.agreement.Load() != nil {
		return s.Decide(ctx, op) // which waits for more than one call
	}
	if err := check(ctx, &op); err != nil {
		return d, err
	}
	plan := s.plan(policy)
	if l := &plan[0].Spec; len(plan) > 1 || l.Lease != 0 || l.CountDenied {
		d, err = s.decide(ctx, &op, s.leasable(&op))
		return marked(&op, d), err
	}
	if c := s.denials; c != nil && c.entries.Load() > 0 {
		if d, denied := c.claim(&op.Claim, 0, c.now(), nil); denied {
			c.hits.Add(1)
			return d, nil
		}
	}
	return s.batcherOf(&op).DecideOne(ctx, &op)
}

// decide carries out an operation in one partition that has been checked, of a limit with leases or nil.
func (s *Store) decide(ctx context.Context, op *stint.Op, leased *layout.Limit) (stint.Decision, error) {
	if leased != nil {
		if l := s.leases.of(leased, op); l != nil {
			return l.decide(ctx, op)
		}
	}
	if d, denied := s.rememberedDenial(op); denied {
		return d, nil
	}
	return s.batcherOf(op).DecideOne(ctx, op)
}

// DecideAll implements [stint.Store]. It decides in the order of the operations.
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	attempt := s.agreement.Load()
	if attempt != nil || s.anySpansPartitions(ops) {
		var cancel context.CancelFunc
		ctx, cancel = queue.Within(ctx, decide.LeastTimeout(ops))
		defer cancel()
	}
	fault := s.await(ctx, attempt)
	from := 0
	for i := range ops {
		if s.spansPartitions(&ops[i]) || ops[i].Verb == stint.VerbList {
			s.decideTogether(ctx, fault, ops[from:i], results[from:i])
			results[i].Decision, results[i].Err = s.Decide(ctx, ops[i])
			from = i + 1
		}
	}
	s.decideTogether(ctx, fault, ops[from:], results[from:])
}

// decideTogether carries out operations of one partition each, or answers them with the fault if they are valid.
func (s *Store) decideTogether(ctx context.Context, fault error, ops []stint.Op, results []stint.Result) {
	type load struct { // of one batcher
		ops     []stint.Op
		results []stint.Result
		indexes []int
	}
	routes := s.routes.Load()
	loads := make([]load, len(routes.batchers))
	var before changes
	for i := range ops {
		results[i] = stint.Result{Err: cmp.Or(check(ctx, &ops[i]), fault)}
		if results[i].Err != nil {
			continue
		}
		if ops[i].Verb <= stint.VerbPeek {
			before.note(ops[:i], results)
			if d, known := s.atHand(&ops[i], before.of(&ops[i])); known {
				results[i].Decision = marked(&ops[i], d)
				continue
			}
		}
		load := &loads[routes.batcherOf(ops[i].First().Key).Target.Index]
		load.ops = append(load.ops, ops[i])
		load.indexes = append(load.indexes, i)
	}
	var group sync.WaitGroup
	for i := range loads {
		load := &loads[i]
		if len(load.ops) == 0 {
			continue
		}
		load.results = make([]stint.Result, len(load.ops))
		group.Go(func() {
			routes.batchers[i].Decide(ctx, decide.LeastTimeout(load.ops), load.ops, load.results)
		})
	}
	group.Wait()
	for i := range loads {
		for j, index := range loads[i].indexes {
			results[index] = loads[i].results[j]
			results[index].Decision = marked(&ops[index], results[index].Decision)
		}
	}
}

// changes are what operations do to clients before others of one call, which nothing at hand knows of yet.
type changes struct {
	noted int // operations
	by    map[string]change
}

// A change is what has been done to a client; the zero value is nothing.
type change uint8

const (
	adjusted change = iota + 1 // something may have come back
	wiped                      // nothing is left of its state
)

// note notes what valid operations do that were not noted yet: it is called where a take or a peek comes behind them.
func (c *changes) note(ops []stint.Op, results []stint.Result) {
	for ; c.noted < len(ops); c.noted++ {
		op, by := &ops[c.noted], adjusted
		if op.Verb <= stint.VerbPeek || results[c.noted].Err != nil {
			continue
		}
		if op.Verb == stint.VerbReset {
			by = wiped
		}
		if c.by == nil {
			c.by = map[string]change{}
		}
		for nth := range op.Len() {
			claim, _ := op.NthClaim(nth)
			c.by[claim.Key] = max(c.by[claim.Key], by)
		}
	}
}

// of is the largest change of the clients of an operation.
func (c *changes) of(op *stint.Op) (most change) {
	if c.by != nil {
		for nth := range op.Len() {
			claim, _ := op.NthClaim(nth)
			most = max(most, c.by[claim.Key])
		}
	}
	return most
}

// Stats is what a store has done, and what it holds in the process.
type Stats struct {
	// Batches counts script calls.
	Batches uint64 `counter:"rate_limiter_store_calls_total"`
	// Operations counts what they decided.
	Operations uint64 `counter:"rate_limiter_store_operations_total"`
	// DenialHits counts denials answered without the server.
	DenialHits uint64 `counter:"rate_limiter_denial_cache_hits_total"`
	// DenialsKept is how many denials are remembered now.
	DenialsKept int64 `gauge:"rate_limiter_denial_cache_entries"`
	// Announcing says whether announcements are received, without which no denial is remembered.
	Announcing bool `gauge:"rate_limiter_store_announcing"`
	// Leases is how many clients of limits with leases are at hand now.
	Leases int `gauge:"rate_limiter_store_leases"`
	// Queued is how many operations wait to be sent.
	Queued int `gauge:"rate_limiter_store_queued_operations"`
	// InFlight is how many calls are under way.
	InFlight int `gauge:"rate_limiter_store_calls_in_flight"`
	// ScriptLoads counts scripts sent whole: at first, and to servers that did not know them.
	ScriptLoads uint64 `counter:"rate_limiter_store_script_loads_total"`
}

// Stats reads the store's figures.
func (s *Store) Stats() Stats {
	stats := Stats{Batches: s.batches.Load(), Operations: s.operations.Load(), Leases: int(s.leases.count.Load())}
	stats.ScriptLoads = s.scriptLoads.Load() + s.conn.ScriptLoads()
	if s.denials != nil {
		stats.DenialHits, stats.DenialsKept = s.denials.hits.Load(), s.denials.entries.Load()
		stats.Announcing = s.denials.listening.Load()
	}
	for _, br := range s.routes.Load().batchers {
		queued, inFlight := br.Load()
		stats.Queued += queued
		stats.InFlight += inFlight
	}
	return stats
}

// batcherOf is where an operation is sent from.
func (s *Store) batcherOf(op *stint.Op) *queue.Batcher {
	return s.routes.Load().batcherOf(op.First().Key)
}

// check reports what forbids an operation before anything is sent.
func check(ctx context.Context, op *stint.Op) error {
	if err := op.Validate(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return queue.EndOf(ctx)
	}
	return nil
}

// Wake tells when permits come back, see [stint.Store]: of holds that end, and of resets, here and in other processes,
// unless the store remembers no denials.
func (s *Store) Wake(key string, _ *stint.Policy, wake func()) (stop func()) {
	if s.denials == nil {
		return func() {}
	}
	return s.denials.waiters.Add([]string{key}, wake)
}

// list carries out a List. Holds are sorted by when they expire, the next first.
func (s *Store) list(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	br := s.batcherOf(op)
	c := br.NewCall(ctx, op)
	done := br.Do(c)
	result, live := c.Result(), c.Live
	if !done {
		return stint.Decision{}, result.Err
	}
	br.Recycle(c)
	slices.SortStableFunc(live, func(a, b stint.Hold) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	if result.Err == nil {
		*op.Extra.Live = live
	}
	return result.Decision, result.Err
}

// spansPartitions reports whether an operation's claims are in several partitions of a cluster.
func (s *Store) spansPartitions(op *stint.Op) bool {
	routes := s.routes.Load()
	if len(routes.batchers) == 1 {
		return false
	}
	if op.And == nil && op.Extra == nil {
		return false
	}
	first := routes.Partition(op.First().Key)
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		if routes.Partition(claim.Key) != first {
			return true
		}
	}
	return false
}

// anySpansPartitions is spansPartitions for any of several operations.
func (s *Store) anySpansPartitions(ops []stint.Op) bool {
	for i := range ops {
		if s.spansPartitions(&ops[i]) {
			return true
		}
	}
	return false
}

// leasable returns the limit of an operation that may be decided by a lease: a take or
// a try of one policy with one limit that has leases. What has to leave permits to others the server decides.
func (s *Store) leasable(op *stint.Op) *layout.Limit {
	if op.Verb > stint.VerbTry || op.And != nil || op.Extra != nil || op.Policy.Len() > 1 || op.Keep > 0 {
		return nil
	}
	if l := &s.plan(op.Policy)[0]; l.Spec.Lease != 0 {
		return l
	}
	return nil
}

// marked marks a denial by limits with leases, of which the server can't tell whether
// the permits that are missing were spent.
func marked(op *stint.Op, d stint.Decision) stint.Decision {
	if d.Allowed || d.RetryAfter == 0 || d.RetryAfter == stint.Never {
		return d
	}
	limit, _ := op.LimitAt(int(d.Index))
	d.Leased = limit.Lease != 0
	return d
}
