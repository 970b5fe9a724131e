package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/redisstore/internal/queue"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// Sweep ends leases whose time is over, and waits until what is left is given back.
func (s *Store) Sweep() { s.leases.tidy() }

// Patient has Close wait for as long as a busy machine needs until what is left of leases is given back.
func (s *Store) Patient() { s.leases.returnTime = 5 * time.Minute }

// Defaults and bounds.
const (
	MaxLeases                = maxLeases
	DefaultPartitions        = defaultPartitions
	DefaultClusterPartitions = defaultClusterPartitions
	MaxPartitions            = maxPartitions
	DefaultMaxBatch          = defaultMaxBatch
	MaxMaxBatch              = maxMaxBatch
	DefaultInFlight          = queue.DefaultInFlight
	MaxLeaseTime             = maxLeaseTime
)

// Verbs of the store's own: they give back permits that were leased, or that an undone operation took.
const (
	ReturnLease = wire.ReturnLease
	Refund      = wire.Refund
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
	var b wire.Batch
	b.Begin(s.routes.Load().batchers[0].Target, s.options.MaxBatch)
	for i, sending := range sendings {
		if !b.Add(&sending.Op, wire.Sending{TakenAt: sending.TakenAt, Bulk: sending.Bulk}) {
			t.Fatalf("operation %d does not fit", i)
		}
	}
	must.Do(t, s.send(context.Background(), &b))
	done := make([]InternalResult, len(sendings))
	for i := range sendings {
		var result stint.Result
		e := b.Answer(i, &sendings[i].Op, &result)
		if result.Err != nil {
			t.Fatalf("operation %d: %v", i, result.Err)
		}
		done[i] = InternalResult{result.Decision, e.BulkAdmitted}
	}
	return done
}

// Waiting is how many operations wait to be sent.
func (s *Store) Waiting() int { return s.Stats().Queued }

// InFlight is how many script calls are under way.
func (s *Store) InFlight() int { return s.Stats().InFlight }

// Withdrawn waits until no reservation is being given back.
func (s *Store) Withdrawn() { s.undoing.Wait() }

// Partition is where a client's states are.
func (s *Store) Partition(client string) int { return s.routes.Load().Partition(client) }

// Beat sends a heartbeat.
func (s *Store) Beat(ctx context.Context) error { return s.instances.beat(ctx, true) }

// Queued is how many calls are in the queue.
func (s *Store) Queued() (n int) {
	for _, br := range s.routes.Load().batchers {
		n += br.Calls()
	}
	return n
}
