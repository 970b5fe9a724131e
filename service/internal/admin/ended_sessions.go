package admin

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/server/session"
)

// endedSessions are the sessions that people signed out of, until they would have expired. Each is a client in the
// store that has used up a limit of one permit in a session's lifetime, so all processes that share the store know it.
// A process that ended a session knows it also while the store is unreachable, and after a reset of everything. It is
// safe for concurrent use.
type endedSessions struct {
	store  stint.Store
	policy *stint.Policy
	now    func() time.Time

	mu sync.Mutex
	// sessions that ended at this process, until when they are kept
	here map[string]time.Time
}

// newEndedSessions remembers ended sessions as a limit of one permit in session.Lifetime: ending a
// session takes the permit, and whoever finds it taken has an ended one. So it works over all
// processes that share the store.
func newEndedSessions(store stint.Store) (*endedSessions, error) {
	policy, err := stint.NewPolicy("session/ended", stint.SlidingWindowLog(1, session.Lifetime))
	if err != nil {
		return nil, err
	}
	return &endedSessions{store: store, policy: policy, now: time.Now, here: map[string]time.Time{}}, nil
}

// end ends a session.
func (e *endedSessions) end(ctx context.Context, id string) {
	now := e.now()
	e.mu.Lock()
	maps.DeleteFunc(e.here, func(_ string, until time.Time) bool { return now.After(until) })
	e.here[id] = now.Add(session.Lifetime)
	e.mu.Unlock()
	// The person has left, whatever comes of it; and without the store it has ended here.
	_, _ = e.store.Decide(context.WithoutCancel(ctx), e.op(stint.VerbTake, id))
}

// has reports whether a session has ended, as far as that can be known.
func (e *endedSessions) has(ctx context.Context, id string) bool {
	e.mu.Lock()
	_, here := e.here[id]
	e.mu.Unlock()
	if here {
		return true
	}
	d, err := e.store.Decide(ctx, e.op(stint.VerbPeek, id))
	return err == nil && !d.Degraded && !d.Allowed
}

func (e *endedSessions) op(verb stint.Verb, id string) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: id, Policy: e.policy, Permits: 1}}
}

// sessionCheck is how often it is looked whether the session of a stream goes on.
const sessionCheck = 5 * time.Second

// streaming is a request for a stream that ends when the server stops, and within two sessionChecks of its
// session, until done is called.
func (a *Handler) streaming(r *http.Request) (stream *http.Request, done func()) {
	ctx, cancel := context.WithCancel(r.Context())
	stream, forget := r.WithContext(ctx), context.AfterFunc(a.stopping, cancel)
	if a.signedIn(r) >= 0 {
		go func() {
			for sleep.Jittered(ctx, sessionCheck) == nil {
				if a.signedIn(r) < 0 {
					cancel()
				}
			}
		}()
	}
	return stream, func() {
		forget()
		cancel()
	}
}
