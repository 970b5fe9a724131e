// Package redisstore keeps limiter state in Redis (6.2 or later) or Valkey, for
// several processes to share.
//
// Every operation is decided inside the server, by the Lua twins of package
// algorithm and by the server's clock. Callers do not make a round trip each: what
// comes while a script call is under way is decided by the next one, all of it at
// once, and requests on one key and limit travel together. Each is still decided one
// after another. A denial writes nothing. Every key has a time to live that covers
// the time until its states no longer matter, and a margin.
//
// States of the fixed-size algorithms are kept many in a hash, by partitions of the
// clients; a sliding window log has a key of its own. docs/redis.md describes both.
package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// DefaultKeyPrefix is what keys start with unless Options say otherwise.
const DefaultKeyPrefix = "rate_limiter"

// What Options are unless they say otherwise, and what they may be.
const (
	DefaultPartitions        = 1
	DefaultClusterPartitions = 16
	MaxPartitions            = 256
	DefaultMaxBatch          = 256
	MaxMaxBatch              = 1000
	DefaultInFlight          = 2
	MaxInFlight              = 64
	DefaultMaxQueue          = 65536

	DefaultDenialCache = 65536

	DefaultLeaseTime = 100 * time.Millisecond
	MinLeaseTime     = time.Millisecond
	MaxLeaseTime     = 10 * time.Second
)

// A LogEncoding says how sliding window logs are kept. Each encoding has keys of
// its own: a change of it starts logs anew.
type LogEncoding string

// The encodings of a sliding window log.
const (
	// LogPacked is one string of fixed-width records, as narrow as the limit allows:
	// 4 to 11 bytes each. It is the smallest, as fast as any, and the default.
	LogPacked LogEncoding = "packed"
	// LogZSet is a sorted set.
	LogZSet LogEncoding = "zset"
	// LogStream is a stream.
	LogStream LogEncoding = "stream"
)

// Options say how a [Store] works. The zero value is a good choice.
type Options struct {
	// KeyPrefix starts every key; 1 to 64 printable ASCII characters without braces.
	// Default: "", which is DefaultKeyPrefix.
	KeyPrefix string
	// LogEncoding is how sliding window logs are kept. All processes that share states need
	// the same one: the servers remember it, and where another is said nothing is decided.
	// Default: "", which is what the servers remember, or LogPacked.
	LogEncoding LogEncoding
	// Partitions is in how many hashes the clients of each limit are kept, and over
	// how many slots of a cluster they are spread: a power of two, 1 to MaxPartitions. All
	// processes that share states need the same number: the servers remember it, and where
	// another is said nothing is decided. To change it, stop all processes and delete the
	// key that the error names; states start anew. Default: 0, which is what the servers
	// remember, or DefaultPartitions, or of a cluster DefaultClusterPartitions.
	Partitions int
	// MaxBatch is how many limits one script call decides at most, 1 to MaxMaxBatch;
	// the server does nothing else meanwhile, about 5 microseconds for each. With 1
	// every operation has a call of its own. Default: 0, which is DefaultMaxBatch.
	MaxBatch int
	// Batches is how many script calls are under way at once, to each partition of a
	// cluster or to a single server: 1 to MaxFlights. Default: 0, which is DefaultFlights,
	// and up to MaxFlights while they take more than 20 milliseconds.
	InFlight int
	// MaxQueue is how many operations wait at most to be sent, in each such place.
	// What comes on top fails with an error that wraps stint.ErrOverloaded. Default:
	// 0, which is DefaultMaxQueue.
	MaxQueue int
	// DenialCache is how many denials are remembered at most, to answer a client that
	// keeps asking without asking the server; below 0 none is. Default: 0, which is
	// DefaultDenialCache, or none if Now is set.
	DenialCache int
	// LeaseTime is how long permits of a limit with leases may be spent after they were
	// asked for: MinLeaseTime to MaxLeaseTime. Default: 0, which is DefaultLeaseTime.
	LeaseTime time.Duration
	// CountInstances makes the store count the processes that share its key prefix, for
	// [Store.Instances], by a heartbeat about every 2 seconds; with Now none is sent.
	// Default: false, which sends nothing.
	CountInstances bool
	// OnLoss, if set, is called when the store notices that state is gone although it
	// still mattered, with what was lost since the last call: at most once a minute, by
	// one goroutine at a time, on which nothing waits but what it looks after. With Now
	// nothing is noticed. Default: nil.
	OnLoss func(Loss)
	// Now, if set, is the time of every decision instead of the server's clock. It is
	// for tests. Default: nil.
	Now func() stint.Instant

	adapts bool // whether more batches may be under way than Batches says
}

func (o *Options) ensureDefaults() {
	o.adapts = o.adapts || o.InFlight == 0
	if o.KeyPrefix == "" {
		o.KeyPrefix = DefaultKeyPrefix
	}
	o.LeaseTime = cmp.Or(o.LeaseTime, DefaultLeaseTime)
	for _, option := range o.numbers() {
		if *option.value == 0 {
			*option.value = option.standard
		}
	}
}

// option is one with a number, its default and the most it may be, 0 for no bound.
type option struct {
	name           string
	value          *int
	standard, most int
}

func (o *Options) numbers() []option {
	return []option{
		{"max_batch", &o.MaxBatch, DefaultMaxBatch, MaxMaxBatch},
		{"in_flight", &o.InFlight, DefaultInFlight, MaxInFlight},
		{"max_queue", &o.MaxQueue, DefaultMaxQueue, 0},
	}
}

func (o *Options) validate() error {
	var faults []error
	faults = append(faults, CheckKeyPrefix(o.KeyPrefix))
	if _, known := logLetters[o.LogEncoding]; !known && o.LogEncoding != "" {
		faults = append(faults, stint.Invalid("log_encoding", string(o.LogEncoding), "packed, zset or stream"))
	}
	if n := o.Partitions; n != 0 && !validPartitions(n) {
		faults = append(faults, stint.Invalid("partitions", n, fmt.Sprintf("a power of two from 1 to %d", MaxPartitions)))
	}
	for _, option := range o.numbers() {
		if n := *option.value; n < 1 || option.most > 0 && n > option.most {
			allowed := "1 or more"
			if option.most > 0 {
				allowed = fmt.Sprintf("1 to %d", option.most)
			}
			faults = append(faults, stint.Invalid(option.name, n, allowed))
		}
	}
	if o.LeaseTime < MinLeaseTime || o.LeaseTime > MaxLeaseTime {
		faults = append(faults, stint.Invalid("lease_time", o.LeaseTime, fmt.Sprintf("%s to %s", MinLeaseTime, MaxLeaseTime)))
	}
	return errors.Join(faults...)
}

func validPartitions(n int) bool { return n >= 1 && n <= MaxPartitions && n&(n-1) == 0 }

// CheckKeyPrefix reports why keys can't start with a prefix, nil if they can. The empty one is the
// caller's to replace.
func CheckKeyPrefix(prefix string) error {
	valid := len(prefix) <= 64
	for _, c := range []byte(prefix) {
		valid = valid && c > 0x20 && c < 0x7f && c != '{' && c != '}'
	}
	if !valid {
		return stint.Invalid("key_prefix", prefix, "1 to 64 printable ASCII characters without spaces and braces")
	}
	return nil
}

// A Conn is the store's way to its server. Package rueidis makes one of a URL, or of a rueidis
// client, package goredis one of a go-redis client. Its methods are safe for concurrent use.
type Conn interface {
	// Ready returns nil when a command can be sent at once. Otherwise it waits for the
	// attempt to connect that is under way, and returns why that failed, or the end of the
	// context.
	Ready(ctx context.Context) error
	// Eval runs a script with the keys and arguments and returns its reply, a string.
	// It must not run it again when it may have run already, and must load it when the
	// server does not know it. All keys hash to one slot if Cluster says true. It
	// keeps neither keys nor args.
	Eval(ctx context.Context, script *Script, keys, args []string) (string, error)
	// Do sends a command that replies with a string, and returns it; for nil it
	// returns "". A key among the arguments is the second of them.
	Do(ctx context.Context, args ...string) (string, error)
	// Subscribe subscribes to a channel, calls ready once that is so, and message for
	// each message, one after another, until the context ends or the subscription is
	// lost. It then returns why; it does not renew a subscription by itself.
	Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error
	// Cluster reports whether the keys of one call must hash to one slot.
	Cluster() bool
	// Close ends the connection.
	Close()
}

// A Store is a stint.Store in Redis or Valkey. It is safe for concurrent use.
type Store struct {
	conn    Conn
	options Options
	shards  int          // see Shards
	channel string       // on which scripts announce
	denials *denialCache // nil for none
	leases  *leases

	sweeper *sweeper

	instances *instances // nil for not counting

	layout   atomic.Pointer[layout]
	settings *Script    // that looks at the servers' settings
	adopting sync.Mutex // of another layout
	timeout  time.Duration
	start    start

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // that lasts as long as the store

	batches    atomic.Uint64
	operations atomic.Uint64

	scripts   [256]atomic.Pointer[Script] // by mix
	batchPool sync.Pool                   // of batches
	callPool  sync.Pool

	unreachable atomic.Pointer[func(shard int, cause error)] // told of outages; nil: nobody

	withdrawals sync.WaitGroup // of reservations

	stint.Names // of limiters
}

// Validate reports all that is wrong with the options, with an error that wraps
// stint.ErrInvalid, as [New] does.
func (o Options) Validate() error {
	o.ensureDefaults()
	return o.validate()
}

// New makes a store on a connection, and listens at once for what other processes announce.
func New(conn Conn, options Options) (*Store, error) {
	if conn == nil {
		return nil, stint.Invalid("conn", "nil", "a connection such as Dial makes")
	}
	options.ensureDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	s := &Store{conn: conn, options: options, shards: 1, timeout: maxSendTime, settings: newSettingsScript()}
	partitions := cmp.Or(options.Partitions, DefaultPartitions)
	if conn.Cluster() {
		partitions = cmp.Or(options.Partitions, DefaultClusterPartitions)
		s.shards = partitions
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.channel = options.KeyPrefix + ":announce"
	switch {
	case options.DenialCache < 0:
	case options.Now == nil:
		s.denials = newDenialCache(cmp.Or(options.DenialCache, DefaultDenialCache), uptime())
	case options.DenialCache > 0:
		s.denials = newDenialCache(options.DenialCache, func() time.Duration { return micros(int64(options.Now())) })
	}
	s.leases = newLeases(s)
	s.sweeper = newSweeper(s)
	if s.denials != nil {
		s.denials.onPolicyReset, s.denials.onMissed = s.leases.forgetPolicy, s.leases.forgetAll
	}
	s.lay(partitions, cmp.Or(options.LogEncoding, LogPacked))
	if options.CountInstances {
		s.instances = newInstances(s)
	}
	s.begin()
	return s, nil
}

// Ping reports whether the server answers.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.conn.Do(ctx, "PING"); err != nil {
		return unavailable(err)
	}
	return nil
}

// Watch makes the store report each part ([Store.Shards]) of it that becomes unreachable:
// when no connection could be made for the timeout, when the server left a call unanswered for so
// long, or when it refused three calls in a row (READONLY, LOADING, CLUSTERDOWN, OOM, NOAUTH, NOPERM, BUSY
// and their like). Time counts only as far as this process was awake, so that a busy or
// stopped process blames no server. A part is reported again only after it has answered a call.
// unreachable is called on goroutines of the store's and of callers, must not block and must be
// safe for concurrent use. Watch is called once, before any operation.
func (s *Store) Watch(timeout time.Duration, unreachable func(shard int, cause error)) {
	s.adopting.Lock()
	defer s.adopting.Unlock()
	s.timeout = timeout
	for _, br := range s.layout.Load().batchers {
		br.watchdog.SetTimeout(timeout)
	}
	s.unreachable.Store(&unreachable)
}

// Close gives back what is leased, if the server answers within a second, and ends the
// store's connections. Operations under way fail.
func (s *Store) Close() {
	s.leases.close()
	for _, br := range s.layout.Load().batchers {
		br.close()
	}
	s.end()
	if s.instances != nil {
		s.instances.close()
	}
	s.sweeper.close()
	s.conn.Close()
	s.work.Wait()
}

// Decide implements [stint.Store]. On a cluster an operation over keys in several
// partitions is atomic in each of them, and a take of it reserves and gives back, as
// docs/redis.md describes; keys with one hash tag in common are in one partition.
func (s *Store) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if err := s.check(ctx, &op); err != nil {
		return stint.Decision{}, err
	}
	d, err := s.decide(ctx, &op)
	return marked(&op, d), err
}

// decide carries out an operation that has been checked.
func (s *Store) decide(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	if s.spansPartitions(op) {
		return s.decideReserving(ctx, op)
	}
	if l := s.leasable(op); l != nil {
		return s.leases.decide(ctx, op, l)
	}
	if d, denied := s.rememberedDenial(op); denied {
		return d, nil
	}
	return s.batcherOf(op).decideOne(ctx, op)
}

// DecideAll implements [stint.Store]. An operation over several partitions of a cluster
// waits for those before it, and those after it wait for it.
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	from := 0
	for i := range ops {
		if s.spansPartitions(&ops[i]) {
			s.decideTogether(ctx, ops[from:i], results[from:i])
			results[i].Decision, results[i].Err = s.Decide(ctx, ops[i])
			from = i + 1
		}
	}
	s.decideTogether(ctx, ops[from:], results[from:])
}

// decideTogether carries out operations of one partition each.
func (s *Store) decideTogether(ctx context.Context, ops []stint.Op, results []stint.Result) {
	layout := s.layout.Load()
	loads := make([]subBatch, len(layout.batchers))
	for i := range ops {
		results[i] = stint.Result{Err: s.check(ctx, &ops[i])}
		if results[i].Err != nil {
			continue
		}
		if d, known := s.atHand(&ops[i]); known {
			results[i].Decision = marked(&ops[i], d)
			continue
		}
		at := layout.batcherOf(ops[i].Key).index
		loads[at].ops = append(loads[at].ops, ops[i])
		loads[at].places = append(loads[at].places, i)
	}
	var group sync.WaitGroup
	for i := range loads {
		load := &loads[i]
		if len(load.ops) == 0 {
			continue
		}
		load.results = make([]stint.Result, len(load.ops))
		group.Go(func() { layout.batchers[i].decide(ctx, load.ops, load.results) })
	}
	group.Wait()
	for i := range loads {
		for j, place := range loads[i].places {
			results[place] = loads[i].results[j]
			results[place].Decision = marked(&ops[place], results[place].Decision)
		}
	}
}

// Stats is what a store has done, and what it holds in the process.
type Stats struct {
	Batches     uint64 // script calls
	Operations  uint64 // decided by them
	DenialHits  uint64 // denials answered without the server
	DenialsKept int64  // denials remembered now
	Announcing  bool   // whether announcements are heard, without which none is remembered
	Leases      int    // clients of limits with leases at hand now
	Lost        Loss   // state that is gone although it still mattered
}

// Stats reads the store's figures.
func (s *Store) Stats() Stats {
	stats := Stats{Batches: s.batches.Load(), Operations: s.operations.Load(), Leases: s.leases.count(), Lost: s.sweeper.loss()}
	if s.denials != nil {
		stats.DenialHits, stats.DenialsKept = s.denials.hits.Load(), s.denials.entries.Load()
		stats.Announcing = s.denials.listening.Load()
	}
	return stats
}

// load is what goes through one batcher, and where it stands in the batch.
type subBatch struct {
	ops     []stint.Op
	results []stint.Result
	places  []int
}

// batcher is where an operation is sent.
func (s *Store) batcherOf(op *stint.Op) *batcher { return s.layout.Load().batcherOf(op.Key) }

// check reports what forbids an operation before anything is sent.
func (s *Store) check(ctx context.Context, op *stint.Op) error {
	if err := op.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.started(ctx)
}

// unavailable wraps a failure of the connection or the server; a context's end stays
// recognisable.
func unavailable(err error) error { return fmt.Errorf("%w: %w", stint.ErrUnavailable, err) }
