package server

import (
	"context"
	"net"
)

// SetListener has the server accept connections of ln, whatever its configuration says.
func (s *Server) SetListener(ln net.Listener) {
	s.listen = func(context.Context, string, string) (net.Listener, error) { return ln, nil }
}

// SkipCheckMetrics has the server count no check in its metrics, for a benchmark of what that costs.
func (s *Server) SkipCheckMetrics() {
	for _, t := range s.service.targets.all {
		clear(t.algorithms)
	}
}
