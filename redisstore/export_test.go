package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// Sweep ends leases whose time is over, and waits until what is left is given back.
func (s *Store) Sweep() { s.leases.tidy() }

// Defaults and bounds.
const (
	MaxLeases                = maxLeases
	DefaultPartitions        = defaultPartitions
	DefaultClusterPartitions = defaultClusterPartitions
	MaxPartitions            = maxPartitions
	DefaultMaxBatch          = defaultMaxBatch
	MaxMaxBatch              = maxMaxBatch
	DefaultInFlight          = defaultInFlight
	MaxLeaseTime             = maxLeaseTime
)

// Verbs of the store's own: they give back permits that were leased, or that an undone operation took.
const (
	ReturnLease = returnLease
	Refund      = refund
)

// InternalOp is an operation as only the store itself makes it.
type InternalOp struct {
	Op      stint.Op
	Bulk    int64         // permits on top of the operation
	TakenAt stint.Instant // of a lapse
}

// InternalResult is the answer to an InternalOp.
type InternalResult struct {
	Decision     stint.Decision
	BulkAdmitted int64 // permits admitted on top
}

// DecideInOneBatch carries out operations in one script call.
func (s *Store) DecideInOneBatch(t testing.TB, sendings ...InternalOp) []InternalResult {
	t.Helper()
	br := s.layout.Load().batchers[0]
	b := newBatch(br)
	defer b.recycle()
	calls := make([]*call, len(sendings))
	for i, sending := range sendings {
		c := br.newCall(context.Background())
		c.op[0], c.bulk, c.takenAt = sending.Op, sending.Bulk, sending.TakenAt
		c.ops, c.results = c.op[:], c.result[:]
		if !b.add(c, 0, &c.op[0]) {
			t.Fatalf("operation %d does not fit", i)
		}
		calls[i] = c
	}
	b.complete(b.execute(context.Background()))
	done := make([]InternalResult, len(calls))
	for i, c := range calls {
		<-c.done
		if c.result[0].Err != nil {
			t.Fatalf("operation %d: %v", i, c.result[0].Err)
		}
		done[i] = InternalResult{c.result[0].Decision, c.bulkAdmitted}
	}
	return done
}

// Waiting is how many operations wait to be sent.
func (s *Store) Waiting() int { return s.sum(func(br *batcher) int { return br.queued }) }

// InFlight is how many script calls are under way.
func (s *Store) InFlight() int { return s.sum(func(br *batcher) int { return br.inFlight }) }

// Withdrawn waits until no reservation is being given back.
func (s *Store) Withdrawn() { s.undoing.Wait() }

// Partition is where a client's states are.
func (s *Store) Partition(client string) int { return s.layout.Load().partition(client) }

func (s *Store) sum(of func(*batcher) int) int {
	total := 0
	for _, br := range s.layout.Load().batchers {
		br.mu.Lock()
		total += of(br)
		br.mu.Unlock()
	}
	return total
}

// SetDistance makes a store believe that its servers are so far away.
func (s *Store) SetDistance(roundTrip time.Duration) {
	for _, br := range s.layout.Load().batchers {
		br.mu.Lock()
		br.pace = newPace(&s.options)
		br.pace.note(roundTrip, time.Now())
		br.mu.Unlock()
	}
}

// Tags are what stands in braces in the keys of each partition.
func (s *Store) Tags() []string { return s.layout.Load().tags }

// Slot is the hash slot of a tag.
func Slot(tag string) int { return slot(tag) }

// Beat sends a heartbeat.
func (s *Store) Beat(ctx context.Context) error { return s.instances.beat(ctx, true) }

// Queued is how many calls are in the queue.
func (s *Store) Queued() int {
	return s.sum(func(br *batcher) (n int) {
		for c := br.pending.first; c != nil; c = c.next {
			n++
		}
		return n
	})
}
