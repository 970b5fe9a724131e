// Package holdcount counts what becomes of holds, and those that are live.
package holdcount

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
)

// A Store is a store that counts the outcomes of operations on holds, and the holds that are
// live. It is a [prometheus.Collector] of both; make it with New.
type Store struct {
	stint.Store
	total    *prometheus.CounterVec
	outcomes map[string]prometheus.Counter
	live     *liveHolds
}

// The outcomes of a Reserve, a Commit or a Cancel, which may have several; and holdExpired, which
// is of no operation.
const (
	holdReserved  = "reserved"
	holdReplayed  = "replayed"  // the same was asked before
	holdDenied    = "denied"    // and nothing was taken
	holdLost      = "lost"      // denied, and what was held had expired or was reset
	holdFull      = "full"      // denied, since the client has as many holds as the store allows
	holdDegraded  = "degraded"  // admitted by a failure policy, without a hold
	holdCommitted = "committed" // in time
	holdLate      = "late"      // committed after the hold had expired, or was lost
	holdCancelled = "cancelled"
	holdReset     = "reset"    // what was held was reset meanwhile
	holdResolved  = "resolved" // refused: the hold had ended otherwise
	holdUnknown   = "unknown"  // refused: the store does not know the hold
	holdExpired   = "expired"  // as liveHolds knows: this process did not end the hold in time
)

// New makes the counters of all outcomes at once, so that each is there with 0 before
// it first happens.
func New(store stint.Store, registry prometheus.Registerer) (*Store, error) {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_holds_total",
		Help: "Reserves, commits and cancels, by what became of them; one may have several outcomes. expired: " +
			"holds of rate_limiter_holds_live whose time was over.",
	}, []string{"outcome"})
	s := &Store{Store: store, total: total, outcomes: map[string]prometheus.Counter{}}
	for _, outcome := range []string{
		holdReserved, holdReplayed, holdDenied, holdLost, holdFull, holdDegraded, holdCommitted, holdLate,
		holdCancelled, holdReset,
		holdResolved, holdUnknown, holdExpired,
	} {
		s.outcomes[outcome] = total.WithLabelValues(outcome)
	}
	s.live = newLiveHolds(s.outcomes[holdExpired])
	return s, registry.Register(s)
}

// Describe implements [prometheus.Collector].
func (s *Store) Describe(descs chan<- *prometheus.Desc) {
	s.total.Describe(descs)
	descs <- s.live.desc
}

// Collect implements [prometheus.Collector]. A hold that is not live any more is among the expired ones
// of the same scrape.
func (s *Store) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.MustNewConstMetric(s.live.desc, prometheus.GaugeValue, float64(s.live.count()))
	s.total.Collect(metrics)
}

// Decide implements [stint.Store].
func (s *Store) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	d, err := s.Store.Decide(ctx, op)
	s.count(&op, &d, err)
	return d, err
}

// DecideAll implements [stint.Store].
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	s.Store.DecideAll(ctx, ops, results)
	for i := range ops {
		s.count(&ops[i], &results[i].Decision, results[i].Err)
	}
}

// count counts what became of an operation on a hold. The outcomes do not exclude each other: a
// commit may be late and reset.
func (s *Store) count(op *stint.Op, d *stint.Decision, err error) {
	h, reserves := op.Hold(), op.Verb == stint.VerbReserve
	if h == nil {
		return
	}
	s.live.note(op, d, err)
	for outcome, is := range map[string]bool{
		holdReserved:  err == nil && reserves && d.Allowed && !h.Replayed && !d.Degraded,
		holdReplayed:  err == nil && h.Replayed,
		holdDenied:    err == nil && reserves && !d.Allowed,
		holdLost:      err == nil && h.Lost,
		holdFull:      err == nil && h.Full,
		holdDegraded:  err == nil && reserves && d.Allowed && d.Degraded,
		holdCommitted: err == nil && op.Verb == stint.VerbCommit && !h.Replayed && !h.Late,
		holdLate:      err == nil && h.Late && !h.Replayed,
		holdCancelled: err == nil && op.Verb == stint.VerbCancel && !h.Replayed,
		holdReset:     err == nil && h.Reset,
		holdResolved:  errors.Is(err, stint.ErrResolved),
		holdUnknown:   errors.Is(err, stint.ErrUnknownReservation),
	} {
		if is {
			s.outcomes[outcome].Inc()
		}
	}
}
