package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
)

// A RunningCost is what a request turns out to cost while its handler runs, for a [Middleware] with [Config.Reserve]. It
// is safe for concurrent use.
type RunningCost struct {
	hold      *stint.Reservation // nil: nothing is held for the request
	permits   atomic.Int64
	said      atomic.Bool
	cancelled atomic.Bool
}

type costKey struct{}

// Cost is the cost of the request whose context it is. Without a middleware that holds, what it is told has no effect.
func Cost(ctx context.Context) *RunningCost {
	if cost, ok := ctx.Value(costKey{}).(*RunningCost); ok {
		return cost
	}
	return new(RunningCost)
}

// Set says what the request costs, 0 or more; what was said last counts. Limits with a cost of their own keep that.
func (c *RunningCost) Set(permits int64) {
	c.permits.Store(max(0, permits))
	c.said.Store(true)
}

// Add says that the request costs so many permits more. The first of it counts from 0.
func (c *RunningCost) Add(permits int64) {
	c.permits.Add(permits)
	c.said.Store(true)
}

// Cancel says that the request never ran, so that all it held goes back, whatever else is said.
func (c *RunningCost) Cancel() { c.cancelled.Store(true) }

// Hold is what holds the request's permits, to have it grow for example; nil if nothing does.
func (c *RunningCost) Hold() *stint.Reservation { return c.hold }

// endTime is how long the end of a hold may take.
const endTime = 5 * time.Second

// wrapHolding is Wrap for requests that hold what they cost.
func (m *Middleware) wrapHolding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cost := &RunningCost{}
		ran := false
		defer func() {
			if cost.hold != nil {
				m.end(r, cost, ran)
			}
		}()
		admitted := m.admit(w, r, func(r *http.Request, e *enforce.Evaluation) (err error) {
			cost.hold, err = m.reserve(r, e)
			return err
		})
		if !admitted {
			return
		}
		ran = true
		if cost.hold == nil {
			next.ServeHTTP(w, r)
			return
		}
		work, stop := cost.hold.KeepAlive(context.WithValue(r.Context(), costKey{}, cost))
		defer stop()
		next.ServeHTTP(w, r.WithContext(work))
	})
}

// end ends the hold of a request, whose client may be gone.
func (m *Middleware) end(r *http.Request, cost *RunningCost, ran bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), endTime)
	defer cancel()
	var err error
	switch {
	case !ran || cost.cancelled.Load():
		_, err = cost.hold.Cancel(ctx)
	case cost.said.Load():
		_, err = cost.hold.Commit(ctx, max(0, cost.permits.Load()))
	default:
		_, err = cost.hold.Commit(ctx, cost.hold.Permits())
	}
	if err != nil && !errors.Is(err, stint.ErrResolved) && m.failed != nil { // the handler may have ended it by itself
		m.failed(r, err)
	}
}

func isConcurrency(l stint.Limit) bool { return l.Algorithm == stint.AlgorithmConcurrency }
