package httplimit

import (
	"context"
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/running"
)

// Cost is the cost of the request whose context it is, for handlers behind a [Middleware] with [Config.Reserve] to say
// what it turns out to be. Without one, what it is told has no effect.
func Cost(ctx context.Context) enforce.RunningCost { return enforce.CostOf(ctx) }

// Begin is [Middleware.Wrap] for a framework that calls the next handler in a way of its own: it reports whether the
// request is admitted, and has answered it otherwise. The handler is to get the request that it returns, and end is to
// be called when it is done, also on panic, with the status of its answer, by which [Config.Count] and rules count it:
// 500 of a panic, 499 of a client that has gone, 101 of an upgrade. 0 is not known, and counted. The end is committed
// with the context of the request, detached from its cancellation.
func (m *Middleware) Begin(
	w http.ResponseWriter, r *http.Request,
) (held *http.Request, end func(status int), admitted bool) {
	held, cost, admitted := m.begin(w, r)
	if cost == nil {
		return held, func(int) {}, admitted
	}
	return held, func(status int) {
		if status > 0 {
			cost.Answered(status)
		}
		m.end(r, cost)
	}, admitted
}

// begin is Begin, with what the request holds in the place of end; nil: nothing.
func (m *Middleware) begin(
	w http.ResponseWriter, r *http.Request,
) (held *http.Request, cost *running.Cost, admitted bool) {
	if m.config.SkipPreflights && isPreflight(r) {
		return r, nil, true
	}
	if cost = m.server.Running(); cost == nil {
		held, admitted = m.admit(w, r, nil)
		return held, nil, admitted
	}
	if held, admitted = m.admit(w, r, cost); !admitted {
		return r, cost, false
	}
	return held.WithContext(cost.Begin(held.Context())), cost, true
}

// end ends what a request holds.
func (m *Middleware) end(r *http.Request, cost *running.Cost) {
	m.ends.End(r.Context(), cost, m.tellers(r))
}

// tellers tell Failed of an end that failed; nil if nobody is told.
func (m *Middleware) tellers(r *http.Request) func() (now, later func(error)) {
	if m.config.Failed == nil {
		return nil
	}
	return func() (now, later func(error)) {
		again := r.Clone(context.Background()) // the framework may use the request and its context again
		again.Body = http.NoBody
		return func(err error) { m.config.Failed(r, err) }, func(err error) { m.config.Failed(again, err) }
	}
}

// Drain returns when no commit or cancel is left that failed and is sent again. Call it when the server has shut down,
// before the store is closed. What has not arrived when the context ends is given up, which [Config.Failed] is told;
// then the error wraps the context's.
func (m *Middleware) Drain(ctx context.Context) error { return m.ends.Drain(ctx) }

// isPreflight reports whether a browser asks what another origin's page may send (Fetch, "CORS-preflight fetch").
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

func isConcurrency(l stint.Limit) bool { return l.Algorithm == stint.AlgorithmConcurrency }
