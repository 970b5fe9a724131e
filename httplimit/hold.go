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
		held, end, admitted := m.Begin(w, r)
		defer end()
		if admitted {
			next.ServeHTTP(w, held)
		}
	})
}

// Begin is Admit for a framework that calls the next handler in a way of its own, and that holds
// what requests cost: the handler is to get the request that it returns, and end is to be called
// when it is done, also on panic. The end is committed with the context of the request, which
// enforce detaches from the request's cancellation.
func (m *Middleware) Begin(w http.ResponseWriter, r *http.Request) (held *http.Request, end func(), admitted bool) {
	if m.reserve == nil {
		return r, func() {}, m.Admit(w, r)
	}
	cost := &enforce.RunningCost{}
	end = func() {
		if err := cost.End(r.Context()); err != nil {
			m.endFailed(r, err)
		}
	}
	if !m.admit(w, r, func(r *http.Request, e *enforce.Evaluation) error { return m.reserve(r, e, cost) }) {
		return r, end, false
	}
	return r.WithContext(cost.Begin(r.Context())), end, true
}

// endFailed has an end that failed sent again in the background, and tells Failed of it.
func (m *Middleware) endFailed(r *http.Request, err error) {
	if m.failed == nil {
		_ = m.ends.Repeat(err, nil)
		return
	}
	later := r.Clone(context.Background()) // the framework may use the request and its context again
	later.Body = http.NoBody
	m.failed(r, m.ends.Repeat(err, func(err error) { m.failed(later, err) }))
}

// Drain returns when no commit or cancel is left that failed and is sent again. Call it when the server has shut down,
// before the store is closed. What has not arrived when the context ends is given up, which [Config.Failed] is told;
// then the error wraps the context's.
func (m *Middleware) Drain(ctx context.Context) error { return m.ends.Drain(ctx) }

func isConcurrency(l stint.Limit) bool { return l.Algorithm == stint.AlgorithmConcurrency }
