// Package ginlimit puts limits, plain ones or rules, into gin: [Handler] makes a middleware of
// one of package httplimit. It is a module of its own, so that other users of stint do not
// download gin.
package ginlimit

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint/httplimit"
)

// Handler returns the middleware for gin; it must not be nil. A request that is denied, or can't be decided, is
// answered and reaches none of the handlers that come after. The client's address is found by clientip, not by gin:
// proxies are trusted where the middleware's Clients does.
//
// In the functions of the middleware's configuration, [Context] leads from the request to gin's context.
func Handler(limit *httplimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		r := c.Request
		if !limit.Admit(c.Writer, r.WithContext(context.WithValue(r.Context(), contextKey{}, c))) {
			c.Abort()
		}
	}
}

// Context returns gin's context of a request that a [Handler] decides, with what earlier
// handlers have set in it. It reports false for any other request.
func Context(r *http.Request) (*gin.Context, bool) {
	c, ok := r.Context().Value(contextKey{}).(*gin.Context)
	return c, ok
}

// contextKey is where a request's context has gin's.
type contextKey struct{}
