package httplimit

import (
	"context"
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
)

// Cost is the cost of the request whose context it is, for handlers behind a [Middleware] with [Config.Reserve] to say
// what it turns out to be. Without one, what it is told has no effect.
func Cost(ctx context.Context) *enforce.RunningCost { return enforce.CostOf(ctx) }

// wrapHolding is Wrap for requests that hold what they cost.
func (m *Middleware) wrapHolding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cost := &enforce.RunningCost{}
		defer func() {
			if err := cost.End(r.Context()); err != nil && m.failed != nil {
				m.failed(r, err)
			}
		}()
		admitted := m.admit(w, r, func(r *http.Request, e *enforce.Evaluation) error { return m.reserve(r, e, cost) })
		if admitted {
			next.ServeHTTP(w, r.WithContext(cost.Begin(r.Context())))
		}
	})
}

func isConcurrency(l stint.Limit) bool { return l.Algorithm == stint.AlgorithmConcurrency }
