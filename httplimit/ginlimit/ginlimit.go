// Package ginlimit puts limits, plain ones or rules, into gin: [Handler] makes a middleware of
// one of package httplimit. It is a module of its own, so that other users of stint do not
// download gin.
//
// There is no configuration here: keys, costs, answers and proxies are those of httplimit.Config.
package ginlimit

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/running"
)

// Handler returns the middleware for gin; it must not be nil. A request that is denied, or can't be decided, is
// answered and reaches none of the handlers that come after. The client's address is found by clientip, not by gin:
// proxies are trusted where the middleware's Clients does.
//
// With a middleware that holds what requests cost, httplimit.Cost of the request's context says
// what that was. One that counts requests by their answers goes by the status of gin's c.Writer.
//
// In the functions of the middleware's configuration, [Context] leads from the request to gin's
// context; [From] makes functions of such that get it.
func Handler(limit *httplimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		before := c.Request
		r, end, admitted := limit.Begin(c.Writer, before.WithContext(context.WithValue(before.Context(), contextKey{}, c)))
		defer end(0) // unless Answer says more
		if !admitted {
			c.Abort()
			return
		}
		cost := running.Of(r.Context())
		if cost == nil && httplimit.Exceeded(r.Context()) == nil {
			return // the handlers are told nothing, and nothing is to be done when they are done
		}
		c.Request = r
		if cost.Counts() {
			answer := &answerWriter{ResponseWriter: c.Writer}
			c.Writer = answer
			defer func() { c.Writer = answer.ResponseWriter }()
			cost.Answer(before.Context(), c.Next, answer.begun)
			return
		}
		c.Next()
	}
}

// An answerWriter notes that an answer is an upgrade, which its handler writes by itself.
type answerWriter struct {
	gin.ResponseWriter

	upgraded bool
}

// Hijack is an upgrade.
func (a *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	begun := a.Written()
	conn, both, err := a.ResponseWriter.Hijack()
	a.upgraded = a.upgraded || err == nil && !begun
	return conn, both, err
}

// begun is the status of the answer that was begun; 0 of none. One that a handler has set alone gin writes at the end.
func (a *answerWriter) begun() int {
	switch {
	case a.upgraded:
		return http.StatusSwitchingProtocols
	case !a.Written() && a.Status() == http.StatusOK:
		return 0
	}
	return a.Status()
}

// Context returns gin's context of a request that a [Handler] decides, with what earlier
// handlers have set in it. It reports false for any other request.
func Context(r *http.Request) (*gin.Context, bool) {
	c, ok := r.Context().Value(contextKey{}).(*gin.Context)
	return c, ok
}

// From makes a function of the middleware's configuration, such as LimiterOf, Key or Cost, of one that gets gin's
// context:
//
//	httplimit.Config{LimiterOf: ginlimit.From(func(c *gin.Context) (*stint.Limiter, error) { return limiterOf(c) })}
//
// It fails for a request that no [Handler] decides.
func From[T any](find func(*gin.Context) (T, error)) func(*http.Request) (T, error) {
	return func(r *http.Request) (found T, err error) {
		c, ok := Context(r)
		if !ok {
			return found, errors.New("stint: no Handler of ginlimit decides the request")
		}
		return find(c)
	}
}

// contextKey is where a request's context has gin's.
type contextKey struct{}
