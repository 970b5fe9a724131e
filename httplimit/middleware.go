package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// A Middleware puts a limit before handlers. It is safe for concurrent use; make it
// with [New] once and wrap as many handlers as are to share the limit.
type Middleware struct {
	config  Config
	headers *Headers
	each    sync.Pool // of *[]stint.Outcome, as long as the policy
}

// New makes a middleware, or reports everything that is wrong with the
// configuration.
func New(config Config) (*Middleware, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	policy := config.Limiter.Policy()
	m := &Middleware{config: config, headers: NewHeaders(policy, config.Fields)}
	m.each.New = func() any {
		each := make([]stint.Outcome, policy.Len())
		return &each
	}
	return m, nil
}

// Wrap returns a handler that calls next, which must not be nil, for the requests
// that are admitted, and holds them before for as long as a leaky bucket says. The
// rate limit fields are in the response's header when next is called; those that it
// sets itself replace them. A decision that a failure policy made in the store's stead
// has no fields.
//
// The method is what routers take as a middleware, such as chi's Use and, by
// echo.WrapMiddleware, echo's.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, cost, err := m.claim(r)
		if err != nil {
			m.config.Unfit(w, r, err)
			return
		}
		d, err := m.decide(r.Context(), w.Header(), key, cost)
		switch {
		case err == nil && d.Allowed:
			next.ServeHTTP(w, r)
		case err == nil:
			m.config.Denied.ServeHTTP(w, r)
		case errors.Is(err, stint.ErrInvalid):
			m.config.Unfit(w, r, err)
		default:
			m.config.Unavailable.ServeHTTP(w, r)
		}
	})
}

// claim is whom the request counts for, and for how much.
func (m *Middleware) claim(r *http.Request) (key string, cost int64, err error) {
	cost = 1
	if m.config.Cost != nil {
		if cost, err = m.config.Cost(r); err != nil {
			return "", 0, err
		}
	}
	if m.config.Key == nil {
		return m.config.Clients.Key(r.RemoteAddr, r.Header), cost, nil
	}
	key, err = m.config.Key(r)
	return key, cost, err
}

// decide asks the limiter, holds who has a turn to wait for, and writes the fields.
func (m *Middleware) decide(ctx context.Context, header http.Header, key string, cost int64) (d stint.Decision, err error) {
	var outcomes []stint.Outcome
	if m.headers.NeedsEach() {
		each := m.each.Get().(*[]stint.Outcome)
		defer m.each.Put(each)
		outcomes = *each
		d, err = m.config.Limiter.AllowEach(ctx, key, cost, outcomes)
	} else {
		d, err = m.config.Limiter.AllowN(ctx, key, cost)
	}
	if err == nil && d.Delay > 0 {
		err = pause(ctx, d.Delay)
	}
	if err == nil {
		m.headers.Write(header, d, outcomes)
	}
	return d, err
}

// pause waits for so long, or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
