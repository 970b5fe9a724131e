package problem

import (
	"context"
	"net/http"
	"slices"
)

// A Handler answers a request of a caller, unless it returns an error, which has a status by [Of].
type Handler[C any] func(w http.ResponseWriter, r *http.Request, caller C) error

// A Mux finds the handler of a request, by the patterns of [http.ServeMux], and hands it the
// caller. What no handler is for is an error, too. The zero value has no handlers. It is safe for
// concurrent use once all are there.
type Mux[C any] struct {
	// Found, unless it is nil, is told which pattern a request matches, before its handler is called.
	Found    func(w http.ResponseWriter, pattern string)
	patterns http.ServeMux
	names    []string
}

// Handle has a handler answer what matches a pattern.
func (m *Mux[C]) Handle(pattern string, handler Handler[C]) {
	m.patterns.Handle(pattern, handler)
	m.names = append(m.names, pattern)
}

// Patterns are those that there are.
func (m *Mux[C]) Patterns() []string { return slices.Clone(m.names) }

// A call is one request on its way through the patterns, which set the values of its path.
type call[C any] struct {
	caller C
	found  func(http.ResponseWriter, string)
	err    error
}

type callKey struct{}

// ServeHTTP implements [http.Handler], for the patterns.
func (h Handler[C]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(callKey{}).(*call[C]); ok {
		if c.found != nil {
			c.found(w, r.Pattern)
		}
		c.err = h(w, r, c.caller)
	}
}

// Serve answers a request, unless it returns an error.
func (m *Mux[C]) Serve(w http.ResponseWriter, r *http.Request, caller C) error {
	c := &call[C]{caller: caller, found: m.Found}
	m.patterns.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	return c.err
}

// Check is the error of a request that no handler is for: 404, or 405 with the methods that there
// are.
func (m *Mux[C]) Check(r *http.Request) error {
	if m.has(r) {
		return nil
	}
	var allowed []string
	other := r.Clone(r.Context())
	for _, other.Method = range []string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"} {
		if m.has(other) {
			allowed = append(allowed, other.Method)
		}
	}
	if allowed == nil {
		return NoPath(r.URL.Path)
	}
	return CheckMethod(r, allowed...)
}

// has reports whether there is a handler: net/http's own redirect to paths in another form.
func (m *Mux[C]) has(r *http.Request) bool {
	handler, _ := m.patterns.Handler(r)
	_, ok := handler.(Handler[C])
	return ok
}
