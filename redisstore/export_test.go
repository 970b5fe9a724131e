package redisstore

import (
	"context"
	"testing"

	"github.com/stint-go/stint"
)

// Sweep ends leases whose time is over, and waits until what is left is given back.
func (s *Store) Sweep() { s.leases.sweep() }

// SweepHashes unlinks hashes that are dead, of all that are known.
func (s *Store) SweepHashes(ctx context.Context) { s.lifetimes.sweep(ctx, true) }

// Losses is what is known to be lost.
func (s *Store) Losses() Loss { return s.lifetimes.loss() }

// AskEvictions asks the servers how many keys they evicted.
func (s *Store) AskEvictions(ctx context.Context) { s.lifetimes.askEvictions(ctx) }

// MaxLeases bounds the leases at hand.
const MaxLeases = maxLeases

// Lapse gives back permits that were leased.
const Lapse = lapse

// Sending is an operation as only the store itself makes it.
type Sending struct {
	Op    stint.Op
	Extra int64         // permits on top of the operation
	Taken stint.Instant // of a lapse
}

// Landed is the answer to a Sending.
type Landed struct {
	Decision stint.Decision
	More     int64 // permits admitted on top
}

// FlyTogether carries out operations in one script call.
func (s *Store) FlyTogether(t testing.TB, sendings ...Sending) []Landed {
	t.Helper()
	l := s.layout.Load().lanes[0]
	f := newFlight(l)
	defer f.release()
	parcels := make([]*parcel, len(sendings))
	for i, sending := range sendings {
		p := l.newParcel(context.Background())
		p.op[0], p.extra, p.taken = sending.Op, sending.Extra, sending.Taken
		p.ops, p.results = p.op[:], p.result[:]
		if !f.add(p, 0, &p.op[0]) {
			t.Fatalf("operation %d does not fit", i)
		}
		parcels[i] = p
	}
	f.land(f.fly(context.Background()))
	landed := make([]Landed, len(parcels))
	for i, p := range parcels {
		<-p.done
		if p.result[0].Err != nil {
			t.Fatalf("operation %d: %v", i, p.result[0].Err)
		}
		landed[i] = Landed{p.result[0].Decision, p.more}
	}
	return landed
}

// Waiting is how many operations wait to be sent.
func (s *Store) Waiting() int { return s.sum(func(l *lane) int { return l.queued }) }

// UnderWay is how many script calls are under way.
func (s *Store) UnderWay() int { return s.sum(func(l *lane) int { return l.flights }) }

// Withdrawn waits until no reservation is being given back.
func (s *Store) Withdrawn() { s.withdrawals.Wait() }

// Partition is where a client's states are.
func (s *Store) Partition(client string) int { return s.layout.Load().partition(client) }

func (s *Store) sum(of func(*lane) int) int {
	total := 0
	for _, l := range s.layout.Load().lanes {
		l.mu.Lock()
		total += of(l)
		l.mu.Unlock()
	}
	return total
}

// DepartureGap is how often a flight leaves for a server far away.
const DepartureGap = departureGap

// Tags are what stands in braces in the keys of each partition.
func (s *Store) Tags() []string { return s.layout.Load().tags }

// Slot is the hash slot of a tag.
func Slot(tag string) int { return slot(tag) }

// Beat sends a heartbeat.
func (s *Store) Beat(ctx context.Context) error { return s.instances.beat(ctx, true) }

// Queued is how many calls are in the queue.
func (s *Store) Queued() int {
	return s.sum(func(l *lane) (n int) {
		for p := l.pending.first; p != nil; p = p.next {
			n++
		}
		return n
	})
}
