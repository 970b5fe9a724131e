// Package fiberlimit puts limits, plain ones or rules, into fiber: [Handler] makes a middleware of
// one of package httplimit. It is a module of its own, so that other users of stint do not
// download fiber.
//
// fiber stands on fasthttp and not on net/http: each request is put into net/http's form first,
// without its body, and the answer of a denial back into fiber's. An exchange of headers is all
// that costs.
package fiberlimit

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/running"
)

// Handler returns the middleware for fiber; it must not be nil. A request that is denied, or can't be decided, is
// answered and reaches none of the handlers that come after. One that is held is held as long as its context
// (c.Context) lasts; fiber does not end it when the client goes away.
//
// The functions and handlers of the middleware's configuration get the request in net/http's form,
// without its body; they must not keep it, and [Context] leads from it to fiber's context. Its path
// is the one that fiber routes: where that leaves letter case out of account
// (fiber.Config.CaseSensitive), the path is in lower case, and so have to be the paths of rules. A
// handler of the configuration answers by what it is given or by fiber's context; of one that uses
// neither, fiber's status and body stand, 200 and none by default. The client's address is found by
// clientip, not by fiber: proxies are trusted where the middleware's Clients does.
//
// A middleware with httplimit.Config.Reserve holds what a request costs until the handlers return, also
// by an error or a panic. Handlers say the cost by httplimit.Cost(c.Context()); httplimit.Cost(c) has no
// effect. fiber sends a body of SendStreamWriter after the handlers return, so the hold has ended by
// then: such a handler calls stint.Limiter.Reserve. Where requests are counted by their answers, an error that handlers
// return counts as its code, that of a fiber.Error or 500, whatever an error handler makes of it.
func Handler(limit *httplimit.Middleware) fiber.Handler {
	exchanges := &sync.Pool{New: func() any { return newExchange() }}
	return func(c fiber.Ctx) error {
		e, _ := exchanges.Get().(*exchange)
		r, end, admitted := e.begin(limit, c)
		done := func() {
			end(0) // unless Answer says more
			e.forget()
			exchanges.Put(e)
		}
		if !admitted {
			done()
			return nil
		}
		cost := running.Of(r.Context())
		if cost == nil && httplimit.Exceeded(r.Context()) == nil {
			done()
			return c.Next()
		}
		defer done()
		before := c.Context()
		c.SetContext(r.Context())
		defer func() {
			if !c.IsAbandoned() { // by fiber's timeout, whose handler still runs and reads the context
				c.SetContext(before)
			}
		}()
		if !cost.Counts() {
			return c.Next()
		}
		var err error
		cost.Answer(before, func() { err = c.Next() }, func() int { return statusOf(c, err) })
		return err
	}
}

// statusOf is what a request counts as, whose handlers have returned.
func statusOf(c fiber.Ctx, err error) int {
	failure, is := errors.AsType[*fiber.Error](err)
	switch {
	case is:
		return failure.Code
	case err != nil:
		return http.StatusInternalServerError
	case c.RequestCtx().Hijacked():
		return http.StatusSwitchingProtocols
	}
	return c.Response().StatusCode()
}

// Context returns fiber's context of a request that a [Handler] decides, with what earlier handlers have set in it. It
// reports false for any other request.
//
// What fiber's context returns, such as c.Get, c.Params and c.IP, is memory that fiber uses again
// for the next request, unless fiber.Config.Immutable is set. A store may keep a key for longer, so
// what becomes a key, or a field of a rules.Request, has to be cloned (strings.Clone). The
// request's own header needs no clone.
func Context(r *http.Request) (fiber.Ctx, bool) {
	c, ok := r.Context().Value(contextKey{}).(fiber.Ctx)
	return c, ok
}

// From makes a function of the middleware's configuration, such as LimiterOf, Key or Cost, of one that gets fiber's
// context:
//
//	httplimit.Config{LimiterOf: fiberlimit.From(func(c fiber.Ctx) (*stint.Limiter, error) { return limiterOf(c) })}
//
// It fails for a request that no [Handler] decides. What it keeps of fiber's
// context has to be cloned, as [Context] says.
func From[T any](find func(fiber.Ctx) (T, error)) func(*http.Request) (T, error) {
	return func(r *http.Request) (found T, err error) {
		c, ok := Context(r)
		if !ok {
			return found, errors.New("stint: no Handler of fiberlimit decides the request")
		}
		return find(c)
	}
}

// contextKey is where a request's context has fiber's.
type contextKey struct{}

// withContext is the context of fiber's request with fiber's own context in it, by which Context
// finds it.
func withContext(c fiber.Ctx) context.Context {
	return context.WithValue(c.Context(), contextKey{}, c)
}
