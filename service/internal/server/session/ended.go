package session

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// Ended are the sessions that people signed out of, until they would have expired. Each is a client in the
// store that has used up a limit of one permit in a session's lifetime, so all processes that share the store know it.
// A process that ended a session knows it also while the store is unreachable, and after a reset of everything. It is
// safe for concurrent use.
type Ended struct {
	store  stint.Store
	policy *stint.Policy
	now    func() time.Time

	mu sync.Mutex
	// sessions that ended at this process, until when they are kept
	here map[string]time.Time
}

// NewEnded remembers ended sessions as a limit of one permit in Lifetime: ending a
// session takes the permit, and whoever finds it taken has an ended one. So it works over all
// processes that share the store.
func NewEnded(store stint.Store) (*Ended, error) {
	policy, err := stint.NewPolicy("session/ended", stint.SlidingWindowLog(1, Lifetime))
	if err != nil {
		return nil, err
	}
	return &Ended{store: store, policy: policy, now: time.Now, here: map[string]time.Time{}}, nil
}

// End ends a session.
func (e *Ended) End(ctx context.Context, id string) {
	now := e.now()
	e.mu.Lock()
	maps.DeleteFunc(e.here, func(_ string, until time.Time) bool { return now.After(until) })
	e.here[id] = now.Add(Lifetime)
	e.mu.Unlock()
	// The person has left, whatever comes of it; and without the store it has ended here.
	_, _ = e.store.Decide(context.WithoutCancel(ctx), e.op(stint.VerbTake, id))
}

// Has reports whether a session has ended, as far as that can be known.
func (e *Ended) Has(ctx context.Context, id string) bool {
	e.mu.Lock()
	_, here := e.here[id]
	e.mu.Unlock()
	if here {
		return true
	}
	d, err := e.store.Decide(ctx, e.op(stint.VerbPeek, id))
	return err == nil && !d.Degraded && !d.Allowed
}

func (e *Ended) op(verb stint.Verb, id string) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: id, Policy: e.policy, Permits: 1}}
}
